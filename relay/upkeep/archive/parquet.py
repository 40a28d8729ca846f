"""Parquet files: what is written of a sealed table, and how it is read again."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
from pyarrow import parquet as pq

from relay.errors import ArchiveError
from relay.kernel.command import release
from relay.upkeep.archive import arrow, months
from relay.upkeep.archive.catalog import Layout
from relay.upkeep.archive.columns import Column, Kind
from relay.upkeep.archive.rows import Group

# What the files say of themselves.
ABOUT: Final = b"outbox_relay"
TYPE: Final = b"postgres_type"

_BATCH_ROWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the rows of a file come from."""

    origin: str
    month: date
    part: int
    number: int
    """Of the file in its part, from 1."""


class Digest:
    """A file, and what has been written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.bytes = 0
        self.closed = False
        self.abandoned = False

    @property
    def sha256(self) -> str:
        """Of all bytes."""
        return self._sha256.hexdigest()

    def write(self, data: Any) -> int:
        """Write and count them."""
        if self.abandoned:
            return len(data)
        self._file.write(data)
        self._sha256.update(data)
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Whoever keeps the file does that."""

    def close(self) -> None:
        """The file is still to be kept."""
        self.closed = True


class Writer:
    """One file."""

    def __init__(self, file: BinaryIO, layout: Layout, provenance: Provenance) -> None:
        self._columns = layout.columns
        self._schema = _schema(layout, provenance)
        self.digest = Digest(file)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self.digest, mode="w"),
            self._schema,
            compression="zstd",
            # Times stay as they are, whatever the default of a release is.
            version="2.6",
            coerce_timestamps=None,
        )

    def write(self, group: Group) -> None:
        """Add rows, as a group of their own."""
        arrays = [arrow.array(column, [row[place] for row in group.rows]) for place, column in enumerate(self._columns)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what stands at the end, unless there will be none."""
        self.digest.abandoned = kind is not None
        self._writer.close()


class Reader:
    """One file, which must be seekable. Raises ArchiveError for what is none of ours."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        try:
            self._file = pq.ParquetFile(file, pre_buffer=False)
            about = json.loads((self._file.schema_arrow.metadata or {})[ABOUT])
            self.columns = [
                Column(each["name"], each["type"], Kind(each["kind"]), each["not_null"]) for each in about["columns"]
            ]
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise ArchiveError(
                f"{name} is no Parquet file that relay archive has written; nothing was changed"
            ) from error

    @property
    def rows(self) -> int:
        """As many as the end of the file says."""
        return int(self._file.metadata.num_rows)

    def records(self) -> Iterator[list[tuple[Any, ...]]]:
        """All rows, some at a time, as COPY takes them."""
        # A batch over several groups could be of any size.
        for number in range(self._file.num_row_groups):
            for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=[number]):
                columns = [
                    arrow.values(column.kind, found) for column, found in zip(self.columns, batch.columns, strict=True)
                ]
                yield list(zip(*columns, strict=True))


def _schema(layout: Layout, provenance: Provenance) -> pa.Schema:
    """Nothing here is of the moment: the same rows make the same file."""
    about = {
        "origin": provenance.origin,
        "month": months.written(provenance.month),
        "part": provenance.part,
        "file": provenance.number,
        "release": release(),
        "key": [column.name for column in layout.key],
        "columns": [
            {"name": column.name, "type": column.type, "kind": column.kind.value, "not_null": column.not_null}
            for column in layout.columns
        ],
    }
    fields = [
        pa.field(
            column.name,
            arrow.TYPES[column.kind],
            nullable=not column.not_null,
            metadata={TYPE: column.type.encode()},
        )
        for column in layout.columns
    ]
    return pa.schema(fields, metadata={ABOUT: json.dumps(about, ensure_ascii=False).encode()})
