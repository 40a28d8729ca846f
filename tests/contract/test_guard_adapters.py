"""One contract for `ctx.guard` through every kind of connection that a handler may have."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql

from consumers.errors import UsageError
from consumers.guard import Lock, SourceRow, guard
from consumers.outdated import OutdatedError
from relay.dev.stack import Stack
from relay.errors import AutocommitError
from relay.testing.databases import fresh_database
from tests.support.emitters import EACH_LIBRARY, EMITTERS, AlchemyRunSync, Awaited, Emitter

# What each way of writing a parameter would trip over, as a value and in the names of a table and a column.
NASTY = "100 % of %s and %(a)s, :name, $1, {}, \\ and \\\\u0041 '' \" ? grüße 😀"
TABLE = "st%s :ck $1 \"Ü'"
MOMENT = "2026-01-02T03:04:05.678901+00:00"


@pytest.fixture(scope="module")
def database(stack: Stack, outbox_template: str) -> Iterator[str]:
    """One database for all; nobody commits to it."""
    with fresh_database(stack.database_url, outbox_template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(
                "create schema shop;"
                "create table shop.stock (sku text primary key, qty integer, price numeric(14, 2), at timestamptz,"
                " tags text[], about json, note text, weight float8);"
                "create table pairs (a integer, b text, qty integer, primary key (a, b));"
                "insert into pairs values (1, 'x', 5), (1, 'y', 6)"
            )
            connection.execute(
                'insert into shop.stock values (%s, 7, 12345678901.50, %s, \'{a,"b,c"}\', \'{"b": 1, "a": null}\','
                " null, 0.1)",
                [NASTY, MOMENT],
            )
            name = sql.Identifier(TABLE)
            connection.execute(
                sql.SQL("create table {} (id bigint primary key, {} integer); insert into {} values (9, 4)").format(
                    name, sql.Identifier("q%ty :x"), name
                )
            )
        yield url


@pytest.fixture(params=EACH_LIBRARY)
def service(request: pytest.FixtureRequest, database: str) -> Iterator[Emitter]:
    """A handler's connection."""
    opened = EMITTERS[request.param](database)
    yield opened
    opened.close()


async def _awaited(row: SourceRow) -> SourceRow:
    return await row


def ask(service: Emitter, table: str, key: Mapping[str, Any], **said: Any) -> SourceRow:
    """Guard, in the way of the library."""
    said = {"watched": {}, **said}
    match service:
        case AlchemyRunSync():
            answer: SourceRow = service._run(
                service.connection.run_sync(lambda given: guard(given, table, key, **said))
            )
            return answer
        case Awaited():
            awaited: SourceRow = service._run(_awaited(guard(service.connection, table, key, **said)))
            return awaited
        case _:
            return guard(service.connection, table, key, **said)


def test_the_row_is_answered_as_the_event_would_have_it(service: Emitter) -> None:
    """The key, the columns and what is watched; values as in JSON."""
    row = ask(service, "shop.stock", {"sku": NASTY}, columns=["price", "tags", "note"], watched={"qty": 7})
    assert row == {"sku": NASTY, "price": 12345678901.5, "tags": ["a", "b,c"], "note": None, "qty": 7}


def test_values_are_compared_as_their_columns_have_them(service: Emitter) -> None:
    """A moment in whatever zone, a number in however many digits, JSON in whatever order, a text for a number."""
    service.execute("set local timezone = 'Asia/Tokyo'")
    watched = {
        "qty": "7",
        "price": "12345678901.5",
        "at": MOMENT.replace("03:", "01:").replace("+00", "-02"),
        "tags": ["a", "b,c"],
        "about": {"a": None, "b": 1},
        "note": None,
        "weight": 0.1,
    }
    row = ask(service, "shop.stock", {"sku": NASTY}, watched=watched)
    assert row["qty"] == 7


