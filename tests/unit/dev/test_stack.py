"""A stack that was given its servers."""

import pytest

from relay.dev.stack import Stack
from relay.errors import DevError


def test_given_servers_are_in_the_environment() -> None:
    """Programs find them as they would find ours."""
    stack = Stack(given_database_url="postgresql://a", given_redis_url="redis://b")
    assert stack.servers == ()
    assert stack.environment == {"DATABASE_URL": "postgresql://a", "REDIS_URL": "redis://b"}


def test_a_part_that_is_not_there_has_no_address() -> None:
    """The error names the part, because the caller forgot it."""
    with pytest.raises(DevError, match="without pubsub"):
        _ = Stack().pubsub_emulator_host
