"""What `consumers deliveries` and `consumers failed` say, without saying it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consumers.cli.columns import aligned
from consumers.inbox.operate.choice import State
from consumers.inbox.operate.rows import CHANGED, GONE, HELD, Action, Entry, Group, Listed, Tally
from relay.kernel.line_redaction import Redaction
from relay.kernel.moment import rfc3339_of
from relay.kernel.redaction import storable

_MOST_ERROR = 60
_COLUMNS = ("ID", "EVENT_ID", "CONSUMER", "EVENT_TYPE", "STATE", "AGE", "ATTEMPTS", "DUE", "CODE", "ERROR")
_TIMES = ("_at", "_until")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_DONE = {Action.RETRY: "retried", Action.DISCARD: "discarded"}
# Why a delivery is left alone, and what to do about it.
_LEFT = {
    State.PENDING.value: "pending already",
    State.PROCESSING.value: "being processed now: wait for the end, or for the end of the lease where its owner died",
    State.SENT.value: "sent, and not yet confirmed: retry sends it again",
    State.DONE.value: "done: only retry takes it, with --done",
    State.DISCARDED.value: "discarded already",
    HELD: "held by another transaction: run the command again",
    CHANGED: "changed meanwhile: look at it again",
    GONE: "deleted meanwhile",
}


def redacted(row: Listed, redaction: Redaction) -> Listed:
    """What may be shown of it."""
    return Listed(**redaction.fields("delivery", row._asdict()))


def table(rows: Sequence[Listed]) -> Iterator[str]:
    """A line for each, under a line with what is in it; nothing where there is none."""
    return aligned([_COLUMNS, *map(_cells, rows)])


def listed_as_json(row: Listed) -> dict[str, Any]:
    """The same for a script."""
    return with_times(row._asdict())


def counted(groups: Mapping[Group, int], by: Sequence[str]) -> list[dict[str, Any]]:
    """The counts by these fields, in their order."""
    together: Counter[tuple[str, ...]] = Counter()
    for group, count in groups.items():
        together[tuple(str(getattr(group, name)) for name in by)] += count
    return [{**dict(zip(by, key, strict=True)), "count": count} for key, count in sorted(together.items())]


def count_table(counts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The counts for people."""
    if not counts:
        return
    heads = tuple(name.upper() for name in counts[0])
    rows = [tuple(f"{value:,}" if name == "count" else value for name, value in each.items()) for each in counts]
    yield from aligned([heads, *(_shown_cells(row) for row in rows)])


def count_redacted(counts: Sequence[Mapping[str, Any]], redaction: Redaction) -> list[dict[str, Any]]:
    """What may be shown of them: a code may be anybody's text."""
    return [redaction.fields("delivery", each) for each in counts]


def known_redacted(known: Mapping[str, Any], history: Sequence[Entry], redaction: Redaction) -> dict[str, Any]:
    """What may be shown of a delivery: its texts, its JSON as text, and each entry of its history."""
    shown = with_times(redaction.fields("delivery", known))
    return {**shown, "history": [_entry_redacted(entry, redaction) for entry in history]}


