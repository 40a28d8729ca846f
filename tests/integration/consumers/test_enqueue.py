"""Work that a service stores for a consumer: once, whoever else does so at the same time, and as other events are."""

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from consumers import Consumer, Received
from consumers.errors import ConfigurationError
from consumers.sharding import of_aggregate, shard_of
from consumers.testing import in_memory
from consumers.waiting import Enqueued, Ready, Waiting, enqueue, enqueue_sync
from idempotency import identity_of_text
from relay.errors import InvalidEventError
from tests.support.inbox import row, rows
from tests.support.waiting import until


def ask(connection: psycopg.Connection[Any], **said: Any) -> Enqueued:
    """Enqueue an invoice."""
    return enqueue_sync(
        connection, **{"consumer": "invoices", "event_type": "invoice.requested", "data": 7, "key": "42", **said}
    )


async def test_a_consumer_handles_it_as_any_other_event(inbox_database: str) -> None:
    """With its data, its version, its attributes; and who waits has the result."""
    consumer = Consumer("invoices", dedup="inbox")
    seen: list[Received[Any]] = []

    @consumer.on("invoice.requested", version=2)
    async def write(event: Received[Any]) -> dict[str, int]:
        seen.append(event)
        return {"number": event.data["order"]}

    async with await psycopg.AsyncConnection.connect(inbox_database) as connection:
        stored = await enqueue(
            connection,
            consumer="invoices",
            event_type="invoice.requested",
            data={"order": 42},
            version=2,
            key="invoice-42",
            attributes={"tenant": "acme"},
        )
    async with Waiting(inbox_database) as waiting, in_memory(consumer, database=inbox_database):
        assert await waiting.wait(stored, 20) == Ready({"number": 42})

    (event,) = seen
    assert (event.event_id, event.version, event.sequence, event.ordering_key) == (stored.event_id, 2, None, "")
    assert event.attributes["tenant"] == "acme"
    assert event.created_at == event.occurred_at
    assert row(inbox_database, stored.event_id)["shard"] == shard_of(of_aggregate(event))


def test_of_two_at_once_one_stores_it(inbox_database: str) -> None:
    """The other waits for the end of the first one's transaction, and has its delivery."""
    with psycopg.connect(inbox_database) as first, psycopg.connect(inbox_database) as second:
        stored = ask(first)
        with asyncio.Runner() as runner:
            waiting = runner.get_loop().run_in_executor(None, lambda: ask(second))
            with psycopg.connect(inbox_database, autocommit=True) as looking:
                until(lambda: _blocked(looking, second), "the second one waits")
            first.commit()
            again = runner.run(_of(waiting))
        assert (again.inserted, again.delivery) == (False, stored.delivery)
    assert len(rows(inbox_database)) == 1


def test_where_the_first_is_rolled_back_the_second_stores_it(inbox_database: str) -> None:
    """And says so."""
    with psycopg.connect(inbox_database) as first, psycopg.connect(inbox_database) as second:
        stored = ask(first)
        with asyncio.Runner() as runner:
            waiting = runner.get_loop().run_in_executor(None, lambda: ask(second))
            with psycopg.connect(inbox_database, autocommit=True) as looking:
                until(lambda: _blocked(looking, second), "the second one waits")
            first.rollback()
            again = runner.run(_of(waiting))
        assert again.inserted
        assert again.delivery != stored.delivery
    assert [each["id"] for each in rows(inbox_database)] == [again.delivery]


def test_a_repeatable_read_transaction_is_told_to_run_again(inbox_database: str) -> None:
    """It cannot see what was committed after it began."""
    with psycopg.connect(inbox_database) as first, psycopg.connect(inbox_database) as second:
        second.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        second.execute("select 1 from inbox_deliveries")
        ask(first)
        first.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            ask(second)


def test_data_that_is_nested_too_deeply_is_refused(inbox_database: str) -> None:
    """By the database, which reads only so far; how far is a setting of its own."""
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    with psycopg.connect(inbox_database) as connection:
        connection.execute("set local max_stack_depth to '100kB'")
        with pytest.raises(InvalidEventError, match="nested deeper than Postgres can read"):
            ask(connection, data=deep)


