"""Forgetting aggregates: what is found, what goes, what stays, and relays and operators at the same time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay import emit
from relay.errors import OperateError
from relay.operate import failed, forget
from relay.outbox.actions import Operator
from relay.outbox.failed import Action, FailedRows, Filter
from relay.outbox.forget import Aggregate, Aggregates, Order, State, Way
from relay.outbox.statements import statement
from relay.postgres.connect import connect_async
from tests.support.outbox import count, event
from tests.support.waiting import until_async

ANA = Operator("ana", "ticket 815")
SECRET = "Zoë-Quux"  # noqa: S105 -- what must not be left
REDACTED = "aggregate_id = '(forgotten)' and payload ? 'redacted'"


def about(id_: str = SECRET, **fields: Any) -> Any:
    """An event about a person, who stands in all of its fields."""
    return event(
        **{
            "aggregate_type": "user",
            "aggregate_id": id_,
            "data": {"name": SECRET},
            "actor": {"type": "user", "id": SECRET},
            "attributes": {"tenant": SECRET},
            **fields,
        }
    )


def store(url: str, *events: Any) -> None:
    """Emit and commit."""
    with psycopg.connect(url) as connection:
        emit(connection, list(events))


def change(url: str, command: str, *values: Any) -> None:
    """Do to rows what a relay or an operator would have done."""
    with psycopg.connect(url) as connection:
        connection.execute(command.encode(), values or None)


def publish(url: str, condition: str = "true") -> None:
    """Have rows be published as the relay does."""
    change(
        url,
        f"""update outbox_events set published_at = clock_timestamp(), message_id = 'm' || id, topic = 'orders'
             where {condition}""",  # noqa: S608 -- a test's own words
    )


def fail(url: str, condition: str, reason: str = "max_attempts") -> None:
    """Have rows fail as the relay does."""
    change(
        url,
        f"""update outbox_events set failed_at = clock_timestamp(), failure_reason = %s, attempt_count = 25,
                   last_error = 'no {SECRET}', last_error_code = 'INTERNAL',
                   blocks_key = %s and ordering_key is not null
             where {condition}""",  # noqa: S608 -- a test's own words
        reason,
        reason != "discarded",
    )


def everything(url: str) -> str:
    """All that stands in the tables."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select to_jsonb(e)::text from outbox_events e").fetchall()
        rows += connection.execute("select to_jsonb(a)::text from outbox_actions a").fetchall()
    return "\n".join(text for (text,) in rows)


