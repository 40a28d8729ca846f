"""Waits for the ends of deliveries, for many at once: over one session that looks, and one that is told."""

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import psycopg

from consumers import duration
from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.inbox.rows import Awaited
from consumers.inbox.session import Session
from consumers.waiting.answers import Answer
from consumers.waiting.waiter import Delivery, Target, Waiter, seconds_of, target_of
from consumers.waiting.wake_up import WakeUp
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.failure import told
from relay.postgres.connect import connect_async
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import Row

if TYPE_CHECKING:
    from consumers.settings import Settings

# Deliveries in one statement.
MOST_ROWS: Final = 500
# How much longer than it asked somebody waits for the first look of theirs, where the database takes its time.
_GRACE_SECONDS: Final = 5.0
_NOBODY: Final = UUID(int=0)


class Waiting:
    """Waits for what consumers with an inbox do, whoever has stored it. One in each process, for one event loop.

    It takes two connections, when somebody first waits: one that looks for all that wait together, and one that is
    notified of what ends. Without notifications it goes on looking, once a second at least.

    Args:
        url: The database that has the inbox.
        schema: The inbox's.
        app: The name of the connections, in pg_stat_activity.
        listen_url: A way to the same database past a pooler, for the notifications. Default: the url.
        wait: How long `wait` takes at most, where it is not told. Default: 15 s.
        most: And how long a client of an endpoint may have it wait. Default: 30 s.
        retry_after: When it makes sense to ask again. Default: 1 s.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        url: str,
        *,
        schema: str = "public",
        app: str = "",
        listen_url: str | None = None,
        wait: duration.Duration = 15.0,
        most: duration.Duration = 30.0,
        retry_after: duration.Duration = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.default = _seconds("wait", wait)
        self.most = _seconds("most", most)
        self.retry_after = _seconds("retry_after", retry_after)
        if self.default > self.most:
            raise ConfigurationError(
                f"wait is {duration.shown(wait)}, longer than most, {duration.shown(most)}; give that or less"
            )
        place, ear = checked(url), checked(listen_url or url)

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await connect_async(place, app)

        async def listen() -> psycopg.AsyncConnection[Any]:
            return await connect_async(ear, app, "listen_url" if listen_url else "DATABASE_URL")

        self._clock = clock or SystemClock()
        self._session = Session(connect, schema, lambda: 0.0)
        self._wake_up = WakeUp(listen, self._hear, self._clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiters: set[Waiter] = set()
        self._named: dict[int, set[Waiter]] = {}
        self._news = asyncio.Event()
        self._looking = False
        # What was heard while a look was under way, which may have been too early for it; None is for everything.
        self._heard: set[int | None] = set()
        self._closed = False

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """As DATABASE_URL and the settings INBOX_… say: `Waiting.of(consumers.settings.load())`."""
        try:
            settings.require("database_url")
        except relay_errors.ConfigurationError as error:
            raise ConfigurationError(str(error)) from None
        return cls(
            settings.database_url.get_secret_value(),
            schema=settings.inbox_schema,
            app=settings.consumers_app,
            wait=settings.inbox_wait_ms,
            most=settings.inbox_wait_most_ms,
        )

    async def wait(self, delivery: Delivery, seconds: float | None = None) -> Answer:
        """What has come of a delivery when it ends, or when the time is over; with 0 seconds, what it is now.

        It is what `enqueue` has answered, its id, or the consumer's name and the id of the event. An event may be still
        on its way to the inbox; a delivery must be committed, or UnknownDeliveryError is raised.

        Raises StoreUnavailableError where the database was not reached in all that time, and ConfigurationError where
        it has no inbox that may be read here.
        """
        if self._closed:
            raise RuntimeError("this Waiting is closed; make another one")
        limit = self.default if seconds is None else seconds_of(seconds)
        waiter = self._enter(target_of(delivery))
        try:
            await self._clock.wait(waiter.ended, limit)
            if not waiter.looked.is_set():
                await self._clock.wait(waiter.looked, _GRACE_SECONDS)
            return waiter.said()
        finally:
            self._leave(waiter)

    async def close(self) -> None:
        """Let all that wait go, with what they know, and end the connections."""
        self._closed = True
        for waiter in self._waiters:
            waiter.break_off()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _enter(self, target: Target) -> Waiter:
        waiter = Waiter(target, due=self._clock.monotonic(), retry_after=self.retry_after)
        self._waiters.add(waiter)
        if isinstance(target, int):
            self._name(waiter, target)
        self._news.set()
        if not self._tasks or self._tasks[0].done():
            self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._wake_up.run())]
        return waiter

    def _leave(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)
        if waiter.id is not None:
            self._named[waiter.id].discard(waiter)
            if not self._named[waiter.id]:
                del self._named[waiter.id]

    def _name(self, waiter: Waiter, number: int) -> None:
        waiter.id = number
        self._named.setdefault(number, set()).add(waiter)

    def _hear(self, number: int | None) -> None:
        """Somebody says that this delivery has ended, or that any may have."""
        if self._looking:
            self._heard.add(number)
        for waiter in self._waiters if number is None else self._named.get(number, ()):
            waiter.due = self._clock.monotonic()
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            due = [waiter for waiter in self._waiters if waiter.due <= now and not waiter.ended.is_set()]
            if due:
                await self._look(due)
            elif self._waiters:
                await self._clock.wait(self._news, min(waiter.due for waiter in self._waiters) - now)
            else:
                await self._news.wait()

    async def _look(self, due: Sequence[Waiter]) -> None:
        """Look for what these wait for, with one statement for them all."""
        by_target: dict[Target, list[Waiter]] = {}
        for waiter in due:
            by_target.setdefault(waiter.target, []).append(waiter)
        targets = iter(by_target)
        while part := list(islice(targets, MOST_ROWS)):
            waiters = [waiter for target in part for waiter in by_target[target]]
            self._looking = True
            self._heard.clear()
            try:
                found = await self._found(part)
            except StoreUnavailableError as error:
                for waiter in waiters:
                    waiter.fail(error)
                if (final := _final(error)) is not None:
                    self._end(waiters, final)
            except Exception as error:  # noqa: BLE001 -- it is theirs who wait: nobody may wait in vain for a look
                self._end(waiters, error)
            else:
                self._see(waiters, found)
            finally:
                self._looking = False
            for waiter in waiters:
                waiter.look_later(self._clock.monotonic())
                if self._heard & {waiter.id, None}:
                    waiter.due = self._clock.monotonic()

    async def _found(self, targets: Sequence[Target]) -> dict[Target, Awaited]:
        ids = [target if isinstance(target, int) else 0 for target in targets]
        pairs = [("", _NOBODY) if isinstance(target, int) else target for target in targets]
        values = {
            "ids": numbers(ids),
            "consumers": texts([consumer for consumer, _ in pairs]),
            "event_ids": texts([str(event_id) for _, event_id in pairs]),
        }
        return {targets[int(row[0]) - 1]: _awaited(row) for row in await self._session.ask("await_end", values)}

    def _see(self, waiters: Sequence[Waiter], found: dict[Target, Awaited]) -> None:
        for waiter in waiters:
            row = found.get(waiter.target)
            if row is not None and waiter.id is None and waiter in self._waiters:
                self._name(waiter, row.id)
            waiter.see(row, self.retry_after)

    @staticmethod
    def _end(waiters: Sequence[Waiter], error: Exception) -> None:
        for waiter in waiters:
            waiter.end(error)


def _awaited(row: Row) -> Awaited:
    _, number, state, outcome, result, error_code, error, due_in = row
    return Awaited(
        id=int(number),
        state=state,
        outcome=outcome,
        result=None if result is None else json.loads(result),
        error_code=error_code,
        error=error,
        due_in=float(due_in),
    )


def _final(fault: StoreUnavailableError) -> ConfigurationError | None:
    """What no further look will change, in words."""
    match fault.__cause__:
        case psycopg.errors.UndefinedTable() | psycopg.errors.InsufficientPrivilege() as error:
            return ConfigurationError(
                f"the inbox cannot be waited for: {told(error)}; create it with python -m consumers migrate, and grant "
                "the role usage on its schema, and select and update on inbox_deliveries"
            )
        case relay_errors.ConfigurationError() as error:
            return ConfigurationError(str(error))
        case _:
            return None


def _seconds(name: str, value: duration.Duration) -> float:
    try:
        return duration.read(value).total_seconds()
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