def known_as_json(known: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a script; what was asked for alone is left out where it was not."""
    read = {name: _read(value) if name in _JSON else value for name, value in known.items()}
    if read["envelope"] is None:
        del read["envelope"]
    return read


def known_lines(known: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    for name, value in known.items():
        if name == "envelope" and value is None:
            continue
        if name == "history":
            for entry in value:
                yield f"{'history':16} {_entry(entry)}"
        else:
            yield f"{name:16} {_value(name, value)}"


def acted(action: Action, tally: Tally, *, dry_run: bool) -> Iterator[str]:
    """What became of the deliveries, in numbers."""
    yield f"{many(tally.acted)} {'would be ' if dry_run else ''}{_DONE[action]}"
    if action is Action.RETRY:
        if sent := tally.were[State.SENT.value]:
            yield f"{sent:,} of them had been sent and not confirmed: their handlers send again"
        if done := tally.were[State.DONE.value]:
            yield f"{done:,} of them had been done: what their handlers did is done once more"
        if discarded := tally.were[State.DISCARDED.value]:
            yield f"{discarded:,} of them had been discarded, and may fail again unless what they failed of is gone"
        if tally.keyed:
            yield (
                f"{tally.keyed:,} of them have an ordering key that went on without them: they are out of its order "
                "where later events of the key were handled"
            )
    for why, left in tally.left.items():
        ids = ", ".join(map(str, left.ids))
        more = f" and {left.count - len(left.ids):,} more" if left.count > len(left.ids) else ""
        yield f"{left.count:,} left alone ({ids}{more}): {_LEFT.get(why, why)}"


def acted_as_json(action: Action, tally: Tally, *, dry_run: bool) -> dict[str, Any]:
    """The same for a script."""
    return {
        "action": action.value,
        "dry_run": dry_run,
        "acted": tally.acted,
        "were": dict(tally.were),
        "keyed": tally.keyed,
        "left": {why: {"count": left.count, "ids": left.ids} for why, left in tally.left.items()},
    }


def with_times(known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with times as RFC 3339."""
    return {
        name: rfc3339_of(value) if name.endswith(_TIMES) and isinstance(value, str) else value
        for name, value in known.items()
    }


def age(seconds: float) -> str:
    """In its two largest units."""
    whole = max(0, round(seconds))
    parts = []
    for unit, size in _UNITS:
        count, whole = divmod(whole, size)
        parts.append(f"{count}{unit}" if count else "")
    first = next((place for place, part in enumerate(parts) if part), len(parts) - 1)
    return "".join(parts[first : first + 2]) or "0s"


def many(count: int) -> str:
    """So many deliveries."""
    return f"{count:,} {'delivery' if count == 1 else 'deliveries'}"


_JSON = frozenset({"result", "attributes", "envelope"})


def _cells(row: Listed) -> tuple[str, ...]:
    error = (row.error or "").strip()
    due = "" if row.due_in_seconds is None else "now" if row.due_in_seconds <= 0 else f"in {age(row.due_in_seconds)}"
    cells = (
        *(str(row.id), row.event_id, row.consumer, row.event_type, row.state, age(row.age_seconds), str(row.attempts)),
        *(due, row.code or "", error if len(error) <= _MOST_ERROR else f"{error[:_MOST_ERROR]}…"),
    )
    return _shown_cells(cells)


def _shown_cells(cells: Sequence[str]) -> tuple[str, ...]:
    # A handler or a producer has chosen them: what a terminal would obey is not shown.
    return tuple(storable(cell) or "-" for cell in cells)


def _entry_redacted(entry: Entry, redaction: Redaction) -> dict[str, Any]:
    # The hook knows texts, so what is built of others is shown to it as one.
    texts = {name: json.dumps(value) if _is_built(value) else value for name, value in entry.detail.items()}
    left = redaction.fields("delivery_history", {"what": entry.what, **texts})
    detail = {name: _read(left[name]) if _is_built(value) else left[name] for name, value in entry.detail.items()}
    return {"at": rfc3339_of(entry.at), "what": left["what"], "detail": detail}


def _is_built(value: Any) -> bool:
    return isinstance(value, dict | list)


def _entry(entry: Mapping[str, Any]) -> str:
    told = "  ".join(f"{name}={_scalar(value)}" for name, value in entry["detail"].items())
    return f"{entry['at']}  {storable(entry['what']):16} {told}".rstrip()


def _scalar(value: Any) -> str:
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _value(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "envelope":
        return _pretty(str(value))
    return storable(str(value)) or "-"


def _pretty(text: str) -> str:
    read = _read(text)
    if isinstance(read, str):
        return storable(read)
    lines = json.dumps(read, indent=2, ensure_ascii=False).splitlines()
    return "\n".join(f"{' ' * (len(line) - len(line.lstrip(' ')))}{storable(line)}" for line in lines)


def _read(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text  # what the hook made of it
