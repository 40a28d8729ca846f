"""What can be wrong with a table's description is told where it is written."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.errors import ConfigurationError
from relay.operate.retention import published_events
from relay.upkeep.table import Child, Table
from relay.upkeep.table_name import TableName

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15).filter(str.strip)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": ""}, "table '' is no name of a table; write it like sources, shop.sources"),
        ({"name": "a.b.c"}, "is no name of a table"),
        ({"name": 7}, "table 7 is no name of a table"),
        ({"name": "x" * 64}, "of up to 63 bytes each"),
        ({"age": ""}, "'' is no name of a column"),
        ({"age": None}, "None is no name of a column"),
        ({"older_than": "30"}, "'30' has no unit"),
        ({"older_than": -1}, "-1 is negative"),
        ({"to": "attic"}, "to is 'attic'; write nowhere or archive"),
        ({"where": " "}, "where is ' '; write a condition in SQL, or leave it out"),
        ({"key": "id"}, r"key is 'id'; write the names of its columns as a tuple, like key=\('id',\)"),
        ({"key": ("id", 3)}, "3 is no name of a column"),
        ({"batch": 0}, "batch is 0; give 1 to 10,000 rows"),
        ({"batch": 10_001}, "batch is 10001"),
        ({"batch": True}, "batch is True"),
        ({"rate": 0}, "rate is 0; give a number of rows a second above zero"),
        ({"rate": math.nan}, "rate is nan"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"children": (Child("lines", "", "at"),)}, "'' is no name of a column"),
        ({"children": (Child("a.b.c", "source_id", "at"),)}, "'a.b.c' is no name of a table"),
        ({"children": (Child("lines", "source_id", "at"),), "key": ("a", "b")}, "and its key has several"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_in_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    """With the value, and what to write."""
    with pytest.raises(ConfigurationError, match=sentence):
        Table(**{"name": "sources", "age": "seen_at", "older_than": "30d", **wrong})


def test_what_is_left_out_has_a_default() -> None:
    """Rows go into the archive, along the primary key."""
    table = Table(name="sources", age="seen_at", older_than=timedelta(days=30))
    assert (table.place, table.to, table.key, table.batch) == (TableName("public", "sources"), "archive", (), 500)


@example('"', "0")
@example('"shop"', "orders")
@given(NAMES, NAMES)
def test_a_name_is_read_as_it_was_written(schema: str, name: str) -> None:
    """Whatever is in it."""
    known = TableName(schema, name)
    assert TableName.of(str(known)) == known
    assert TableName.of(f'"{name.replace(chr(34), chr(34) * 2)}"', schema) == known


def test_an_outbox_may_be_in_any_schema() -> None:
    """RELAY_SCHEMA is a name, and not a path."""
    assert published_events('my."shop"', timedelta(days=30), "nowhere").place == TableName('my."shop"', "outbox_events")