@pytest.mark.parametrize(
    "watched",
    [
        {"qty": 8},
        {"note": ""},
        {"about": {"b": 2}},
        {"price": 12345678901.51},
        {"at": MOMENT.replace("678901", "6789")},
    ],
    ids=lambda watched: next(iter(watched)),
)
def test_another_value_is_told_by_its_column(service: Emitter, watched: dict[str, Any]) -> None:
    """And by no value: it may be somebody's data."""
    with pytest.raises(OutdatedError) as raised:
        ask(service, "shop.stock", {"sku": NASTY}, watched={"weight": 0.1, **watched})
    assert (raised.value.code, str(raised.value)) == (
        "changed",
        f"changed: {next(iter(watched))} of the row of shop.stock",
    )


def test_names_are_quoted_for_every_library(service: Emitter) -> None:
    """Whatever a driver takes for a parameter."""
    assert ask(service, TABLE, {"id": "9"}, watched={"q%ty :x": 4}, lock="share") == {"id": 9, "q%ty :x": 4}


def test_a_row_that_is_no_more_and_one_that_is_not_so(service: Emitter) -> None:
    """Told apart."""
    with pytest.raises(OutdatedError, match=r"^gone: shop\.stock has no such row any more$"):
        ask(service, "shop.stock", {"sku": "other"}, watched={"qty": 7})
    with pytest.raises(OutdatedError, match=r"^condition: "):
        ask(service, "shop.stock", {"sku": NASTY}, still=lambda row: row["qty"] < 5, columns=["qty"])


def test_a_key_of_several_columns_is_given_whole(service: Emitter) -> None:
    """Half of it is no key."""
    assert ask(service, "pairs", {"a": 1, "b": "y"}, columns=["qty"])["qty"] == 6
    with pytest.raises(UsageError, match=r"several rows of pairs have this a; give a unique key"):
        ask(service, "pairs", {"a": 1})


@pytest.mark.parametrize(("lock", "waits"), [(None, False), ("share", True), ("update", True)])
def test_a_lock_holds_to_the_end_of_the_transaction(
    service: Emitter, database: str, lock: Lock | None, *, waits: bool
) -> None:
    """Nobody changes the row meanwhile; rows that refer to it can be inserted."""
    ask(service, "shop.stock", {"sku": NASTY}, lock=lock)
    with psycopg.connect(database) as other:
        other.execute("set lock_timeout = '20ms'")
        other.execute("select from shop.stock for key share")
        if waits:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("update shop.stock set qty = 8")
        else:
            other.execute("update shop.stock set qty = 8")
        other.rollback()


def test_a_lock_without_a_transaction_is_refused(database: str) -> None:
    """It would be over as the statement is."""
    with (
        psycopg.connect(database, autocommit=True) as connection,
        pytest.raises(AutocommitError, match="hold for"),
    ):
        guard(connection, "shop.stock", {"sku": NASTY}, watched={}, lock="share")


@pytest.mark.parametrize(
    ("key", "said", "words"),
    [
        ({}, {}, "the key names no row"),
        ({"sku": None}, {}, "the key names no row"),
        ({"sku": object()}, {}, "is no JSON"),
        ({"sku": "a"}, {"columns": "qty"}, "give a list of names"),
        ({"sku": "a"}, {"columns": [""]}, "are texts, and not empty"),
        ({"sku": "a"}, {"lock": "exclusive"}, "write 'share', 'update', or nothing"),
        ({"sku": NASTY}, {"still": lambda _: None}, "still answered with NoneType, not True or False"),
    ],
)
def test_what_cannot_be_meant_is_said(database: str, key: dict[str, Any], said: dict[str, Any], words: str) -> None:
    """Before anything is skipped for it."""
    with psycopg.connect(database) as connection, pytest.raises(UsageError, match=words):
        guard(connection, "shop.stock", key, **{"watched": {}, **said})


def test_what_is_no_connection_is_refused(database: str) -> None:
    """With what to pass in its place."""
    with psycopg.connect(database) as connection, pytest.raises(TypeError, match=r"ctx\.guard takes .* cursor\.conn"):
        guard(connection.cursor(), "shop.stock", {"sku": "a"}, watched={})
