"""The deliveries of an inbox, as the statements of `sql/` that operators need."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from psycopg import errors as pg

from consumers.errors import ConfigurationError
from consumers.inbox.operate.choice import Choice, State
from consumers.inbox.operate.rows import Action, Entry, Group, Listed, Operator, Page, Start
from consumers.inbox.schema import INBOX
from consumers.inbox.session import Connect, Session
from consumers.inbox.table import MOST_ROWS
from idempotency import StoreUnavailableError
from relay.patterns import by_kind
from relay.postgres.connect import connect_async
from relay.postgres.schema import Versions
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import Row

# Deliveries that one statement looks at: none takes long, however large the table is and however few are wanted.
REACH: Final = 5_000
_BATCHES: Final = Page(MOST_ROWS)
_EVERYTHING: Final = Page(REACH, newest=True)
_LAST: Final = 2**63 - 1
_SHOWN: Final = (
    *("id", "consumer", "event_id", "recipient", "event_type", "event_version", "sequence", "ordering_key", "shard"),
    *("message_id", "state", "outcome", "attempts", "stale_count", "defer_count", "suspect", "code", "error"),
    *("locked_by", "lease_until", "due_at", "handler_version", "stage", "progress", "ticket", "awaited", "result"),
    *("attributes", "created_at", "first_started_at", "started_at", "sent_at", "finished_at", "envelope"),
)

Progress = Callable[[str, int], None]


def _silent(_what: str, _count: int) -> None:
    """Nobody waits for it."""


class Deliveries:
    """One session; raises StoreUnavailableError where the database does not answer."""

    def __init__(self, connect: Connect, schema: str) -> None:
        self._session = Session(connect, schema, lambda: 0.0)

    async def start(self) -> Start:
        """Begin a command."""
        ((now, role),) = await self._ask("operators_start", {})
        return Start(now, role)

    async def consumers(self) -> list[str]:
        """All that the inbox has deliveries of."""
        return [name for (name,) in await self._ask("consumers", {})]

    async def pages(
        self, choice: Choice, page: Page = _BATCHES, progress: Progress = _silent
    ) -> AsyncIterator[list[Listed]]:
        """What is chosen, page after page, in the order of ids."""
        async for found in self._walk(choice, "deliveries_listed", page, progress):
            if found:
                yield [Listed(*row) for row in found]

    async def counts(self, choice: Choice, progress: Progress = _silent) -> Counter[Group]:
        """How many are chosen, by what tells them apart."""
        counted: Counter[Group] = Counter()
        async for found in self._walk(choice, "deliveries_counted", _EVERYTHING, progress):
            for *group, count in found:
                counted[Group(*group)] += int(count)
        return counted

    async def shown(self, id_: int, *, envelope: bool) -> tuple[dict[str, Any], list[Entry]] | None:
        """All that is known of one delivery, and its history; None where it is gone."""
        known = await self._ask("delivery_shown", {"id": id_, "envelope": envelope})
        if not known:
            return None
        history = await self._ask("delivery_history", {"id": id_})
        entries = [Entry(at, what, json.loads(detail) if detail else {}) for at, what, detail in history]
        return dict(zip(_SHOWN, known[0], strict=True)), entries

    async def act(self, action: Action, rows: Sequence[Listed], operator: Operator) -> dict[int, str]:
        """Retry or discard those that are still as they are listed; for each id `acted`, or why it was left alone.

        One transaction, which waits for nobody.
        """
        values = {
            "ids": numbers(row.id for row in rows),
            "states": texts(["failed" if row.state == State.DISCARDED.value else row.state for row in rows]),
            "finished": texts([row.finished_at or "" for row in rows]),
            "by": operator.by,
            "why": operator.why,
        }
        return {int(id_): became for id_, became in await self._ask(f"deliveries_{action.value}", values)}

    async def close(self) -> None:
        """End the session."""
        await self._session.close()

    async def _walk(self, choice: Choice, answer: str, page: Page, progress: Progress) -> AsyncIterator[list[Row]]:
        """What a statement answers about each part of what is found, part after part."""
        name = f"{_road(choice, page)}+deliveries_wanted+{answer}"
        values = {**_values(choice), "consumers": await self._whose(choice), "way": -1 if page.newest else 1}
        after = (_LAST if page.newest else 0) if page.after is None else page.after
        read = 0
        while True:
            answers = await self._ask(name, {**values, "after": after, "reach": REACH, "rows": page.rows})
            looked_at, last = answers[0][:2]
            found = [row[2:] for row in answers if row[2] is not None]
            yield found
            if answer == "deliveries_listed" and len(found) == page.rows:
                after = int(found[-1][0])  # there may be more of those that were looked at
                continue
            read += int(looked_at)
            progress("deliveries read", read)
            if int(looked_at) < REACH:
                return
            after = int(last)

    async def _whose(self, choice: Choice) -> str:
        return texts([choice.consumer] if choice.consumer is not None else await self.consumers())

    async def _ask(self, name: str, values: Mapping[str, object]) -> list[Row]:
        try:
            return await self._session.ask(name, values)
        except StoreUnavailableError as error:
            if isinstance(error.__cause__, pg.InsufficientPrivilege):
                raise ConfigurationError(
                    f"the role of DATABASE_URL may not do this: {error.__cause__.diag.message_primary}; {INBOX.rights}"
                ) from error
            raise


@asynccontextmanager
async def opened(url: str, schema: str, app: str) -> AsyncIterator[Deliveries]:
    """Those of the inbox there. Raises SchemaError where it is none that this code works on."""
    connect = partial(connect_async, url, app)
    async with await connect() as connection:
        await Versions(INBOX).require(connection, schema)
    deliveries = Deliveries(connect, schema)
    try:
        yield deliveries
    finally:
        await deliveries.close()


def _road(choice: Choice, page: Page) -> str:
    """Where what is chosen is looked for: only what is done has to be looked for among everything."""
    if choice.named:
        return "deliveries_named"
    if choice.states and State.DONE not in choice.states:
        return "deliveries_live"
    return "deliveries_newest" if page.newest else "deliveries_oldest"


def _values(choice: Choice) -> dict[str, object]:
    types, beginnings = by_kind(choice.event_types)
    return {
        "ids": numbers(choice.ids),
        "event_ids": texts([str(event_id) for event_id in choice.event_ids]),
        "states": texts([state.value for state in choice.states]),
        **{state.value: state in choice.states for state in State},
        "types": texts(types),
        "prefixes": texts(beginnings),
        "codes": texts(list(choice.codes)),
        "key": choice.ordering_key,
        "recipient": choice.recipient,
        "error": choice.error,
        "since": choice.since,
        "until": choice.until,
    }
