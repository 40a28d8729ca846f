"""What a test of a service sees of an outbox, and what the relay in its hand makes of it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy.orm import Session

from consumers import Consumer, Received
from consumers.testing import Fate, handle, in_memory
from relay import Actor, Emitted, Event, emit, emit_async
from relay.errors import ConfigurationError, SchemaError
from relay.outbox import schema
from relay.settings import Settings
from relay.testing import MemoryBroker, Outbox, State, fresh_database
from relay.testing.one_pass import policy
from tests.support.outbox import event


@pytest.fixture
def connection(outbox_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A service's own, whose transactions the test ends."""
    with psycopg.connect(outbox_database) as opened:
        yield opened


@pytest.fixture
async def async_connection(outbox_database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """The same, asynchronous."""
    async with await psycopg.AsyncConnection.connect(outbox_database) as opened:
        yield opened


def commit(connection: psycopg.Connection[Any], *events: Event) -> list[Emitted]:
    """Emit in a transaction of its own."""
    with connection.transaction():
        return emit(connection, events)


def test_an_event_is_as_it_was_emitted(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """All of it, and where it is."""
    due = datetime(2030, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    event_id = uuid4()
    (emitted,) = commit(
        connection,
        Event(
            event_type="order.paid",
            aggregate_type="order",
            aggregate_id="42",
            data={"amount": 1999, "name": "Zoë 🎉", "rate": 0.1},
            event_id=event_id,
            version=3,
            occurred_at=due,
            actor=Actor(type="user", id="7", role="admin"),
            topic="orders",
            dedup_key="paid-42",
            available_at=due,
            attributes={"tenant": "acme"},
        ),
    )
    (found,) = outbox.emitted()
    assert (found.sequence, found.event_id, found.event_type) == (emitted.sequence, event_id, "order.paid")
    assert found.data == {"amount": 1999, "name": "Zoë 🎉", "rate": 0.1}
    assert (found.version, found.occurred_at, found.available_at) == (3, due, due)
    assert (found.actor, found.attributes) == ({"type": "user", "id": "7", "role": "admin"}, {"tenant": "acme"})
    assert (found.topic, found.ordering_key, found.dedup_key) == ("orders", None, "paid-42")
    assert (found.state, found.attempt_count, found.error, found.message_id) == (State.PENDING, 0, None, None)
    assert abs(found.created_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_is_committed_is_seen_and_what_is_not_only_over_its_connection(
    outbox: Outbox, connection: psycopg.Connection[Any]
) -> None:
    """A rollback leaves nothing."""
    emit(connection, event(1))
    outbox.assert_nothing_emitted()
    assert outbox.assert_emitted("order.paid", connection=connection).aggregate_id == "1"
    connection.rollback()
    outbox.assert_nothing_emitted(connection=connection)
    emit(connection, event(2))
    connection.commit()
    assert outbox.assert_emitted("order.paid").aggregate_id == "2"


async def test_the_same_holds_of_asynchronous_connections(
    outbox: Outbox, async_connection: psycopg.AsyncConnection[Any]
) -> None:
    """With methods that are awaited."""
    await emit_async(async_connection, [event(1), event(2)])
    await outbox.assert_nothing_emitted_async()
    found = await outbox.assert_emitted_async("order.paid", times=2, connection=async_connection)
    assert [each.aggregate_id for each in found] == ["1", "2"]
    with pytest.raises(AssertionError, match=r"order.paid was emitted 2 times, where none was expected"):
        await outbox.assert_nothing_emitted_async("order.paid", connection=async_connection)
    with pytest.raises(AssertionError, match="the outbox is empty"):
        await outbox.assert_emitted_async("order.paid")
    await async_connection.commit()
    assert len(await outbox.emitted_async()) == 2


def test_how_often_can_be_said(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """Without a number, once is enough, and the first is the answer."""
    commit(connection, event(1), event(2), event(3, event_type="order.lost"))
    assert outbox.assert_emitted("order.paid").aggregate_id == "1"
    assert [each.aggregate_id for each in outbox.assert_emitted("order.paid", times=2)] == ["1", "2"]
    assert outbox.assert_emitted("order.sent", times=0) == []
    assert len(outbox.emitted("order.lost")) == 1
    with pytest.raises(AssertionError, match=r"order.paid was emitted 2 times, not once"):
        outbox.assert_emitted("order.paid", times=1)
    with pytest.raises(AssertionError, match=r'order.paid with aggregate_id="2" was emitted once, where none was'):
        outbox.assert_nothing_emitted("order.paid", aggregate_id="2")
    for times in (-1, True):
        with pytest.raises(ValueError, match="give how often"):
            outbox.assert_emitted("order.paid", times=times)


def test_a_session_of_sqlalchemy_within_an_outer_transaction_is_seen(outbox: Outbox, outbox_database: str) -> None:
    """The pattern of suites that roll each test back."""
    engine = sqlalchemy.create_engine(outbox_database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session, session.begin():
            emit(session, event(1))
            outbox.assert_emitted("order.paid", connection=session)
        outbox.assert_emitted("order.paid", connection=connection)
        with pytest.raises(TypeError, match="pass SQLAlchemy's Connection"):
            outbox.assert_emitted("order.paid", connection=connection.connection)
        outer.rollback()
    engine.dispose()
    outbox.assert_nothing_emitted()


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("postgresql+psycopg://u:secret@h/d", ValueError, "names a driver in its scheme; write postgresql:// without"),
        ("secret", ValueError, "is not a connection string; write it like postgresql://"),
        (sqlalchemy.make_url("postgresql://u:secret@h/d"), TypeError, "database_url is of type URL, not a text"),
    ],
)
def test_what_is_no_url_is_refused(url: Any, error: type[Exception], words: str) -> None:
    """Without what may be its password."""
    with pytest.raises(error, match=words) as refused:
        Outbox(url)
    assert "secret" not in str(refused.value)


def test_what_is_no_connection_is_refused(
    outbox: Outbox, connection: psycopg.Connection[Any], async_connection: psycopg.AsyncConnection[Any]
) -> None:
    """With the way out."""
    with pytest.raises(TypeError, match="AsyncConnection; await the method whose name ends in _async"):
        outbox.emitted(connection=async_connection)
    with pytest.raises(TypeError, match=r"Cursor; pass cursor.connection"):
        outbox.emitted(connection=connection.cursor())
    with pytest.raises(TypeError, match="connection= takes whatever emit does, not a value of type str"):
        outbox.emitted(connection="postgresql://")


async def test_what_is_no_asynchronous_connection_is_refused(
    outbox: Outbox, connection: psycopg.Connection[Any]
) -> None:
    """The same the other way round."""
    with pytest.raises(TypeError, match="Connection; call the method without _async"):
        await outbox.emitted_async(connection=connection)


def test_a_session_of_any_habits_reads_the_same(outbox: Outbox, outbox_database: str) -> None:
    """Its search_path, its time zone, its dates and its rows are the service's own."""
    options = "-c search_path=pg_catalog -c timezone=Asia/Tokyo -c datestyle=German -c bytea_output=escape"
    with psycopg.connect(outbox_database) as committed:
        commit(committed, event(1))
    with psycopg.connect(outbox_database, options=options, row_factory=psycopg.rows.dict_row) as connection:
        assert outbox.emitted(connection=connection) == outbox.emitted()


def test_an_outbox_may_be_in_a_schema_of_its_own(stack_url: str) -> None:
    """Whatever its name needs."""
    with fresh_database(stack_url) as url, psycopg.connect(url) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier("My events")))
        schema.migrate(connection, "My events", schema.newest())
        connection.execute("""set search_path to "My events" """)
        connection.commit()
        commit(connection, event(1))
        outbox = Outbox(url, "My events")
        assert len(outbox.relay_once()) == 1
        assert outbox.assert_emitted("order.paid").state is State.PUBLISHED
        outbox.clear()
        outbox.assert_nothing_emitted()
        with pytest.raises(SchemaError, match="has no outbox in schema 'public'; create it with"):
            Outbox(url).assert_nothing_emitted()
        with pytest.raises(SchemaError, match="has no outbox in schema 'public'"):
            Outbox(url).relay_once()


@pytest.fixture
def stack_url(outbox_postgres_url: str) -> str:
    """Where databases may be made."""
    return outbox_postgres_url


def test_a_pass_publishes_what_is_committed(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """Decoded, with the attributes that a consumer gets, once."""
    (first, _) = commit(connection, event(1, attributes={"tenant": "acme"}), event(2, ordering_key="k", topic="audit"))
    relayed = outbox.relay_once(topic="orders")
    assert {message.topic for message in relayed} == {"orders", "audit"}
    (message,) = outbox.broker.on("orders")
    assert (message.event_id, message.event_type) == (str(first.event_id), "order.paid")
    assert message.data["number"] == 1
    assert message.attributes["tenant"] == "acme"
    assert message.attributes["sequence"] == str(first.sequence)
    assert outbox.broker.on("audit")[0].ordering_key == "k"
    assert outbox.assert_emitted("order.paid", aggregate_id="1").message_id == message.message_id
    assert list(outbox.relay_once(topic="orders")) == []
    assert len(outbox.broker.messages) == 2


def test_a_pass_goes_by_routes(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """As a text of RELAY_ROUTES or as a mapping; a topic that nobody made takes nothing."""
    outbox.broker = MemoryBroker(["orders", "domain-events"])
    commit(connection, event(1), event(2, event_type="invoice.paid"))
    relayed = outbox.relay_once(routes={"order.*": "orders", "invoice.*": "invoices"})
    assert [message.topic for message in relayed] == ["orders"]
    assert relayed.away == {"invoices": "NOT_FOUND"}
    assert [message.topic for message in outbox.relay_once(routes="invoice.paid=orders")] == ["orders"]


def test_nobody_pays_for_an_outage(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """The events wait, and go out when it is over."""
    commit(connection, event(1))
    outbox.broker.fail()
    relayed = outbox.relay_once()
    assert (len(relayed), relayed.retried, relayed.failed) == (0, 0, 0)
    assert relayed.away == {"domain-events": "UNAVAILABLE"}
    assert outbox.assert_emitted("order.paid").attempt_count == 0
    outbox.broker.recover()
    assert [message.data["number"] for message in outbox.relay_once()] == [1]


def test_a_poison_event_fails_for_good(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """Where the topic takes another behind it; its failure can be looked at."""
    commit(connection, event(1), event(2))
    outbox.broker.poison(lambda message: bool(message.data["number"] == 1))
    relayed = outbox.relay_once()
    assert ([message.data["number"] for message in relayed], relayed.failed) == ([2], 1)
    (failed,) = outbox.failed()
    assert (failed.aggregate_id, failed.state, failed.failure_reason) == ("1", State.FAILED, "non_retryable")
    assert (failed.error_code, failed.attempt_count) == ("INVALID_ARGUMENT", 1)


def test_time_is_moved_and_never_waited_for(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """What is scheduled becomes due, and so does the next attempt of what failed."""
    commit(
        connection,
        event(1),
        event(2),
        event(3, available_at=datetime.now(UTC) + timedelta(days=2), event_type="reminder"),
    )
    outbox.broker.poison(lambda message: bool(message.data["number"] == 1), "INTERNAL")
    relayed = outbox.relay_once(max_attempts=3)
    assert ([message.data["number"] for message in relayed], relayed.retried) == ([2], 1)
    for attempt, rest in ((2, 4.0), (3, 9.0)):
        outbox.advance(rest)
        assert outbox.relay_once(max_attempts=3).retried == 0
        outbox.advance("2s")
        commit(connection, event(10 * attempt))
        outbox.relay_once(max_attempts=3)
    assert [failed.failure_reason for failed in outbox.failed()] == ["max_attempts"]
    outbox.advance(timedelta(days=2))
    assert [message.event_type for message in outbox.relay_once()] == ["reminder"]


async def test_a_pass_in_an_event_loop_is_awaited(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """The other one says so, and leaves nothing behind."""
    commit(connection, event(1))
    with pytest.raises(RuntimeError, match=r"await outbox.relay_once_async"):
        outbox.relay_once()
    assert len(await outbox.relay_once_async()) == 1


def test_a_pass_leaves_the_loop_of_the_thread_alone(outbox: Outbox) -> None:
    """A test may have set one for itself."""
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    try:
        outbox.relay_once()
        assert asyncio.get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()


def test_a_pass_ends_with_its_budget(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """What was not sent is there for the next one."""
    commit(connection, *(event(number) for number in range(1_001)))
    outbox.broker.slow(0.01)
    assert len(outbox.relay_once(budget=0.001)) == 1_000
    assert len(outbox.relay_once()) == 1


def test_a_predicate_that_raises_is_the_tests_own_fault(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """It is raised, and not told of as something that happened to the event."""
    commit(connection, event(1))
    outbox.broker.poison(lambda message: bool(message.data["price"]))
    with pytest.raises(KeyError, match="price"):
        outbox.relay_once()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"routes": "order.*"}, "routes has the part 'order.\\*', which is no route"),
        ({"routes": {"order.*": "no topic"}}, "routes has the route"),
        ({"topic": "x"}, "topic 'x' has 1 character"),
        ({"max_attempts": 0}, "max_attempts is 0; give one or more"),
        ({"on_failed_head": "stop"}, "on_failed_head has the part 'stop'"),
        ({"budget": "30"}, "'30' has no unit; write it like 500ms, 30s or 1h"),
    ],
)
def test_wrong_settings_are_refused(outbox: Outbox, settings: dict[str, Any], words: str) -> None:
    """In the words of the relay."""
    with pytest.raises(ValueError, match=words):
        outbox.relay_once(**settings)


@pytest.mark.parametrize(
    ("duration", "error"),
    [
        (-1, ValueError),
        ("soon", ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_time_goes_forward(outbox: Outbox, duration: Any, error: type[Exception]) -> None:
    """By what is a duration."""
    with pytest.raises(error):
        outbox.advance(duration)


def test_a_pass_is_that_of_a_relay_with_its_defaults() -> None:
    """But for jitter, and for one batch at a time."""
    default = {name: field.default for name, field in Settings.model_fields.items()}
    ours = policy("", default["relay_topic"], default["relay_max_attempts"], default["relay_on_failed_head"])
    assert ours.batch_size == default["relay_batch_size"]
    assert ours.publish_seconds == default["relay_publish_budget_ms"].total_seconds()
    assert ours.attempts.retry.base == default["relay_retry_base_ms"].total_seconds()
    assert ours.attempts.retry.most == default["relay_retry_max_ms"].total_seconds()
    assert ours.outage.most == default["relay_outage_max_ms"].total_seconds()
    keywords = signature(Outbox.relay_once).parameters
    assert keywords["topic"].default == default["relay_topic"]
    assert keywords["max_attempts"].default == default["relay_max_attempts"]
    assert keywords["on_failed_head"].default == default["relay_on_failed_head"]
    assert keywords == signature(Outbox.relay_once_async).parameters


def test_an_outbox_is_emptied(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """And so is the broker; whoever holds an event is told of."""
    commit(connection, event(1), event(2))
    outbox.relay_once()
    outbox.clear()
    outbox.assert_nothing_emitted()
    assert outbox.broker.messages == []


def test_events_that_are_held_are_not_waited_for_for_long(
    outbox: Outbox, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what holds them."""
    monkeypatch.setattr("relay.testing.outbox._LOCK_TIMEOUT", "50ms")
    commit(connection, event(1))
    connection.execute("select from outbox_events for update")
    with pytest.raises(ConfigurationError, match=r"end its transaction before outbox.clear"):
        outbox.clear()


async def test_a_message_goes_on_to_a_consumer(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """From the service's own transaction to the handler's effect."""
    booked: list[Any] = []
    billing = Consumer("billing")

    @billing.on("order.paid")
    async def book(received: Received[Any]) -> None:
        booked.append((received.data["number"], received.aggregate_id))

    commit(connection, event(1), event(2))
    first, second = await outbox.relay_once_async()
    assert (await handle(billing, first)).fate is Fate.DONE
    async with in_memory(billing) as deliveries:
        assert (await deliveries.deliver(second)).fate is Fate.DONE
        assert (await deliveries.deliver(second)).fate is Fate.DUPLICATE
    assert booked == [(1, "1"), (2, "2")]
