"""What a comparison found, as lines for a terminal: names of fields and ids of rows, no values."""

import time
from collections.abc import Iterator

from relay.adopt.comparison import Comparison, Found

_MOST_REASONS = 20


def lines(comparison: Comparison) -> Iterator[str]:
    """The comparison, the verdict last."""
    state = "taken over: each new row is an event" if comparison.taken_over else "not taken over"
    seen = comparison.pending + comparison.sent
    yield f"table     {comparison.table}, {state}"
    yield f"seen      {seen:,}: {comparison.pending:,} pending{_age(comparison)}, {comparison.sent:,} sent"
    yield f"take      {comparison.taken:,} would be taken, {comparison.known:,} are in the outbox already and the same"
    yield from _in_the_way(comparison)
    yield from _notes(comparison)
    yield f"verdict   {_verdict(comparison)}"


def _in_the_way(comparison: Comparison) -> Iterator[str]:
    refused = sorted(comparison.refused.items(), key=lambda item: -item[1].rows)
    for reason, found in refused[:_MOST_REASONS]:
        yield f"refused   {found.rows:,}: {reason}; {_ids(found)}"
    if len(refused) > _MOST_REASONS:
        yield f"refused   {sum(found.rows for _, found in refused[_MOST_REASONS:]):,} for other reasons"
    for name, found in comparison.different.items():
        yield f"different {found.rows:,} in {name}; {_ids(found)}"
    if (repeated := comparison.repeated).rows:
        yield f"refused   {repeated.rows:,}: the event_id is that of an earlier row; {_ids(repeated)}"
    if comparison.mark_fails:
        yield f"refused   {comparison.mark_fails}"


def _notes(comparison: Comparison) -> Iterator[str]:
    if (merged := comparison.merged).rows:
        yield f"note      {merged.rows:,} become no event: an earlier row has their dedup_key; {_ids(merged)}"
    if (late := comparison.disordered).rows:
        yield (
            f"note      {late.rows:,} occurred before the row before them of their key, and go behind it: order is by "
            f"the id; {_ids(late)}"
        )
    if comparison.taken_over and comparison.pending:
        yield "note      rows that wait were set back, kept, or inserted past the trigger; --take-over moves them"
    for warning in comparison.warnings:
        yield f"note      {warning}"


def _verdict(comparison: Comparison) -> str:
    if comparison.clean:
        return "a take-over would take every row"
    if waiting := comparison.wrong.rows - comparison.wrong_sent:
        return f"{waiting:,} row(s) would be in the way of a take-over"
    if comparison.mark_fails:
        return "a take-over would fail at its mark"
    return (
        f"a take-over would take every row that waits; {comparison.wrong_sent:,} that were sent are not as they should "
        "be, and rows to come may be like them"
    )


def _age(comparison: Comparison) -> str:
    if comparison.oldest is None:
        return ""
    return f" (the oldest occurred {max(0.0, time.time() - comparison.oldest):,.0f} s ago)"


def _ids(found: Found) -> str:
    return f"first {', '.join(found.first)}" if found.rows > 1 else f"row {found.first[0]}"
