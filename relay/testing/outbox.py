"""An outbox in a test's hand: what was emitted to it, and what a relay makes of that."""

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack, overload

from psycopg import ProgrammingError, sql
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from relay.errors import ConfigurationError
from relay.postgres.connect import connect, connect_async
from relay.testing.broker import MemoryBroker
from relay.testing.duration import Duration, seconds_of
from relay.testing.emitted import EmittedEvent, State
from relay.testing.expected import Expected, Fields
from relay.testing.one_pass import Relayed, one_pass, policy
from relay.testing.reading import events_on, events_on_async
from relay.testing.words import not_found, unwanted

_LOCK_TIMEOUT = "5s"


class Outbox:
    """The outbox of a database, as a test looks at it.

    Without `connection` a method sees what is committed. With the connection on which events were emitted, it sees
    what that transaction holds too, as tests need that roll everything back.

    What can be said of an event beside its type: see `Fields`.
    """

    def __init__(self, database_url: str, schema: str = "public", *, broker: MemoryBroker | None = None) -> None:
        self.url = _checked(database_url)
        self.schema = schema
        self.broker = broker or MemoryBroker()
        """What `relay_once` publishes to."""
        self._later = 0.0

    def emitted(
        self, event_type: str | None = None, *, connection: Any = None, **fields: Unpack[Fields]
    ) -> list[EmittedEvent]:
        """The events of the outbox, or those that are as described, in the order in which they were stored."""
        return _matching(Expected(event_type, fields), self._events(connection))

    async def emitted_async(
        self, event_type: str | None = None, *, connection: Any = None, **fields: Unpack[Fields]
    ) -> list[EmittedEvent]:
        """Like `emitted`, on an asynchronous connection."""
        return _matching(Expected(event_type, fields), await self._events_async(connection))

    @overload
    def assert_emitted(
        self, event_type: str, *, times: None = None, connection: Any = None, **fields: Unpack[Fields]
    ) -> EmittedEvent: ...
    @overload
    def assert_emitted(
        self, event_type: str, *, times: int, connection: Any = None, **fields: Unpack[Fields]
    ) -> list[EmittedEvent]: ...
    def assert_emitted(
        self, event_type: str, *, times: int | None = None, connection: Any = None, **fields: Unpack[Fields]
    ) -> EmittedEvent | list[EmittedEvent]:
        """Fail unless there is such an event, or so many of them. Answers with the first, or with all of them."""
        __tracebackhide__ = True
        within = connection is not None
        return _required(Expected(event_type, fields), times, self._events(connection), within=within)

    @overload
    async def assert_emitted_async(
        self, event_type: str, *, times: None = None, connection: Any = None, **fields: Unpack[Fields]
    ) -> EmittedEvent: ...
    @overload
    async def assert_emitted_async(
        self, event_type: str, *, times: int, connection: Any = None, **fields: Unpack[Fields]
    ) -> list[EmittedEvent]: ...
    async def assert_emitted_async(
        self, event_type: str, *, times: int | None = None, connection: Any = None, **fields: Unpack[Fields]
    ) -> EmittedEvent | list[EmittedEvent]:
        """Like `assert_emitted`, on an asynchronous connection."""
        __tracebackhide__ = True
        within = connection is not None
        return _required(Expected(event_type, fields), times, await self._events_async(connection), within=within)

    def assert_nothing_emitted(
        self, event_type: str | None = None, *, connection: Any = None, **fields: Unpack[Fields]
    ) -> None:
        """Fail if there is any event, or any that is as described."""
        __tracebackhide__ = True
        _refused(Expected(event_type, fields), self._events(connection))

    async def assert_nothing_emitted_async(
        self, event_type: str | None = None, *, connection: Any = None, **fields: Unpack[Fields]
    ) -> None:
        """Like `assert_nothing_emitted`, on an asynchronous connection."""
        __tracebackhide__ = True
        _refused(Expected(event_type, fields), await self._events_async(connection))

    def failed(self) -> list[EmittedEvent]:
        """Events that failed for good, each with its reason and error."""
        return self.emitted(state=State.FAILED)

    def relay_once(
        self,
        *,
        routes: Mapping[str, str] | str = "",
        topic: str = "domain-events",
        max_attempts: int = 25,
        on_failed_head: str = "block",
        budget: Duration = "30s",
    ) -> Relayed:
        """Have a relay that has just started publish to `broker` what is committed and can be published now.

        The settings are those of the relay, with its defaults. A pass takes no longer than `budget`. In an event loop,
        await `relay_once_async`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass_ = self.relay_once_async(
                routes=routes, topic=topic, max_attempts=max_attempts, on_failed_head=on_failed_head, budget=budget
            )
            # A loop of its own, which leaves the one alone that the test's thread may have set.
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                return runner.run(pass_)
        raise RuntimeError("an event loop runs in this thread; write: await outbox.relay_once_async()")

    async def relay_once_async(
        self,
        *,
        routes: Mapping[str, str] | str = "",
        topic: str = "domain-events",
        max_attempts: int = 25,
        on_failed_head: str = "block",
        budget: Duration = "30s",
    ) -> Relayed:
        """Like `relay_once`, in an event loop."""
        publish = policy(routes, topic, max_attempts, on_failed_head)
        seconds = seconds_of(budget)
        return await one_pass(self.url, self.schema, self.broker, publish, later=self._later, seconds=seconds)

    def advance(self, duration: Duration) -> None:
        """Move the relay's clock: what is scheduled, or waits for its next attempt, becomes due for `relay_once`."""
        self._later += seconds_of(duration)

    def clear(self) -> None:
        """Delete every event that is committed, and have the broker forget what it took."""
        with connect(self.url) as connection:
            try:
                connection.execute("select set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
                connection.execute(sql.SQL("delete from {}").format(sql.Identifier(self.schema, "outbox_events")))
            except pg.LockNotAvailable as error:
                raise ConfigurationError(
                    f"another session has held events for {_LOCK_TIMEOUT}; end its transaction before outbox.clear()"
                ) from error
        self.broker.clear()

    def _events(self, connection: object) -> list[EmittedEvent]:
        if connection is not None:
            return events_on(connection, self.schema)
        with connect(self.url) as own:
            return events_on(own, self.schema)

    async def _events_async(self, connection: object) -> list[EmittedEvent]:
        if connection is not None:
            return await events_on_async(connection, self.schema)
        async with await connect_async(self.url) as own:
            return await events_on_async(own, self.schema)


def _checked(url: str) -> str:
    """Refuse what libpq cannot read without repeating it: it may hold a password."""
    if not isinstance(url, str):
        raise TypeError(f"database_url is of type {type(url).__name__}, not a text")
    scheme, plus, _ = url.partition("://")[0].partition("+")
    if plus and scheme.startswith("postgres"):
        raise ValueError(
            "database_url names a driver in its scheme; write postgresql:// without the + and what follows it"
        )
    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        raise ValueError(
            "database_url is not a connection string; write it like postgresql://user:password@host:5432/db"
        ) from None
    return url


def _matching(expected: Expected, events: list[EmittedEvent]) -> list[EmittedEvent]:
    return [event for event in events if not expected.differences(event)]


def _required(
    expected: Expected, times: int | None, events: list[EmittedEvent], *, within: bool
) -> EmittedEvent | list[EmittedEvent]:
    __tracebackhide__ = True
    if isinstance(times, bool) or (times is not None and times < 0):
        raise ValueError(f"times is {times!r}; give how often, as a number from 0")
    found = _matching(expected, events)
    if not found if times is None else len(found) != times:
        raise AssertionError(not_found(expected, times, found, events, within=within))
    return found[0] if times is None else found


def _refused(expected: Expected, events: list[EmittedEvent]) -> None:
    __tracebackhide__ = True
    if found := _matching(expected, events):
        raise AssertionError(unwanted(expected, found))
