"""One contract for emitting through every kind of connection that a service may have."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from django.db import utils as django_errors

from relay import EmitError, Event, InvalidEventError, emit
from relay.dev.stack import Stack
from relay.testing import Outbox
from relay.testing.databases import fresh_database
from tests.support.emitters import EACH_LIBRARY, EMITTERS, Emitter
from tests.support.looking import session
from tests.support.outbox import count, event

UNCHECKED = Event.model_construct(event_type="", aggregate_type="order", aggregate_id="7", data={"card": "4711-secret"})
# What each way of writing a parameter would trip over.
NOTE = "100 % of %s and %(a)s, :name, $1, {}, \\ and \\\\u0041 '' \" \n\t\x01 grüße 😀 ?"


@pytest.fixture(scope="module")
def database(stack: Stack, template: str) -> Iterator[str]:
    """One database for all: what a test commits is cleared away behind it."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("create table orders (id int)")
        yield url


@pytest.fixture(params=EACH_LIBRARY)
def emitter(request: pytest.FixtureRequest, database: str) -> Iterator[Emitter]:
    """A service on an empty outbox."""
    opened = EMITTERS[request.param](database)
    yield opened
    opened.close()
    session(database).execute("truncate outbox_events, orders")


class TestItsTransaction:
    """Events live and die with the change that they announce."""

    def test_a_commit_stores_change_and_event(self, emitter: Emitter, database: str) -> None:
        """Nobody else sees either before."""
        emitter.execute("insert into orders values (1)")
        answer = emitter.emit(event(1))
        before = count(database)
        emitter.commit()

        with psycopg.connect(database) as looking:
            rows = looking.execute("select event_id, outbox_events.id, orders.id from outbox_events, orders").fetchall()
        assert before == 0
        assert rows == [(answer.event_id, answer.sequence, 1)]
        assert answer.inserted

    def test_a_rollback_leaves_nothing(self, emitter: Emitter, database: str) -> None:
        """And the connection goes on."""
        emitter.emit([event(1), event(2)])
        emitter.rollback()
        emitter.emit(event(3))
        emitter.commit()
        assert count(database) == count(database, "aggregate_id = '3'") == 1

    def test_a_test_sees_what_it_holds(self, emitter: Emitter, database: str) -> None:
        """Over the connection alone until it is committed."""
        outbox = Outbox(database)
        answers = emitter.emit([event(1, data=NOTE), event(2)])

        assert [seen.event_id for seen in emitter.seen(outbox)] == [answer.event_id for answer in answers]
        assert emitter.seen(outbox)[0].data == NOTE
        assert outbox.emitted() == []

    def test_a_savepoint_takes_only_its_own_part_back(self, emitter: Emitter, database: str) -> None:
        """What was emitted before it and after it stays."""
        emitter.emit(event(1))
        with emitter.undone():
            emitter.emit(event(2))
        emitter.emit(event(3))
        emitter.commit()
        assert count(database) == count(database, "aggregate_id in ('1', '3')") == 2


class TestItsAnswers:
    """What is stored, and what the service is told of it."""

    def test_a_list_keeps_its_order(self, emitter: Emitter, database: str) -> None:
        """In the table, and in the answers."""
        answers = emitter.emit([event(n) for n in range(50)])
        none = emitter.emit([])
        emitter.commit()
        with psycopg.connect(database) as looking:
            stored = looking.execute("select id, event_id, aggregate_id from outbox_events order by id").fetchall()
        assert [(answer.sequence, answer.event_id) for answer in answers] == [row[:2] for row in stored]
        assert [row[2] for row in stored] == [str(n) for n in range(50)]
        assert none == []

    def test_a_dedup_key_that_is_taken_answers_with_its_event(self, emitter: Emitter) -> None:
        """And says that it did not insert."""
        first = emitter.emit(event(dedup_key="a"))
        again, fresh = emitter.emit([event(dedup_key="a"), event(dedup_key="b")])
        assert (first.inserted, again.inserted, fresh.inserted) == (True, False, True)
        assert (again.event_id, again.sequence) == (first.event_id, first.sequence)

    def test_text_arrives_as_it_was(self, emitter: Emitter, database: str) -> None:
        """Whatever it is made of, and how large it is."""
        data = {NOTE: NOTE, "many": NOTE * 20_000}
        emitter.emit(event(data=data))
        emitter.commit()
        with psycopg.connect(database) as looking:
            (stored,) = looking.execute("select payload -> 'data' from outbox_events").fetchall()
        assert stored == (data,)

    def test_order_lock_is_handed_on(self, emitter: Emitter, database: str) -> None:
        """A caller that orders by other means waits for nobody."""
        with psycopg.connect(database) as holder:
            emit(holder, event(ordering_key="k"))
            emitter.execute("set local lock_timeout to '1ms'")
            assert emitter.emit(event(ordering_key="k"), order_lock=False).inserted


