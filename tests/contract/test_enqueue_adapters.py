"""One contract for enqueuing through every kind of connection that a service may have."""

from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg2
import pytest

from consumers.errors import ConfigurationError
from consumers.waiting import Enqueued, enqueue, enqueue_sync
from idempotency import identity_of_text
from relay.dev.stack import Stack
from relay.errors import AutocommitError, InvalidEventError
from relay.testing.databases import fresh_database
from tests.support.emitters import EACH_LIBRARY, EMITTERS, AlchemyRunSync, Awaited, Emitter
from tests.support.inbox import history, rows

# What each way of writing a parameter would trip over.
NOTE = "100 % of %s and %(a)s, :name, $1, {}, \\ and \\\\u0041 '' \" \n\t\x01 grüße 😀 ?"


@pytest.fixture(scope="module")
def database(stack: Stack, inbox_template: str) -> Iterator[str]:
    """One database for all: what a test commits is cleared away behind it."""
    with fresh_database(stack.database_url, inbox_template) as url:
        yield url


@pytest.fixture(params=EACH_LIBRARY)
def service(request: pytest.FixtureRequest, database: str) -> Iterator[Emitter]:
    """A service on an empty inbox."""
    opened = EMITTERS[request.param](database)
    yield opened
    opened.close()
    with psycopg.connect(database) as connection:
        connection.execute("truncate inbox_deliveries, inbox_history")


def ask(service: Emitter, **said: Any) -> Enqueued:
    """Enqueue, in the way of the library."""
    said = {"consumer": "invoices", "event_type": "invoice.requested", "data": None, "key": "a", **said}
    match service:
        case AlchemyRunSync():
            answer: Enqueued = service._run(service.connection.run_sync(lambda given: enqueue_sync(given, **said)))
            return answer
        case Awaited():
            awaited: Enqueued = service._run(enqueue(service.connection, **said))
            return awaited
        case _:
            return enqueue_sync(service.connection, **said)


def test_it_lives_and_dies_with_its_transaction(service: Emitter, database: str) -> None:
    """Nobody sees it before the commit, and a rollback leaves nothing, no history either."""
    ask(service, key="taken back")
    service.rollback()
    stored = ask(service, data={"note": NOTE}, attributes={"tenant": NOTE}, version=2)
    before = rows(database)
    service.commit()

    (row,) = rows(database)
    assert before == []
    assert stored == Enqueued(row["id"], identity_of_text("a"), inserted=True)
    assert (row["consumer"], row["event_type"], row["event_version"], row["state"]) == (
        "invoices",
        "invoice.requested",
        2,
        "pending",
    )
    assert row["envelope"]["data"] == {"note": NOTE}
    assert row["attributes"]["tenant"] == NOTE
    assert history(database, row["event_id"]) == ["created"]


def test_the_same_again_answers_with_the_one_that_is_there(service: Emitter, database: str) -> None:
    """In this transaction and in a later one; it stays as it was."""
    first = ask(service, data=1)
    again = ask(service, data=2)
    service.commit()
    later = ask(service, event_id=first.event_id, key=None, data=3)
    other = ask(service, consumer="another")
    service.commit()
    assert (first.inserted, again.inserted, later.inserted, other.inserted) == (True, False, False, True)
    assert first.delivery == again.delivery == later.delivery != other.delivery
    assert [row["envelope"]["data"] for row in rows(database)] == [1, None]
    assert history(database, first.event_id) == ["created", "created"]  # of either consumer's


def test_a_schema_without_an_inbox_is_told(service: Emitter) -> None:
    """With the command to run, and not in the words of the database."""
    with pytest.raises(ConfigurationError, match=r"no inbox in schema 'nowhere' .* python -m consumers migrate"):
        ask(service, schema="nowhere")
    service.rollback()