class Forgetting:
    """The command's work, without its words."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    def of(self, *ids: str) -> Aggregates:
        """Those of users."""
        return Aggregates(self._connection, "public", [Aggregate("user", id_) for id_ in ids or (SECRET,)])

    async def found(self, *ids: str, patience: float = 5.0) -> dict[State, int]:
        """What a plan counts, without what is not there."""
        walk = await forget.find(self.of(*ids), nothing, patience)
        return {state: rows for state, rows in walk.counts.items() if rows}

    async def __call__(
        self, way: Way, *ids: str, undecided: bool = False, walk: forget.Walk | None = None
    ) -> forget.Forgotten:
        """Find and forget."""
        aggregates = self.of(*ids)
        started = await aggregates.start()
        walk = walk or await forget.find(aggregates, nothing)
        return await forget.forget(aggregates, walk, Order(way, ANA, started.action_id, undecided), nothing)


def nothing(_what: str, _count: int) -> None:
    """Tell nobody how far it is."""


@pytest.fixture
async def forgetting(database: str) -> AsyncIterator[Forgetting]:
    """Forgetting in an empty outbox."""
    async with await connect_async(database) as connection:
        yield Forgetting(connection)


async def test_what_was_published_or_discarded_is_removed_and_recorded(forgetting: Forgetting, database: str) -> None:
    """Other aggregates stay; the record tells which rows, and nothing of whom they were about."""
    store(database, about(), about(dedup_key=SECRET), about("other"), event(1))
    publish(database, f"aggregate_id = '{SECRET}' and dedup_key is null")
    fail(database, "dedup_key is not null", "discarded")

    assert await forgetting.found() == {State.PUBLISHED: 1, State.DISCARDED: 1}
    done = await forgetting(Way.REMOVE)

    assert (done.done, done.left, done.since) == (2, 0, 0)
    assert count(database) == 2
    with psycopg.connect(database) as connection:
        connection.execute("delete from outbox_events")
        recorded = connection.execute(
            """select action, acted_by, why, action_id::text, published_at is null, failure_reason
                 from outbox_actions order by row_id"""
        ).fetchall()
    assert SECRET not in everything(database)
    assert recorded == [
        ("remove", "ana", "ticket 815", done.action_id, False, None),
        ("remove", "ana", "ticket 815", done.action_id, True, "discarded"),
    ]
    assert (await forgetting(Way.REMOVE)).done == 0


async def test_a_redacted_row_keeps_its_place_and_tells_nothing(forgetting: Forgetting, database: str) -> None:
    """Its ids, type, times and topic stay; it is about nobody, and is not found again."""
    kept = """select id, event_id, event_type, aggregate_type, topic, message_id, published_at, created_at, failed_at,
                     payload -> 'occurred_at', payload -> 'version', last_error_code from outbox_events order by id"""
    store(database, about(ordering_key=SECRET, dedup_key=SECRET), about())
    publish(database, "ordering_key is not null")
    fail(database, "ordering_key is null", "discarded")
    with psycopg.connect(database) as connection:
        before = connection.execute(kept.encode()).fetchall()

    done = await forgetting(Way.REDACT)

    assert done.rows == {State.PUBLISHED: 1, State.DISCARDED: 1, State.PENDING: 0, State.FAILED: 0}
    assert SECRET not in everything(database)
    with psycopg.connect(database) as connection:
        assert connection.execute(kept.encode()).fetchall() == before
    assert count(database, REDACTED) == 2
    assert await forgetting.found() == {}
    assert await forgetting.found("(forgotten)") == {}


async def test_somebody_may_be_called_like_what_was_forgotten(forgetting: Forgetting, database: str) -> None:
    """The marker is in the payload, where no event can have it."""
    store(database, about("(forgotten)", data={"redacted": True}), about())
    publish(database)
    await forgetting(Way.REDACT)

    assert await forgetting.found("(forgotten)") == {State.PUBLISHED: 1}
    assert (await forgetting(Way.REMOVE, "(forgotten)")).done == 1
    assert count(database, REDACTED) == 1


async def test_ids_are_exact_in_every_byte(forgetting: Forgetting, database: str) -> None:
    """Neither case, nor blanks, nor another normal form is the same; a quote is a quote."""
    ids = [
        "a'b\"c",
        "a%b_",
        "é",
        "e\u0301",
        " 1",
        "1",
        "1 ",
        "x" * 1024,
        "ﬁ",
        "fi",
        "Ä",
        "ä",
        "line\nbreak",
        "\\",
        "{1,2}",
    ]
    store(database, *map(about, ids), event(1, aggregate_type="users", aggregate_id="1"))
    publish(database)

    for id_ in ids:
        assert await forgetting.found(id_) == {State.PUBLISHED: 1}
    assert (await forgetting(Way.REMOVE, *ids)).done == len(ids)
    assert count(database) == 1


async def test_pending_and_failed_rows_are_left_unless_they_are_asked_for(
    forgetting: Forgetting, database: str
) -> None:
    """With them their events are never published: a removed row is gone, a redacted one is given up."""
    for way, left in ((Way.REMOVE, 0), (Way.REDACT, 3)):
        store(database, about(), about(ordering_key="k"), about(), event(1))
        fail(database, "ordering_key is not null")
        publish(database, "id = (select max(id) from outbox_events where aggregate_type = 'user')")
        assert await forgetting.found() == {State.PUBLISHED: 1, State.PENDING: 1, State.FAILED: 1}

        assert (await forgetting(way)).rows[State.PUBLISHED] == 1
        assert await forgetting.found() == {State.PENDING: 1, State.FAILED: 1}

        assert (await forgetting(way, undecided=True)).done == 2
        assert SECRET not in everything(database)
        assert count(database, REDACTED) == left
        assert count(database, "published_at is null and failed_at is null") == 1
        change(database, "delete from outbox_events where aggregate_type <> 'user'")
    assert count(database, "failure_reason = 'discarded' and not blocks_key and failed_at is not null") == 2


async def test_what_was_redacted_is_never_published_again(forgetting: Forgetting, database: str) -> None:
    """Neither by its name, nor by a filter; a plan says the same. Its history says what it had been."""
    store(database, about(), about())
    fail(database, "id = (select min(id) from outbox_events)", "discarded")
    await forgetting(Way.REDACT, undecided=True)
    rows = FailedRows(forgetting._connection, "public", {"patterns": [], "pattern_topics": [], "default_topic": "t"})

    given_up = await rows.page(Filter(reason="discarded"), 10)
    assert [row.redacted for row in given_up] == [True, True]
    assert (await failed.choose(rows, Action.RETRY, Filter(reason="discarded"))).chosen == 0
    done = await failed.act(rows, Action.RETRY, Filter(reason="discarded"), ANA)
    assert (done.acted, done.skipped) == (0, 2)
    _, action_id, _ = await rows.start()
    stale = [row._replace(redacted=False) for row in given_up]
    assert await rows.act(Action.RETRY, stale, ANA, action_id) == []
    histories = [(await failed.shown(rows, row))["history"] for row in given_up]
    assert sorted((entry["action"], entry["failure_reason"] or "") for (entry,) in histories) == [
        ("redact", ""),
        ("redact", "discarded"),
    ]


async def test_rows_that_change_between_the_walk_and_the_change(forgetting: Forgetting, database: str) -> None:
    """Published since: fine. Pending again, about somebody else, or gone: left, and counted."""
    store(database, *[about() for _ in range(5)])
    fail(database, "true", "discarded")
    walk = await forget.find(forgetting.of(), nothing)
    ids = walk.ids[State.DISCARDED]
    change(
        database,
        "update outbox_events set failed_at = null, failure_reason = null where id = any(%s)",
        [ids[0], ids[1]],
    )
    publish(database, f"id = {ids[0]}")
    change(database, "update outbox_events set aggregate_id = 'other' where id = %s", ids[2])
    change(database, "delete from outbox_events where id = %s", ids[3])

    done = await forgetting(Way.REMOVE, walk=walk)

    assert (done.rows[State.PUBLISHED], done.rows[State.DISCARDED], done.left) == (1, 1, 3)
    assert count(database) == 2


async def test_what_is_stored_meanwhile_is_left_and_told(forgetting: Forgetting, database: str) -> None:
    """The command means what was there when it began."""
    store(database, about())
    publish(database)
    walk = await forget.find(forgetting.of(), nothing)
    store(database, about(), event(1))

    done = await forgetting(Way.REMOVE, walk=walk)

    assert (done.done, done.since) == (1, 1)
    assert await forgetting.found() == {State.PENDING: 1}


async def test_a_transaction_from_before_the_command_is_waited_for(forgetting: Forgetting, database: str) -> None:
    """Its rows have lower ids than what is there already; where it stays open too long, that is told."""
    async with await psycopg.AsyncConnection.connect(database) as open_one:
        drawn = await open_one.execute("select pg_current_xact_id(), nextval('outbox_events_id_seq')")
        ((_, lower),) = await drawn.fetchall()
        store(database, about())
        assert not (await forget.find(forgetting.of(), nothing, patience=0.1)).settled

        looking = asyncio.create_task(forgetting.found(patience=60.0))
        await open_one.execute(
            """insert into outbox_events (id, event_id, event_type, aggregate_type, aggregate_id, payload)
               overriding system value
               select %s, id, 'order.paid', 'user', %s,
                      jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1,
                                         'occurred_at', '2024-01-31T12:00:00Z', 'actor', null, 'data', null)
                 from gen_random_uuid() as id""",
            (lower, SECRET),
        )
        await open_one.commit()
        assert await looking == {State.PENDING: 2}


async def test_a_key_goes_on_when_what_held_it_up_is_forgotten(forgetting: Forgetting, database: str) -> None:
    """And a relay that sleeps is woken for it; removing what was published wakes nobody."""
    store(database, about(ordering_key="k"), event(2, ordering_key="k"), about())
    fail(database, f"aggregate_id = '{SECRET}' and ordering_key is not null")
    publish(database, f"aggregate_id = '{SECRET}' and ordering_key is null")
    with psycopg.connect(database, autocommit=True) as listener:
        (table,) = listener.execute("select 'outbox_events'::regclass::oid").fetchone() or (0,)
        listener.execute(f"listen outbox_{table}".encode())
        await forgetting(Way.REMOVE)
        assert list(listener.notifies(timeout=0)) == []
        await forgetting(Way.REMOVE, undecided=True)
        assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1
    assert count(database, "blocks_key") == 0
    assert count(database, "published_at is null") == 1


async def test_a_row_that_somebody_holds_is_waited_for_and_then_told_of(
    forgetting: Forgetting, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole batches before it are done, and the same command finishes."""
    monkeypatch.setattr(forget, "BATCH", 2)
    store(database, *[about() for _ in range(4)])
    walk = await forget.find(forgetting.of(), nothing)
    async with await psycopg.AsyncConnection.connect(database) as holder:
        await holder.execute("select from outbox_events where id = (select max(id) from outbox_events) for update")
        shorten(monkeypatch)
        with pytest.raises(OperateError, match=r"2 row\(s\) are done and recorded; another session"):
            await forgetting(Way.REMOVE, undecided=True, walk=walk)
        await holder.rollback()
    assert count(database) == 2
    assert (await forgetting(Way.REMOVE, undecided=True)).done == 2


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an operator's transaction wait for a moment only."""
    monkeypatch.setattr("relay.outbox.queue.statement", lambda name: statement(name).replace(b"'30s'", b"'100ms'"))


