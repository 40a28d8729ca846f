"""What `relay archive` says, for people and for scripts."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from relay.kernel.moment import rfc3339
from relay.upkeep.archive import months
from relay.upkeep.archive.archive import Done, Standing
from relay.upkeep.archive.record import Export, State

_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000
_MOMENTS = ("sealed_at", "verified_at", "drop_eligible_at", "dropped_at")


def lines(tables: Sequence[Standing]) -> Iterator[str]:
    """How everything stands."""
    if not tables:
        yield "nothing was archived yet"
    for table in tables:
        yield table.origin
        if not table.exports and not table.waiting:
            yield "  no month has rows"
        for export in table.exports:
            part = f"{months.written(export.month)} part {export.part}"
            rows = f"{export.written:,} row(s){' so far' if export.rows is None else ''}"
            yield f"  {part}  {_state(export):<38}  {rows:>20}  {_size(export.size):>8}  {len(export.files)} file(s)"
        for partition in table.waiting:
            rows = "rows not counted yet" if partition.estimate is None else f"about {partition.estimate:,} row(s)"
            yield f"  {months.written(partition.month)} waits: {rows}"


def document(table: Standing) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "table": table.origin,
        "exports": [_export(export) for export in table.exports],
        "waiting": [
            {"month": months.written(each.month), "partition": each.name, "rows_estimate": each.estimate}
            for each in table.waiting
        ],
    }


def exported(done: Done) -> list[str]:
    """What was written."""
    if not done.files and not done.verified:
        return [f"{done.origin}: nothing {'was exported' if done.faults else 'to export'}"]
    return [
        f"{done.origin}: {done.rows:,} row(s) in {done.files} file(s), {_size(done.bytes)}",
        *(f"  {_part(export)} verified" for export in done.verified),
    ]


def verified(done: Done) -> list[str]:
    """What was read back."""
    if not done.verified and not done.faults:
        return [f"{done.origin}: nothing was exported to its end"]
    whole, all_of_them = len(done.verified), len(done.verified) + len(done.faults)
    return [f"{done.origin}: {whole} of {all_of_them} part(s) read back as written", *_parts(done.verified)]


def dropped(done: Done) -> list[str]:
    """What is gone from the database."""
    count = f"{len(done.dropped)} part(s)" if done.dropped else "nothing was"
    return [f"{done.origin}: {count} dropped", *_parts(done.dropped), *map(_kept, done.kept)]


def _parts(exports: Sequence[Export]) -> list[str]:
    return [f"  {_part(export)}" for export in exports]


def _part(export: Export) -> str:
    return f"{months.written(export.month)} part {export.part}: {export.written:,} row(s), {len(export.files)} file(s)"


def _kept(export: Export) -> str:
    part = f"  {months.written(export.month)} part {export.part}"
    match export.state:
        case State.SEALED:
            return f"{part} stays: not all of its files were written and read back; run: python -m relay archive export"
        case State.VERIFIED:
            return f"{part} stays until {_day(export.drop_eligible_at)}, unless --now says otherwise"
        case State.DROPPED:
            return f"{part} was dropped on {_day(export.dropped_at)}"


def _state(export: Export) -> str:
    match export.state:
        case State.SEALED:
            return "sealed, not verified" if export.rows is not None else "sealed, not all of it in files"
        case State.VERIFIED:
            since = "since" if export.eligible else "from"
            return f"verified, may be dropped {since} {_day(export.drop_eligible_at)}"
        case State.DROPPED:
            return f"dropped {_day(export.dropped_at)}"


def _export(export: Export) -> dict[str, Any]:
    return {
        "month": months.written(export.month),
        "part": export.part,
        "sealed": export.sealed,
        "state": export.state.value,
        "rows": export.rows,
        "bytes": export.size,
        "files": [
            {"name": file.name, "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256} for file in export.files
        ],
        **{name: at and rfc3339(at) for name in _MOMENTS for at in [getattr(export, name)]},
        "eligible": bool(export.eligible),
        "dropped_by": export.dropped_by,
        "dropped_why": export.dropped_why,
    }


def _day(moment: datetime | None) -> str:
    return moment.date().isoformat() if moment else "?"


def _size(count: float) -> str:
    units = iter(_UNITS)
    unit = next(units)
    while count >= _STEP and (larger := next(units, None)):
        count, unit = count / _STEP, larger
    return f"{count:.0f} {unit}" if unit == _UNITS[0] else f"{count:.1f} {unit}"
