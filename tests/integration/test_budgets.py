"""What a published event may cost, counted on the wire: figures that do not depend on the machine."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import Trace

from relay import emit
from relay.kernel.runner import Budget, Report
from relay.outbox.connect import connect_async
from relay.outbox.outbox import Outbox
from relay.publisher.publisher import Publisher
from tests.support.brokers import BrokerInHand
from tests.support.outbox import event
from tests.support.policies import policy

# One line a message: F from the relay, B from the server.
_MESSAGE = re.compile(r"^([FB])\t\d+\t(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """What a pass asked of the database."""

    statements: int
    # Points at which the relay waits for all that it has asked.
    round_trips: int


async def one_pass(url: str, log: Path, seconds: float = 0.0) -> tuple[Report, Cost]:
    """Run a pass of the publisher over a connection whose every message libpq writes down, and count them."""
    with log.open("w") as file:

        async def connect() -> psycopg.AsyncConnection[Any]:
            connection = await connect_async(url)
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS | Trace.REGRESS_MODE)
            return connection

        outbox = Outbox(connect, "public", 20_000, monotonic=lambda: 0.0)
        publisher = Publisher(outbox, BrokerInHand(), policy(batch_size=1_000), lambda _: None)
        loop = asyncio.get_running_loop()
        report = await publisher.run_once(Budget(loop.time() + seconds, loop.time, asyncio.Event()))
        await publisher.close()  # with the connection, libpq writes the last of its buffer
    sent_and_received = Counter(_MESSAGE.findall(log.read_text()))  # noqa: ASYNC240 -- nothing else runs by now
    return report, Cost(
        statements=sent_and_received["F", "Execute"] + sent_and_received["F", "Query"],
        round_trips=sent_and_received["B", "ReadyForQuery"],
    )


@pytest.mark.parametrize("events", [1, 1_000])
async def test_a_batch_costs_seven_statements_whatever_its_size(database: str, tmp_path: Path, events: int) -> None:
    """begin, enter and the look at keys together; two claims, one settle, commit: five round trips, none per row."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(events)])
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.updated == events
    assert cost == Cost(statements=7, round_trips=5)


@pytest.mark.parametrize("keys", [1, 50])
async def test_ordered_rows_cost_one_statement_more(database: str, tmp_path: Path, keys: int) -> None:
    """They are locked by their ids, whatever the number of keys."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number, ordering_key=f"key-{number % keys}") for number in range(500)])
        emit(connection, [event(number) for number in range(500)])
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.updated == 1_000
    assert cost == Cost(statements=8, round_trips=6)


async def test_a_look_for_the_safe_floors_travels_with_the_begin(database: str, tmp_path: Path) -> None:
    """It is no round trip of its own, and comes once a second: the batches that follow at once have none."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(3_000)])
    report, cost = await one_pass(database, tmp_path / "trace", seconds=60.0)
    assert report.updated == 3_000
    # Three full batches and a claim that finds nothing, with a look between the first and the second.
    assert cost == Cost(statements=4 * 7 - 1 + 1, round_trips=4 * 5 - 1)


async def test_an_idle_look_costs_six_statements(database: str, tmp_path: Path) -> None:
    """Nothing due: the same without the settle."""
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.processed == 0
    assert cost == Cost(statements=6, round_trips=4)
