"""An inbox with rows in it, and its upkeep in the test's hand."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg

from consumers import Consumer
from consumers.clock import SystemClock
from consumers.inbox.cleaning import Cleaning, finished_deliveries
from consumers.inbox.revising import Revising
from consumers.inbox.session import Session
from relay.kernel.runner import Budget, Report, Runner
from relay.postgres.connect import connect_async
from relay.upkeep.table import Destination
from tests.support.looking import asked
from tests.support.waiting import until_async

FILL = """
    insert into inbox_deliveries
           (consumer, event_id, event_type, envelope, state, outcome, handler_version, token, created_at, finished_at)
    select %(consumer)s, gen_random_uuid(), %(event_type)s, '{}', %(state)s, %(outcome)s, %(revision)s,
           gen_random_uuid(), clock_timestamp() - %(age)s, clock_timestamp() - %(age)s
      from generate_series(1, %(count)s)
"""


def fill(  # noqa: PLR0913 -- each by its name
    database: str,
    count: int = 1,
    *,
    consumer: str = "billing",
    event_type: str = "order.paid",
    state: str = "done",
    outcome: str = "ok",
    revision: int | None = 1,
    age: timedelta = timedelta(0),
) -> None:
    """Deliveries that have ended, each with two entries of its history."""
    with psycopg.connect(database) as connection:
        said = {
            "consumer": consumer,
            "event_type": event_type,
            "state": state,
            "outcome": outcome,
            "revision": revision,
            "age": age,
            "count": count,
        }
        connection.execute(FILL, said)
        connection.execute(
            "insert into inbox_history (delivery_id, what) select id, what from inbox_deliveries "
            "cross join (values ('created'), ('done')) as entries(what) "
            "where id not in (select delivery_id from inbox_history)"
        )


def states(database: str) -> dict[str, int]:
    """How many deliveries there are of each state."""
    with psycopg.connect(database) as connection:
        return dict(
            connection.execute("select state, count(*)::integer from inbox_deliveries group by state").fetchall()
        )


def count(database: str, query: str) -> int:
    """What a query counts."""
    ((found,),) = asked(database, query.encode())
    return int(found)


async def somebody_waits(database: str, query: str = "wait_event_type = 'Lock'") -> None:
    """Return when another session waits for a lock, or is in what else is asked for."""
    waiting = f"select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and {query}"  # noqa: E501, S608 -- a test's own words

    async def is_there() -> bool:
        return count(database, waiting) > 0

    await until_async(is_there, "another session waits")


@dataclass
class Hand:
    """Builds runners, and runs them as a process would."""

    database: str
    skew: float = 0.0
    told: list[Any] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    def cleaning(
        self,
        owner: str = "one",
        consumer: str = "billing",
        page: int = 500,
        days: float = 90,
        to: Destination = "nowhere",
    ) -> Cleaning:
        """One that cleans."""
        return Cleaning(
            self._session(),
            finished_deliveries("public", consumer, timedelta(days=days), to, page),
            self._connect,
            consumer=consumer,
            owner=owner,
            clock=SystemClock(),
            observe=self.told.append,
        )

    def revising(self, consumer: Consumer, owner: str = "one", page: int = 2_000) -> Revising:
        """One that has events handled again."""
        return Revising(
            self._session(),
            consumer.handlers,
            consumer=consumer.name,
            owner=owner,
            clock=SystemClock(),
            observe=self.told.append,
            page=page,
        )

    def _session(self) -> Session:
        session = Session(self._connect, "public", lambda: self.skew)
        self.sessions.append(session)
        return session

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await connect_async(self.database)


@asynccontextmanager
async def hand_on(database: str) -> AsyncIterator[Hand]:
    """A hand on the upkeep of an inbox."""
    hand = Hand(database)
    try:
        yield hand
    finally:
        for session in hand.sessions:
            await session.close()


async def once(runner: Runner, until: Callable[[], bool] = lambda: False) -> Report:
    """One pass of a runner; its time is over when `until` says so, between two units of work."""

    def now() -> float:
        return math.inf if until() else time.monotonic()

    return await runner.run_once(Budget(time.monotonic() + 30, now, asyncio.Event()))