def test_a_role_needs_to_select_and_insert(inbox_database: str) -> None:
    """What it lacks is named; the function acts with the rights of whoever calls it."""
    role = f"service_of_{inbox_database.rpartition('/')[2].partition('?')[0]}"
    with psycopg.connect(inbox_database, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        try:
            with psycopg.connect(inbox_database, options=f"-c role={role}") as connection:
                with pytest.raises(
                    ConfigurationError, match=r"may not enqueue \(permission denied .* insert on inbox_history"
                ):
                    ask(connection)
                connection.rollback()
                owner.execute(
                    sql.SQL(
                        "grant select, insert on inbox_deliveries to {0}; grant insert on inbox_history to {0}"
                    ).format(sql.Identifier(role))
                )
                assert ask(connection).inserted
        finally:
            owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ([], "takes an object"),
        ({"event_id": None}, "event_id is not a UUID"),
        ({"event_id": "00000000-0000-0000-0000-000000000000"}, "event_id is not a UUID, or is the nil UUID"),
        ({"consumer": ""}, "consumer is not a text of 1 to 255 bytes"),
        ({"consumer": 7}, "consumer is not a text"),
        ({"event_type": "x" * 256}, "event_type is not a text of 1 to 255 bytes"),
        ({"version": 0}, "version is not a whole number"),
        ({"version": 1.5}, "version is not a whole number"),
        ({"shard": 2**31}, "shard is not a whole number from 0 to 2147483647"),
        ({"shard": -1}, "shard is not a whole number"),
        ({"attributes": [1]}, "attributes is not an object"),
        ({"attributes": {"a": 1}}, "attributes has a value that is not a text"),
        ({"data": ...}, "has no data"),
    ],
)
def test_the_function_refuses_what_no_consumer_could_read(inbox_database: str, said: Any, sentence: str) -> None:
    """Whatever language calls it."""
    if isinstance(said, dict):
        whole = {"consumer": "a", "event_type": "b", "event_id": str(uuid4()), "data": None, **said}
        said = {name: value for name, value in whole.items() if value is not ...}
    with (
        psycopg.connect(inbox_database) as connection,
        pytest.raises(psycopg.errors.InvalidParameterValue, match=f"inbox_enqueue: {sentence}"),
    ):
        connection.execute("select inbox_enqueue(%s)", [Jsonb(said)])


def test_the_function_needs_no_more_than_it_must(inbox_database: str) -> None:
    """In capitals too; an envelope that is read, and a shard that spreads."""
    event_id = identity_of_text("a")
    said = {"consumer": "a", "event_type": "b", "event_id": str(event_id).upper(), "data": None, "attributes": None}
    with psycopg.connect(inbox_database) as connection:
        connection.execute("select inbox_enqueue(%s)", [Jsonb(said)])
        connection.execute("select inbox_enqueue(%s)", [Jsonb({**said, "consumer": "c", "shard": 2**31 - 1})])
    first, second = rows(inbox_database)
    assert first["envelope"]["event_id"] == first["attributes"]["event_id"] == str(event_id)
    assert first["envelope"]["version"] == 1
    assert (first["shard"] >= 0, second["shard"]) == (True, 2**31 - 1)


def _blocked(looking: psycopg.Connection[Any], waiting: psycopg.Connection[Any]) -> bool:
    found = looking.execute("select cardinality(pg_blocking_pids(%s)) > 0", [waiting.info.backend_pid]).fetchone()
    return found == (True,)


async def _of(answer: "asyncio.Future[Enqueued]") -> Enqueued:
    return await answer


async def test_what_is_enqueued_is_in_the_part_that_its_event_id_says(inbox_database: str) -> None:
    """The same hash as everywhere else, which is the same on every machine and in every version of Postgres."""
    async with await psycopg.AsyncConnection.connect(inbox_database) as connection:
        stored = await enqueue(connection, consumer="billing", event_type="order.paid", data={}, key="o-1")
    with psycopg.connect(inbox_database) as connection:
        ((shard,),) = connection.execute("select shard from inbox_deliveries").fetchall()
    assert shard == shard_of(str(stored.event_id))