async def test_a_row_that_is_published_while_it_is_waited_for_is_forgotten_as_published(
    forgetting: Forgetting, database: str
) -> None:
    """A relay has it when the command comes: what counts is what it is when the relay lets go."""
    store(database, about())
    walk = await forget.find(forgetting.of(), nothing)
    async with await psycopg.AsyncConnection.connect(database) as relay:
        await relay.execute("select from outbox_events for update")
        waiting = asyncio.create_task(forgetting(Way.REMOVE, undecided=True, walk=walk))
        await until_async(lambda: waits(database), "the command waits for the row")
        await relay.execute("update outbox_events set published_at = clock_timestamp(), message_id = 'm'")
        await relay.commit()
    done = await waiting

    assert {state: rows for state, rows in done.rows.items() if rows} == {State.PUBLISHED: 1}
    with psycopg.connect(database) as connection:
        assert connection.execute("select published_at is not null from outbox_actions").fetchall() == [(True,)]


async def waits(url: str) -> bool:
    """Whether somebody waits for a lock in this database."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await connection.execute(
            "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return found.rowcount > 0


async def test_a_command_that_is_killed_has_done_whole_batches_and_the_same_one_finishes(
    forgetting: Forgetting, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is recorded where it is forgotten, and only there."""
    monkeypatch.setattr(forget, "BATCH", 2)
    store(database, *[about() for _ in range(5)])
    publish(database)
    with psycopg.connect(database) as connection:
        # The second batch loses its session between the record and the change.
        connection.execute(
            """create function die() returns trigger language plpgsql as $$
               begin
                   if old.id % 4 = 0 then perform pg_terminate_backend(pg_backend_pid()); end if;
                   return old;
               end $$"""
        )
        connection.execute("create trigger die before delete on outbox_events for each row execute function die()")

    with pytest.raises(psycopg.OperationalError):
        await forgetting(Way.REMOVE)
    with psycopg.connect(database) as connection:
        assert connection.execute("select array_agg(row_id order by id) from outbox_actions").fetchone() == ([1, 2],)
        assert connection.execute("select array_agg(id order by id) from outbox_events").fetchone() == ([3, 4, 5],)
        connection.execute("drop trigger die on outbox_events")

    async with await connect_async(database) as another:
        assert (await Forgetting(another)(Way.REMOVE)).done == 3
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*), count(distinct row_id) from outbox_actions").fetchone() == (5, 5)


