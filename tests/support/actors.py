"""Who acts in the model tests: relays that die anywhere, writers that commit late, a broker with moods, an operator."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.errors import BrokerError
from relay.kernel.runner import Budget
from relay.operate import failed
from relay.outbox.actions import Operator
from relay.outbox.failed import Action, FailedRows, Named
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.postgres.wire import COMMIT
from relay.publisher.crash_points import Point
from relay.publisher.policy import PublishPolicy
from relay.publisher.publisher import Publisher
from tests.support.ledger import Ledger
from tests.support.roles_of_tests import as_relay
from tests.support.waiting import until

# Whose pass this is; the tasks of a pass inherit it.
_RELAY: ContextVar["Relay | None"] = ContextVar("relay", default=None)


STATEMENTS = (
    "floors",
    "walk_keys",
    "claim_fresh",
    "claim_delayed",
    "claim_ordered",
    "settle_published",
    "settle_charged",
)
_CALL = re.compile(rb"^execute (\w+)", re.MULTILINE)


class Crash(BaseException):
    """A relay is killed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something happens to a pass, when it gets there for the nth time.

    That is before one of the STATEMENTS or `commit`; `lost commit`, after it; before a `request` is taken, or before
    its `answer`; or at the Point of this value.
    """

    what: str
    nth: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """At this place the relay dies, or others do something meanwhile."""

    place: Place
    meanwhile: Callable[[], Awaitable[None]] | None = None


class Clock:
    """Stands still but for a millisecond a look, so that one that waits for it to pass does not hang."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """The time of the relays."""
        self.now += 0.001
        return self.now


class MoodyBroker:
    """Takes messages, and tells the ledger; refuses topics, messages and keys; forgets to answer."""

    # So few that a key may need several requests.
    limits = RequestLimits(messages=3, size_bytes=9_000_000)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._receipts = count(1)
        self.refused: dict[str, str] = {}  # topic -> code
        self.throttled: set[str] = set()  # keys
        self.losing = 0  # answers

    def heal(self) -> None:
        """Take everything from now on."""
        self.refused.clear()
        self.throttled.clear()
        self.losing = 0
        for known in self._ledger.events.values():
            known.sick = None

    async def publish(self, relay: "Relay", topic: str, messages: Sequence[Message]) -> Sequence[str]:
        """Take a request of a relay, or not."""
        await relay.passes("request")
        self._ledger.asked(topic, messages)
        if error := self._refusal(topic, messages):
            raise error
        receipts = [f"m{next(self._receipts)}" for _ in messages]
        taken = self._ledger.delivered(topic, messages, receipts)
        relay.uncommitted += taken
        await relay.passes("answer")
        if self.losing:
            self.losing -= 1
            self._ledger.may_repeat(taken)
            raise BrokerError("UNAVAILABLE", "the answer was lost")
        return receipts

    def _refusal(self, topic: str, messages: Sequence[Message]) -> Exception | None:
        if code := self.refused.get(topic):
            return BrokerError(code, "the topic is away")
        if any(message.ordering_key in self.throttled for message in messages if message.ordering_key):
            return BrokerError("RESOURCE_EXHAUSTED", "the key is too fast")
        for message in messages:
            known = self._ledger.events.get(message.attributes["event_id"])
            if known and known.sick:
                return RuntimeError("a bug") if known.sick == "bug" else BrokerError(known.sick, "the message is sick")
        return None


@dataclass(slots=True)
class _Line:
    """A relay's own connection to the broker."""

    broker: MoodyBroker
    relay: "Relay"
    limits: RequestLimits = MoodyBroker.limits

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Send."""
        assert seconds > 0
        return await self.broker.publish(self.relay, topic, messages)

    async def close(self) -> None:
        """Nothing to let go of."""


class Relay:
    """A process that publishes: each of its statements and requests is a place where things may happen to it."""

    def __init__(self, url: str, broker: MoodyBroker, policy: PublishPolicy, ledger: Ledger, clock: Clock) -> None:
        self._url, self._broker, self._policy, self._ledger, self._clock = url, broker, policy, ledger, clock
        self.uncommitted: list[str] = []  # events that the broker took in the transaction that is open
        self.busy = False
        self._troubles: dict[Place, Trouble] = {}
        self._passed: dict[str, int] = {}
        self._commit_lost = False
        self._pids: list[int] = []
        self._start()

    async def run(self, seconds: float, troubles: Sequence[Trouble] = ()) -> None:
        """Make a pass. Whatever kills it, a new process takes its place."""
        self._troubles = {trouble.place: trouble for trouble in troubles}
        self._passed = {}
        self._commit_lost = False
        self.busy = True
        mine = _RELAY.set(self)
        try:
            await self._publisher.run_once(Budget(self._clock.now + seconds, self._clock.monotonic, asyncio.Event()))
        except BaseException as error:
            # A commit of unknown outcome is the same process's to get over.
            if not (self._commit_lost and isinstance(error, psycopg.OperationalError)):
                await self._die()
            if not (self._commit_lost or _is_crash(error)):
                raise
        finally:
            _RELAY.reset(mine)
            self.busy = False

    async def passes(self, what: str) -> None:
        """Come to a place."""
        trouble = self._next(what)
        if trouble and trouble.meanwhile:
            await trouble.meanwhile()
        elif trouble:
            raise Crash

    def reaches(self, point: Point) -> None:
        """Come to a crash point."""
        if self._next(point.value):
            raise Crash

    def loses_commit(self) -> bool:
        """The transaction is committed; whether the answer gets lost."""
        self.uncommitted.clear()
        self._commit_lost = self._next("lost commit") is not None
        return self._commit_lost

    async def close(self) -> None:
        """End in order."""
        await self._publisher.close()

    def _next(self, what: str) -> Trouble | None:
        self._passed[what] = self._passed.get(what, 0) + 1
        return self._troubles.get(Place(what, self._passed[what]))

    def _start(self) -> None:
        self._outbox = Outbox(self._connect, "public", idle_tx_ms=60_000, monotonic=self._clock.monotonic)
        self._publisher = Publisher(self._outbox, _Line(self._broker, self), self._policy, lambda _: None)

    async def _connect(self) -> AsyncConnection[Any]:
        connection = await connect_async(as_relay(self._url))
        connection.cursor_factory = _watched(self)
        self._pids.append(connection.info.backend_pid)
        return connection

    async def _die(self) -> None:
        """Leave nothing behind but what the broker took; the server has noticed when this returns."""
        await self._outbox.close()
        self._ledger.may_repeat(self.uncommitted)
        self.uncommitted.clear()
        until(lambda: self._ledger.gone(self._pids), "the server notices that the relay died")
        self._start()


def _watched(relay: Relay) -> type[AsyncCursor[Any]]:
    class Watched(AsyncCursor[Any]):
        async def execute(self, query: Any, *values: Any, **options: Any) -> Self:
            for place in _places(query):
                await relay.passes(place)
            done = await super().execute(query, *values, **options)
            if "commit" in _places(query) and relay.loses_commit():
                raise psycopg.OperationalError("the connection is lost")
            return done

    return Watched


def _places(query: str | bytes) -> list[str]:
    """The statements of a message: what is settled travels with the commit."""
    text = query if isinstance(query, bytes) else query.encode()
    called = [name.decode() for name in _CALL.findall(text)]
    return [*called, *(["commit"] if text.endswith(COMMIT.encode()) else [])] or ["other"]


def reached(point: Point) -> None:
    """What stands in place of `crash_points.reached`."""
    if relay := _RELAY.get():
        relay.reaches(point)


def _is_crash(error: BaseException) -> bool:
    return isinstance(error, Crash) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Crash) is not None)


class Desk:
    """An operator: locks rows and lets them go, retries and discards failed rows."""

    def __init__(self, url: str, routing: dict[str, Any], ledger: Ledger) -> None:
        self._url, self._routing, self._ledger = url, routing, ledger
        self._holding = psycopg.connect(url)

    def hold(self, remainder: int) -> None:
        """Lock every third row that nobody else has locked."""
        self._holding.execute("select from outbox_events where id %% 3 = %s for update skip locked", [remainder])

    def let_go(self) -> None:
        """Hold no row any more."""
        self._holding.rollback()

    async def act(self, action: Action, remainder: int) -> None:
        """Retry or discard every third failed row that is free. Order is not theirs any more, unless they blocked."""
        with psycopg.connect(self._url) as looking:
            found = looking.execute(
                """
                select event_id::text, blocks_key from outbox_events
                 where failed_at is not null and id %% 3 = %s
                   for update skip locked""",
                [remainder],
            ).fetchall()
        if not found:
            return
        self._ledger.passed_over(event_id for event_id, blocks in found if action is Action.DISCARD or not blocks)
        async with await connect_async(as_relay(self._url)) as connection:
            rows = FailedRows(connection, "public", self._routing)
            await failed.act(
                rows, action, Named([], [UUID(event_id) for event_id, _ in found]), Operator("ana", "a test")
            )

    async def does(self, what: str, which: int = 0) -> None:
        """One of these by its name."""
        match what:
            case "hold":
                self.hold(which)
            case "let go":
                self.let_go()
            case "retry":
                await self.act(Action.RETRY, which)
            case "discard":
                await self.act(Action.DISCARD, which)
            case "make due":
                self.make_due()
            case _:
                raise AssertionError(what)

    def make_due(self) -> None:
        """The time of everything that waits for it has come, but for rows that somebody holds."""
        with psycopg.connect(self._url) as connection:
            connection.execute(
                """
                update outbox_events set available_at = clock_timestamp()
                 where id in (select id from outbox_events
                               where published_at is null and failed_at is null and available_at > clock_timestamp()
                                 for update skip locked)"""
            )

    def close(self) -> None:
        """Leave."""
        self._holding.close()
