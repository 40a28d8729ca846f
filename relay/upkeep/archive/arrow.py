"""Values as Arrow has them, exact to the bit: from Postgres' own form, and back to what COPY takes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import ArchiveError
from relay.upkeep.archive.columns import Column, Kind
from relay.upkeep.archive.moments import DAYS, MICROSECONDS, Unit

TYPES: Mapping[Kind, pa.DataType] = MappingProxyType(
    {
        Kind.BOOLEAN: pa.bool_(),
        Kind.INT2: pa.int16(),
        Kind.INT4: pa.int32(),
        Kind.INT8: pa.int64(),
        Kind.FLOAT4: pa.float32(),
        Kind.FLOAT8: pa.float64(),
        Kind.BYTES: pa.binary(),
        Kind.TEXT: pa.string(),
        Kind.VARCHAR: pa.string(),
        Kind.DATE: pa.date32(),
        Kind.TIMESTAMP: pa.timestamp("us"),
        Kind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
        Kind.WRITTEN: pa.string(),
    }
)


def array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Values as they came from Postgres. Raises ArchiveError for a time that no file can hold."""
    match column.kind:
        case Kind.DATE:
            return _since_1970(column, pa.array(values, pa.int32()), DAYS)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return _since_1970(column, pa.array(values, pa.int64()), MICROSECONDS)
        case Kind.TEXT | Kind.VARCHAR | Kind.WRITTEN:
            return pa.array(values, pa.binary()).cast(pa.string())
        case _:
            return pa.array(values, TYPES[column.kind])


def values(kind: Kind, found: pa.Array) -> list[Any]:
    """What COPY is given for each."""
    match kind:
        case Kind.DATE:
            found = found.cast(pa.int32())
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            found = found.cast(pa.int64())
        case _:
            return list(found.to_pylist())
    text = kind.text
    return [None if value is None else text(value) for value in found.to_pylist()]


def _since_1970(column: Column, counted: pa.Array, unit: Unit) -> pa.Array:
    """Counted from 1970 in place of 2000; what is infinite stays the largest and the least number."""
    whole = counted.type
    most, least, nothing = (pa.scalar(number, whole) for number in (unit.most, unit.least, 0))
    infinite = pc.or_(pc.equal(counted, most), pc.equal(counted, least))
    try:
        shifted = pc.add_checked(pc.if_else(infinite, nothing, counted), pa.scalar(unit.to_1970, whole))
    except pa.ArrowInvalid:
        raise ArchiveError(
            f"column {column.name!r} has a time after the year 294246, which is more microseconds since 1970 than a "
            "file can hold; drop the constraint sealed of the sealed table, correct it there, and call again"
        ) from None
    return pc.if_else(infinite, counted, shifted).view(TYPES[column.kind])
