"""The part of a process that looks for what others wait for: over one session that asks, and one that is told."""

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from typing import Final
from uuid import UUID

import psycopg

from consumers.errors import ConfigurationError
from consumers.inbox.rows import Awaited
from consumers.inbox.session import Connect, Session
from consumers.waiting.waiter import Target, Waiter
from consumers.waiting.wake_up import WakeUp
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.clock import Clock
from relay.kernel.failure import told
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import Row

# Deliveries in one statement.
MOST_ROWS: Final = 500
_NOBODY: Final = UUID(int=0)


class Lookout:
    """At work from its making to its close, in one event loop."""

    def __init__(self, connect: Connect, listen: Connect, schema: str, *, clock: Clock, retry_after: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiters: set[Waiter] = set()
        self._clock = clock
        self._retry_after = retry_after
        self._session = Session(connect, schema, lambda: 0.0)
        self._named: dict[int, set[Waiter]] = {}
        self._news = asyncio.Event()
        self._looking = False
        # What was heard while a look was under way, which may have been too early for it; None is for everything.
        self._heard: set[int | None] = set()
        self._tasks = [
            asyncio.create_task(self._run()),
            asyncio.create_task(WakeUp(listen, self.hear, clock).run()),
        ]

    def enter(self, target: Target) -> Waiter:
        """Look for this, at once and from then on."""
        waiter = Waiter(target, due=self._clock.monotonic(), retry_after=self._retry_after)
        self.waiters.add(waiter)
        if isinstance(target, int):
            self._name(waiter, target)
        self._news.set()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Nobody waits for it any more."""
        self.waiters.discard(waiter)
        if waiter.id is not None:
            self._named[waiter.id].discard(waiter)
            if not self._named[waiter.id]:
                del self._named[waiter.id]

    async def close(self) -> None:
        """Let all that wait go, with what they know, and end the connections."""
        for waiter in self.waiters:
            waiter.break_off()
        if self._looking:
            # Cancelled, it would first ask the server to end it, for as long as 10 s where that one does not answer.
            self._session.cut()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    def _name(self, waiter: Waiter, number: int) -> None:
        waiter.id = number
        self._named.setdefault(number, set()).add(waiter)

    def hear(self, number: int | None) -> None:
        """Somebody says that this delivery has ended, or that any may have."""
        if self._looking:
            self._heard.add(number)
        for waiter in self.waiters if number is None else self._named.get(number, ()):
            waiter.due = self._clock.monotonic()
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            due = [waiter for waiter in self.waiters if waiter.due <= now and not waiter.ended.is_set()]
            if due:
                await self._look(due)
            elif self.waiters:
                await self._clock.wait(self._news, min(waiter.due for waiter in self.waiters) - now)
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
            if row is not None and waiter.id is None and waiter in self.waiters:
                self._name(waiter, row.id)
            waiter.see(row, self._retry_after)

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
