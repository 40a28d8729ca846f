"""What several of these modules stand on."""

from collections.abc import AsyncIterator

import pytest

from tests.support.bench import Bench


@pytest.fixture
async def bench(database: str) -> AsyncIterator[Bench]:
    """A publisher on an empty outbox."""
    bench = Bench(database)
    yield bench
    await bench.publisher.close()
