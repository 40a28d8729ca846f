"""What tables of a month are called, and its files."""

import hashlib
from datetime import date
from typing import Final
from urllib.parse import quote

from relay.upkeep.archive import months
from relay.upkeep.table_name import MOST_BYTES

# Enough of a digest for two files of one place in it never to meet.
_TELLING: Final = 12


def of_part(table: str, month: date, part: int) -> str:
    """The table that is sealed."""
    return _ending(table, f"_{months.in_names(month)}_p{part}")


def of_restored(table: str, month: date) -> str:
    """The table that its rows come back to."""
    return _ending(table, f"_{months.in_names(month)}_restored")


def folder_of(table: str) -> str:
    """Its name as one part of a path, on any file system, and in a URL."""
    encoded = quote(table, safe="")
    return encoded.replace(".", "%2E", 1) if encoded.startswith(".") else encoded


def of_file(table: str, month: date, part: int, number: int, sha256: str) -> str:
    """By its contents: what is written again has the name that it had, and nothing else has it."""
    folder = folder_of(table)
    return f"{folder}/{folder}_{months.in_names(month)}_p{part}_{number:04}_{sha256[:_TELLING]}.parquet"


def _ending(table: str, end: str) -> str:
    """The table's name, or as much of it as fits and what tells it from others that begin like it."""
    room = MOST_BYTES - len(end.encode())
    if len(table.encode()) <= room:
        return table + end
    told = f"_{hashlib.sha256(table.encode()).hexdigest()[:8]}{end}"
    return table.encode()[: MOST_BYTES - len(told)].decode(errors="ignore") + told