class TestItsErrors:
    """Ours where emit has a word for it, and else the library's own."""

    def test_a_refusal_in_python_leaves_the_transaction_as_it_was(self, emitter: Emitter, database: str) -> None:
        """Nothing was sent."""
        emitter.emit(event(1))
        with pytest.raises(InvalidEventError, match="NUL character") as refused:
            emitter.emit([event(2), event(data="a\0b")])
        emitter.emit(event(3))
        emitter.commit()
        assert refused.value.position == 1
        assert count(database) == 2

    def test_a_refusal_of_the_database_names_the_event(self, emitter: Emitter, database: str) -> None:
        """By its place, and without its data, in the whole chain of errors."""
        with pytest.raises(InvalidEventError, match="outbox_emit: event 1 event_type has 0 bytes") as refused:
            emitter.emit([event(), UNCHECKED])
        emitter.rollback()
        emitter.emit(event())
        emitter.commit()
        assert refused.value.position == 1
        assert "4711-secret" not in said(refused.value)
        assert count(database) == 1

    def test_a_failed_transaction_stays_what_it_is(self, emitter: Emitter) -> None:
        """The library says so, and not emit."""
        with pytest.raises(Exception, match="division by zero"):
            emitter.execute("select 1 / 0")
        with pytest.raises(Exception, match=r"aborted|rolled back|current transaction") as failed:
            emitter.emit(event(data={"card": "4711-secret"}))
        emitter.rollback()
        assert not isinstance(failed.value, EmitError)
        assert "4711-secret" not in said(failed.value)

    def test_a_connection_that_is_lost_is_told_by_the_library(self, emitter: Emitter, database: str) -> None:
        """And not taken for one without a transaction."""
        emitter.emit(event(data={"card": "4711-secret"}))
        with psycopg.connect(database, autocommit=True) as administrator:
            administrator.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
            )
        with pytest.raises(Exception, match=r"terminat|closed|connection") as lost:
            emitter.emit(event(data={"card": "4711-secret"}))
        with pytest.raises(Exception, match=r".") as again:
            emitter.emit(event())
        for error in (lost.value, again.value):
            assert not isinstance(error, EmitError | TypeError | AttributeError)
            assert "4711-secret" not in said(error)

    def test_a_serialization_failure_is_the_librarys(self, emitter: Emitter, database: str) -> None:
        """So that what runs the transaction again goes on working."""
        emitter.execute("set transaction isolation level repeatable read")
        emitter.execute("select 1")
        with psycopg.connect(database) as other:
            emit(other, event(dedup_key="k"))
        with pytest.raises(emitter.serialization) as failed:
            emitter.emit(event(dedup_key="k", data={"card": "4711-secret"}))
        emitter.rollback()
        assert sqlstate(failed.value) == "40001"
        assert "4711-secret" not in said(failed.value)
        assert not emitter.emit(event(dedup_key="k")).inserted

    def test_without_an_outbox_the_remedy_is_named(self, emitter: Emitter) -> None:
        """And no data, where the database quotes the statement."""
        emitter.execute("set local search_path to pg_catalog")
        with pytest.raises(EmitError, match="create the outbox with: python -m relay migrate") as refused:
            emitter.emit(event(data={"card": "4711-secret"}, event_type="4711-secret"))
        emitter.rollback()
        assert "4711-secret" not in said(refused.value)

    def test_a_role_that_may_not_emit_is_told_who_lets_it(self, emitter: Emitter, role: str) -> None:
        """The function is the owner's to grant."""
        emitter.execute(f'set local role "{role}"')
        with pytest.raises(EmitError, match=r"permission denied .* grants --emitter ROLE"):
            emitter.emit(event())
        emitter.rollback()


@pytest.fixture
def role(stack: Stack) -> Iterator[str]:
    """A role that may nothing."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"create role {name}".encode())
        yield name
        connection.execute(f"drop role {name}".encode())


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__


def said(error: BaseException) -> str:
    """All that a traceback would say."""
    return "\n".join(map(str, chain(error)))


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE, where docs/emit.md says that it is."""
    told: Any = error
    match error:
        case sa.exc.DBAPIError():
            told = error.orig
        case django_errors.Error():
            told = error.__cause__
    state = told.pgcode if isinstance(told, psycopg2.Error) else told.sqlstate
    return str(state)
