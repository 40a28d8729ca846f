"""The words of a mapping, as far as they can be read without a database."""

from typing import Any

import pytest

from relay.adopt.mapping import Delete, Mapping, Update, column, mapping
from relay.adopt.mapping_file import mapping_of
from relay.adopt.trigger import function_name
from relay.errors import ConfigurationError

MAPS = ("event_type=kind", "aggregate_type='order'", "aggregate_id=order_id", "data=payload")


def read(**changes: Any) -> Mapping:
    """A mapping that is right but for what the test changes."""
    words: dict[str, Any] = {
        "table": "shop.events",
        "ids": ["id"],
        "pending": "sent_at is null",
        "marks": ["sent_at=now()"],
        "maps": MAPS,
        **changes,
    }
    return mapping(**words)


def test_an_expression_is_all_behind_the_first_equals_sign() -> None:
    """It may have others, and blanks around it mean nothing."""
    known = read(maps=[*MAPS, " dedup_key = case when kind = 'a=b' then uuid::text end "])
    assert known.fields["dedup_key"] == "case when kind = 'a=b' then uuid::text end"
    assert known.fields["aggregate_type"] == "'order'"


def test_a_row_is_marked_by_several_columns_or_deleted() -> None:
    """Each column once; the word delete stands alone."""
    assert read(marks=["sent_at = now()", "\"State\"='sent'"]).mark == Update({"sent_at": "now()", "State": "'sent'"})
    assert read(marks=["Delete"]).mark == Delete()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"maps": [*MAPS, "payload=payload"]}, "unknown field 'payload'"),
        ({"maps": MAPS[:2]}, "missing for aggregate_id, data"),
        ({"maps": [*MAPS, "data=other"]}, "'data' twice"),
        ({"maps": [*MAPS, "event_id"]}, "no name, no = or nothing behind it"),
        ({"maps": [*MAPS, "event_id="]}, "no name, no = or nothing behind it"),
        ({"maps": [*MAPS, "=uuid"]}, "no name, no = or nothing behind it"),
        ({"maps": [*MAPS, "available_at=at", "ordering_key=key"]}, "exclude each other"),
        ({"marks": ["delete", "sent_at=now()"]}, "no name, no = or nothing behind it"),
        ({"marks": ["sent_at=now()", "sent_at=null"]}, "'sent_at' twice"),
        ({"pending": "  "}, "--pending is empty"),
        ({"ids": ["id", '"id"']}, "each column once"),
    ],
)
def test_what_can_mean_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    """Before the database is asked."""
    with pytest.raises(ConfigurationError, match=words):
        read(**changes)


def test_a_column_in_quotes_is_taken_literally() -> None:
    """As in SQL, where a doubled quote stands for one."""
    assert [column(text) for text in (' "Sent At" ', '"a""b"', "sent_at", '"')] == ["Sent At", 'a"b', "sent_at", '"']


def test_functions_of_long_names_are_told_apart() -> None:
    """Postgres would cut both to the same 63 bytes, in the middle of a character."""
    names = {function_name("ünternehmen" * 4, "ereignisse" * 3 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(f"{name}_row".encode()) <= 63 for name in names)
    assert function_name("shop", "events") == "outbox_adopt_shop_events"


TOML = """
table = "shop.events"
id = "id"
pending = "sent_at is null"
mark = { sent_at = "now()" }
[map]
event_type = "kind"
aggregate_type = "'order'"
aggregate_id = "order_id"
data = "payload"
"""


def test_a_file_says_what_the_options_say() -> None:
    """One id or several, a mark of columns or the word delete."""
    assert mapping_of(TOML, "events.toml") == read()
    several = mapping_of(TOML.replace('id = "id"', 'id = ["at", "id"]', 1), "events.toml")
    assert several == read(ids=["at", "id"])
    assert mapping_of(TOML.replace('{ sent_at = "now()" }', '"delete"'), "events.toml").mark == Delete()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"shop.events"', "", "events.toml is not TOML"),
        ("table =", "tables =", "has the unknown key 'tables'"),
        ('id = "id"\n', "", "lacks id; its keys are table, id, pending, mark, map"),
        ('"shop.events"', "7", "table is no text"),
        ('"kind"', "7", "map.event_type is no text"),
        ('id = "id"', "id = [7]", "id is no text"),
        ('{ sent_at = "now()" }', "7", 'mark is no table of names and expressions, or "delete"'),
        ('{ sent_at = "now()" }', "{}", "mark is no table"),
        ("event_type =", '"event=type" =', "none has an = in it"),
        ("event_type =", "kind =", "unknown field 'kind'"),
    ],
)
def test_a_file_that_says_something_else_is_refused(before: str, after: str, words: str) -> None:
    """With its name, and what is expected."""
    with pytest.raises(ConfigurationError, match=words):
        mapping_of(TOML.replace(before, after, 1), "events.toml")
