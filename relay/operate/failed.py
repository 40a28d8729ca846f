"""`relay failed`: act on the rows that were chosen, batch after batch, and say what became of each."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from relay.errors import ConfigurationError, OperateError
from relay.kernel.moment import rfc3339_of
from relay.outbox.actions import Operator
from relay.outbox.failed import DISCARDED, START, Action, Cursor, FailedRows, Filter, Named, Row

BATCH = 500
NON_RETRYABLE = "non_retryable"
_CURSOR = re.compile(r"(?P<failed_at>[0-9T:.+\- ]{10,40}Z?|-?infinity)/(?P<id>[0-9]{1,19})")
_TIMES = ("_at", "_until")
_LARGEST_ID = 2**63 - 1
_FARTHEST_ZONE = timedelta(hours=15, minutes=59)  # that Postgres knows

Progress = Callable[[str, int], None]


@dataclass(slots=True)
class Done:
    """What became of the rows that were chosen."""

    chosen: int = 0  # of a dry run: those that would be acted on
    acted: int = 0
    skipped: int = 0  # not failed, discarded already, or no longer as they were chosen
    ordered: int = 0  # of those acted on, or of a dry run chosen: those with an ordering key
    blocking: int = 0  # of the ordered: those that held up their key
    non_retryable: int = 0  # of those acted on
    discarded: int = 0  # of those acted on: given up before, whatever they had failed of

    def count(self, rows: Sequence[Row]) -> None:
        """Tell the rows that are acted on apart."""
        self.ordered += sum(row.ordering_key is not None for row in rows)
        self.blocking += sum(row.blocks_key for row in rows)
        self.non_retryable += sum(row.failure_reason == NON_RETRYABLE for row in rows)
        self.discarded += sum(row.failure_reason == DISCARDED for row in rows)


def names_of(words: Sequence[str]) -> Named:
    """Read ids and event_ids, as they are given to a command."""
    ids, event_ids = [], []
    for word in words:
        if word.isascii() and word.isdecimal() and int(word) <= _LARGEST_ID:
            ids.append(int(word))
            continue
        try:
            event_ids.append(UUID(word))
        except ValueError:
            raise ConfigurationError(f"{word!r} is neither the id of a row nor an event_id") from None
    return Named(ids, event_ids)


def cursor_read(text: str) -> Cursor:
    """Read where a page ended, as the page before wrote it."""
    match = _CURSOR.fullmatch(text)
    if not match or int(match["id"]) > _LARGEST_ID or not _is_a_moment(match["failed_at"]):
        raise ConfigurationError(f"--after is {text!r}; copy it from the end of the page before")
    return Cursor(match["failed_at"], int(match["id"]))


def _is_a_moment(text: str) -> bool:
    """Whether the database can read it."""
    if text.endswith("infinity"):
        return True
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        return False
    return offset is None or abs(offset) <= _FARTHEST_ZONE


def cursor_written(row: Row) -> str:
    """Where the page ends that ends with this row."""
    return f"{rfc3339_of(row.failed_at or '').replace(' ', 'T')}/{row.id}"


async def act(
    rows: FailedRows,
    action: Action,
    wanted: Filter | Named,
    operator: Operator,
    progress: Progress = lambda *_: None,
) -> Done:
    """Retry or discard what is wanted and had failed by now; rows that fail again meanwhile are left alone."""
    now, action_id, _ = await rows.start()
    done = Done()
    try:
        async for batch in _batches(rows, _until(wanted, now)):
            acted = await rows.act(action, batch, operator, action_id)
            done.chosen += len(batch)
            done.acted += len(acted)
            done.skipped += len(batch) - len(acted)
            done.count(acted)
            progress("rows done", done.acted)
    except OperateError as error:
        raise OperateError(f"{done.acted:,} row(s) are done and recorded; {error}") from error
    return done


async def choose(
    rows: FailedRows, action: Action, wanted: Filter | Named, progress: Progress = lambda *_: None
) -> Done:
    """Count what `act` would be done to as the rows are now, and change nothing."""
    now, _, _ = await rows.start()
    done = Done()
    async for batch in _batches(rows, _until(wanted, now)):
        fit = [row for row in batch if action.fits(row)]
        done.chosen += len(fit)
        done.skipped += len(batch) - len(fit)
        done.count(fit)
        progress("rows chosen", done.chosen)
    return done


async def named(rows: FailedRows, names: Named) -> list[Row]:
    """The rows of these names. Raises OperateError for a name that no row has."""
    found = await rows.named(names)
    ids, event_ids = {row.id for row in found}, {row.event_id for row in found}
    missing = [str(name) for name in (*names.ids, *names.event_ids) if name not in ids and str(name) not in event_ids]
    if missing:
        raise OperateError(f"the outbox has no row {', '.join(missing[:5])}; it was deleted, or never there")
    return found


async def shown(rows: FailedRows, row: Row) -> dict[str, Any]:
    """All that is known of a row: the one place that shows its payload."""
    details, history = await rows.shown(row.id)
    return {**with_times({**row._asdict(), **details}), "history": [with_times(entry) for entry in history]}


def with_times(known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row or an entry, its times as RFC 3339."""
    return {name: rfc3339_of(value) if name.endswith(_TIMES) and value else value for name, value in known.items()}


def _until(wanted: Filter | Named, now: Any) -> Filter | Named:
    if isinstance(wanted, Named):
        return wanted
    return replace(wanted, until=now if wanted.until is None else min(wanted.until, now))


async def _batches(rows: FailedRows, wanted: Filter | Named) -> AsyncIterator[list[Row]]:
    if isinstance(wanted, Named):
        found = await named(rows, wanted)
        for first in range(0, len(found), BATCH):
            yield found[first : first + BATCH]
        return
    after = START
    while page := await rows.page(wanted, BATCH, after):
        after = Cursor(page[-1].failed_at or "", page[-1].id)
        yield page