def test_autocommit_is_refused(database: str) -> None:
    """The work would be done whether or not the change is made."""
    with (
        psycopg.connect(database, autocommit=True) as connection,
        pytest.raises(AutocommitError, match="the work would be done whether or not the change"),
    ):
        enqueue_sync(connection, consumer="a", event_type="b", data=1, key="c")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "enqueue takes a connection or session of .* not a value of type NoneType"),
        ("dbname=a", "not a value of type str"),
    ],
)
async def test_what_is_no_connection_is_refused(given: Any, sentence: str) -> None:
    """Before anything is done."""
    with pytest.raises(TypeError, match=sentence):
        await enqueue(given, consumer="a", event_type="b", data=1, key="c")


async def test_an_asynchronous_connection_is_for_the_asynchronous_call(database: str) -> None:
    """And a synchronous one is taken by either."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        with pytest.raises(TypeError, match=r"enqueue_sync takes .*; await enqueue"):
            enqueue_sync(connection, consumer="a", event_type="b", data=1, key="c")  # type: ignore[arg-type]
    with psycopg.connect(database) as synchronous:
        assert (await enqueue(synchronous, consumer="a", event_type="b", data=1, key="c")).inserted
        synchronous.rollback()
    other = psycopg2.connect(database)
    try:
        assert (await enqueue(other, consumer="a", event_type="b", data=1, key="c")).inserted
    finally:
        other.close()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"consumer": ""}, "consumer has 0 bytes, the limit is 1 to 255"),
        ({"consumer": "é" * 128}, "consumer has 256 bytes"),
        ({"consumer": 7}, "consumer is of type int, not a text"),
        ({"event_type": ""}, "event_type has 0 bytes"),
        ({"event_type": "a\0b"}, "event_type contains a NUL character"),
        ({"event_type": "\ud800"}, "event_type contains a lone surrogate"),
        ({"version": 0}, "version 0 is not a whole number from 1 to 999999999"),
        ({"version": True}, "version True is not"),
        ({"version": 1_000_000_000}, "version 1000000000 is not"),
        ({"key": " "}, "the key is ' '; whatever has no key"),
        ({"key": "\ud800"}, "the key contains a lone surrogate"),
        ({"key": None, "event_id": "42"}, "the event id '42' is not a UUID"),
        ({"key": None, "event_id": "0" * 32}, "the event id is the nil UUID"),
        ({"data": float("nan")}, "the data is not JSON"),
        ({"data": object()}, "the data is not JSON"),
        ({"data": {"a": ["\0"]}}, "the data contains a NUL character"),
        ({"data": "\ud800"}, "the data is not JSON"),
        ({"attributes": {"event_id": "a"}}, "attribute 'event_id' is set by the relay itself"),
        ({"attributes": {"a": 1}}, "attribute 'a' is of type int, not a text"),
        ({"attributes": {7: "a"}}, "attributes that are no mapping of Unicode texts"),
        ({"attributes": "a"}, "attributes that are no mapping"),
        ({"shard_key": ""}, "shard_key has 0 bytes"),
    ],
)
def test_what_no_consumer_could_read_is_refused(database: str, said: dict[str, Any], sentence: str) -> None:
    """Before the database is asked, so that the transaction goes on; and no value is repeated but names and numbers."""
    said = {"consumer": "a", "event_type": "b", "data": 1, "key": "c", **said}
    with psycopg.connect(database) as connection:
        with pytest.raises(InvalidEventError, match=sentence):
            enqueue_sync(connection, **said)
        assert connection.execute("select 1").fetchone() == (1,)


def test_it_is_known_by_an_id_or_a_key(database: str) -> None:
    """By exactly one of them."""
    with psycopg.connect(database) as connection:
        for named in ({}, {"key": "a", "event_id": identity_of_text("a")}):
            with pytest.raises(TypeError, match="give event_id or key, one of them"):
                enqueue_sync(connection, consumer="a", event_type="b", data=1, **named)  # type: ignore[arg-type]
        for schema in ("", "a%b", "a:b"):
            with pytest.raises(ConfigurationError, match=r"schema is .*; give the inbox's"):
                enqueue_sync(connection, consumer="a", event_type="b", data=1, key="c", schema=schema)