async def test_the_record_and_the_change_are_one(forgetting: Forgetting, database: str) -> None:
    """Without its record, nothing is forgotten."""
    store(database, about())
    publish(database)
    change(database, "alter table outbox_actions add constraint nobody check (acted_by <> 'ana')")

    with pytest.raises(psycopg.errors.CheckViolation):
        await forgetting(Way.REMOVE)

    assert count(database) == 1


async def test_two_commands_for_the_same_person_forget_each_row_once(forgetting: Forgetting, database: str) -> None:
    """Whoever comes second finds it gone."""
    store(database, *[about() for _ in range(1_200)])
    publish(database)
    async with await connect_async(database) as connection:
        other = Forgetting(connection)
        one, two = await asyncio.gather(forgetting(Way.REMOVE), other(Way.REDACT))

    with psycopg.connect(database) as connection_:
        recorded = connection_.execute("select count(*), count(distinct row_id) from outbox_actions").fetchone()
    assert recorded == (1_200, 1_200)
    assert one.done + two.done == 1_200
    assert count(database) == count(database, REDACTED) == two.done


async def test_pages_follow_each_other_without_a_gap(
    forgetting: Forgetting, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the ids have holes."""
    monkeypatch.setattr(forget, "PAGE", 3)
    store(database, *[about(str(number % 2)) for number in range(20)])
    change(database, "delete from outbox_events where id % 5 = 0")
    publish(database)
    read: list[int] = []

    walk = await forget.find(forgetting.of("1"), lambda what, rows: read.append(rows) if what == "rows read" else None)

    assert walk.counts[State.PUBLISHED] == count(database, "aggregate_id = '1'")
    assert read == [3, 6, 9, 12, 15, 16]
