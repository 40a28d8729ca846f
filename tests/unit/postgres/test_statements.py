"""Arrays are written as Postgres reads them."""

import psycopg
import pytest
from psycopg import postgres
from psycopg.adapt import Transformer

from relay.postgres.statements import Statements, numbers, texts
from relay.postgres.wire import prepared
from tests.support.commands import ROOT

TEXTS = [
    [],
    ["one"],
    ["1", "2", "3"],
    ["a,b", "{c}", "NULL", "", " "],
    ['"', 'say "so"', "\\", 'back\\slash "and quote"', '","'],
    ["'", "é", "\n\t"],
]


@pytest.mark.parametrize("values", TEXTS, ids=repr)
def test_texts_come_back_as_they_were(values: list[str]) -> None:
    """Whatever a broker's ids hold; a reader of arrays takes it apart again."""
    assert _read(texts(values), "text") == values


@pytest.mark.parametrize("values", [[], [1], [3, -2, 2**63 - 1]], ids=repr)
def test_numbers_come_back_as_they_were(values: list[int]) -> None:
    """In their order."""
    assert _read(numbers(values), "int8") == values


def test_statements_of_one_name_are_kept_apart_by_their_package() -> None:
    """The outbox's and the inbox's are said in one process."""
    outbox, inbox = Statements("relay.outbox"), Statements("consumers.inbox")
    assert outbox("enter") == (ROOT / "relay/outbox/sql/enter.sql").read_bytes()
    assert inbox("enter") == (ROOT / "consumers/inbox/sql/enter.sql").read_bytes()
    assert prepared(outbox, "look") != prepared(inbox, "look")


def _read(literal: str, name: str) -> list[object]:
    info = postgres.types[name]
    loaded: list[object] = Transformer().get_loader(info.array_oid, psycopg.pq.Format.TEXT).load(literal.encode())
    return loaded
