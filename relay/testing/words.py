"""What a failed assertion says: what was wanted, what is there, and where the nearest event is another."""

import json
from collections.abc import Sequence
from typing import Any

from relay.testing.emitted import EmittedEvent
from relay.testing.expected import MISSING, Difference, Expected

_EVENTS = 20
_DIFFERENCES = 12
_SHOWN = 120
_EMPTY = "the outbox is empty: a transaction that is not committed is seen with connection= alone"
_EMPTY_WITHIN = "the outbox is empty, as this connection sees it"


def not_found(
    expected: Expected, times: int | None, found: Sequence[EmittedEvent], seen: Sequence[EmittedEvent], *, within: bool
) -> str:
    """That the events of a kind are none, or not as many as they should be.

    `within`: what was seen is what a transaction of the test's sees.
    """
    count = "was not emitted" if times is None else f"was emitted {_times(len(found))}, not {_times(times)}"
    lines = [f"{described(expected)} {count}", "", *(_listed(seen) or [_EMPTY_WITHIN if within else _EMPTY])]
    if not found and (nearest := _nearest(expected, seen)):
        event, differences = nearest
        lines += ["", f"the nearest is {event.sequence}, of which"]
        lines += [f"  {_worded(each)}" for each in differences[:_DIFFERENCES]]
        lines += _more(len(differences) - _DIFFERENCES)
    return "\n".join(lines)


def unwanted(expected: Expected, found: Sequence[EmittedEvent]) -> str:
    """That there are events of a kind of which there should be none."""
    count = f"was emitted {_times(len(found))}, where none was expected"
    return "\n".join([f"{described(expected)} {count}", "", *_listed(found)])


def described(expected: Expected) -> str:
    """The events that are meant."""
    kind = "an event" if expected.event_type is None else expected.event_type
    fields = ", ".join(f"{name}={_shown(value)}" for name, value in expected.fields.items())
    return f"{kind} with {fields}" if fields else kind


def _listed(events: Sequence[EmittedEvent]) -> list[str]:
    if not events:
        return []
    lines = ["emitted:"]
    for event in events[:_EVENTS]:
        key = f" key {event.ordering_key}" if event.ordering_key is not None else ""
        subject = f"{event.aggregate_type} {event.aggregate_id}"
        lines.append(f"  {event.sequence}  {event.event_type}  {subject}{key}  {event.state}  {_shown(event.data)}")
    return lines + _more(len(events) - _EVENTS)


def _nearest(expected: Expected, events: Sequence[EmittedEvent]) -> tuple[EmittedEvent, list[Difference]] | None:
    """The event of the same type, if there is one, that differs in the fewest places; the newest of those."""
    apart = [(event, expected.differences(event)) for event in reversed(events)]
    return min(apart, key=lambda pair: (pair[0].event_type != expected.event_type, len(pair[1])), default=None)


def _worded(difference: Difference) -> str:
    path, found, wanted = difference
    if found is MISSING:
        return f"{path} is missing, not {_shown(wanted)}"
    if wanted is MISSING:
        return f"{path} is {_shown(found)}, which was not expected"
    return f"{path} is {_shown(found)}, not {_shown(wanted)}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # a matcher
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _more(count: int) -> list[str]:
    return [f"  and {count} more"] if count > 0 else []
