"""The take-over: what waits is moved once and in order, and from its commit on every new row is an event."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import emit
from relay.adopt import crash_points, moving
from relay.adopt.crash_points import Point
from relay.adopt.mapping import Refused
from relay.errors import ConfigurationError, MigrationError, OperateError
from relay.outbox import schema
from relay.postgres.connect import connect
from tests.support import old_outboxes as old
from tests.support.bench import Bench
from tests.support.outbox import event
from tests.support.waiting import until

SERVICE, PASSWORD = "adopt_service", "only-in-this-test"
INSERT = "insert into shop.events (kind, order_id, payload) values ('order.paid', %s, '{}') returning id"
# Old rows beside their events, both in their order.
PAIRS = """
select e.id, o.id from shop.events e left join outbox_events o on o.event_id = e.uuid order by e.id"""
WAITING = "select count(*) from shop.events where sent_at is null"


def in_order(url: str, rows: int) -> None:
    """Every row is an event, no event is anything else, each key has the order of the old ids, and nothing waits."""
    pairs = old.rows_of(url, PAIRS)
    assert len(pairs) == rows
    assert all(event_id is not None for _, event_id in pairs)
    assert [event_id for _, event_id in pairs] == sorted(event_id for _, event_id in pairs)
    assert old.rows_of(url, "select count(*) from outbox_events") == [(rows,)]
    assert old.rows_of(url, WAITING) == [(0,)]


def insert(url: str, order: int = 1) -> None:
    """A service stores a row."""
    with psycopg.connect(url) as connection:
        connection.execute(INSERT, [order])


@contextmanager
def in_background(work: Any, *arguments: Any, **options: Any) -> Iterator[list[Any]]:
    """Run it beside the block; what it answered or raised is there when the block has ended."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work(*arguments, **options))
        except Exception as error:  # noqa: BLE001 -- the test looks at it
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(60)
        assert not thread.is_alive()


def waiters(url: str, mode: str) -> int:
    """How many sessions wait for a lock of that mode on the old table."""
    ((found,),) = old.rows_of(
        url,
        "select count(*) from pg_locks where not granted and relation = 'shop.events'::regclass "  # noqa: S608 -- a test's own words
        f"and mode = '{mode}'",
    )
    return int(found)


def test_the_backlog_is_moved_and_new_rows_are_events(database: str) -> None:
    """In the order of ids, over several batches; an old publisher that still looks finds nothing."""
    old.home_made(database, rows=950, sent=0)
    moved = old.adopted(database, batch=100, publisher_stopped=True)
    assert (moved.rows, moved.stored) == (950, 950)
    for order in (1, 2, 1):
        insert(database, order)
    in_order(database, 953)


async def test_what_was_moved_is_published_as_it_was_stored(database: str) -> None:
    """The relay needs to know nothing of where an event came from."""
    old.home_made(database, rows=20)
    old.adopted(database)
    insert(database)
    bench = Bench(database)
    await bench.run_once()
    await bench.publisher.close()
    wanted = {str(uuid) for (uuid,) in old.rows_of(database, "select uuid from shop.events")}
    assert sorted(bench.broker.event_ids) == sorted(wanted)


def test_taking_over_twice_changes_nothing(database: str) -> None:
    """Nor does a third time with another mapping, but for new rows."""
    old.home_made(database, rows=10)
    old.adopted(database)
    assert old.adopted(database).rows == 0
    insert(database)
    old.adopted(database, old.words(fields={"event_type": "'order.' || kind"}))
    insert(database)
    in_order(database, 12)
    types = old.rows_of(database, "select event_type from outbox_events order by id desc limit 2")
    assert types == [("order.order.paid",), ("order.paid",)]


def test_rows_that_are_set_back_wait_until_they_are_moved(database: str) -> None:
    """The trigger is for new rows; the shadow tells of others, and one more take-over moves them, once each."""
    old.home_made(database, rows=4)
    old.adopted(database, old.words(fields={"event_id": None}))
    old.run(database, "update shop.events set sent_at = null where id = 2")
    found = old.shadow(database)
    assert (found.taken_over, found.pending, found.taken) == (True, 1, 1)
    assert old.adopted(database).rows == 1
    assert old.rows_of(database, "select count(*) from outbox_events") == [(5,)]


def test_an_event_that_the_outbox_has_is_marked_and_not_stored_again(database: str) -> None:
    """As where a service writes both for a while: in the backlog, and behind the trigger."""
    old.home_made(database, rows=3)
    read = old.words(fields={"ordering_key": None, "occurred_at": None, "attributes": None})
    with psycopg.connect(database) as connection:
        for number, uuid, payload in connection.execute("select id, uuid, payload from shop.events where id < 3"):
            emit(connection, event(number, event_id=uuid, data=payload))
    assert old.adopted(database, read).stored == 1
    with psycopg.connect(database) as connection:
        emitted = emit(connection, event(4))
        connection.execute(
            "insert into shop.events (uuid, kind, order_id, payload) values (%s, 'order.paid', 1, '{}')",
            [emitted.event_id],
        )
    in_order(database, 4)


def test_a_row_that_is_inserted_as_sent_is_no_event(database: str) -> None:
    """It does not wait, and nobody would have sent it before either."""
    old.home_made(database)
    old.adopted(database)
    old.run(database, "insert into shop.events (kind, order_id, payload, sent_at) values ('a.b', 1, '{}', now())")
    assert old.rows_of(database, "select count(*) from outbox_events") == [(0,)]


def test_a_row_that_meets_a_conflict_is_no_event(database: str) -> None:
    """Only what is really inserted is emitted, by whichever statement, and not what a rollback takes back."""
    old.home_made(database, rows=1)
    old.run(database, "create unique index on shop.events (uuid)")
    old.adopted(database)
    again = "insert into shop.events (uuid, kind, order_id, payload) select uuid, kind, 1, '{}' from shop.events on "
    old.run(database, f"{again} conflict do nothing")
    old.run(database, f"{again} conflict (uuid) do update set kind = 'order.changed'")
    with psycopg.connect(database) as connection:
        connection.execute(INSERT, [1])
        connection.rollback()
        with connection.cursor().copy("copy shop.events (kind, order_id, payload) from stdin") as copy:
            copy.write_row(("order.copied", 7, "{}"))
    types = old.rows_of(database, "select event_type from outbox_events order by id")
    assert types == [("order.paid",), ("order.copied",)]


def test_a_transaction_that_began_before_and_inserts_later_is_caught(database: str) -> None:
    """It has a snapshot from before the trigger, a prepared statement too, and still runs it."""
    old.home_made(database, rows=1)
    with psycopg.connect(database, prepare_threshold=0) as connection:
        connection.execute("prepare later as insert into shop.events (kind, order_id, payload) values ('a.b', 1, '{}')")
        connection.commit()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert connection.execute("select count(*) from outbox_events").fetchone() == (0,)
        old.adopted(database)
        connection.execute("execute later")
        connection.commit()
    in_order(database, 2)


def test_a_transaction_that_inserted_before_and_commits_late_is_waited_for(database: str) -> None:
    """Its row has a lower id than rows that were moved long ago, and is moved with the last of them."""
    old.home_made(database)
    with psycopg.connect(database) as late:
        late.execute(INSERT, [1])
        insert(database, 2)
        terms: dict[str, Any] = {"lock_timeout": timedelta(seconds=30), "publisher_stopped": True}
        with in_background(old.adopted, database, **terms) as outcome:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over waits for the table")
            assert old.rows_of(database, "select count(*) from outbox_events") == [(1,)], "the backlog was moved"
            late.execute(INSERT, [1])
            late.commit()
    assert outcome[0].rows == 3
    insert(database)
    assert old.rows_of(database, "select count(*) from outbox_events") == [(4,)]
    assert old.rows_of(database, WAITING) == [(0,)]


def test_a_row_that_is_committed_behind_a_pass_goes_before_what_follows_from_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same service stores the next row of its key when it has committed the last one, and a pass is at work."""
    old.home_made(database, rows=4)
    batches: list[Point] = []
    with psycopg.connect(database) as service:
        service.execute(INSERT, [70])
        for _ in range(4):
            insert(database)

        def reached(point: Point) -> None:
            if point is Point.COMMIT_AFTER:
                batches.append(point)
                if len(batches) == 3:
                    assert old.rows_of(database, WAITING) == [(2,)]  # of those that are committed
                    service.commit()
                    insert(database, 70)

        monkeypatch.setattr(crash_points, "reached", reached)
        old.adopted(database, batch=2, publisher_stopped=True)
    assert len(batches) > 4
    pairs = old.rows_of(database, PAIRS.replace("order by", "where e.order_id = 70 order by"))
    assert len(pairs) == 2
    assert pairs == sorted(pairs, key=lambda pair: pair[1])


def test_a_publisher_in_the_middle_of_its_batch_ends_it_first(database: str) -> None:
    """It has locked rows and is yet to mark them: no deadlock, and the rows are its own."""
    old.home_made(database, rows=30)
    with psycopg.connect(database) as publisher:
        taken = publisher.execute(
            "select id from shop.events where sent_at is null order by id desc limit 10 for update skip locked"
        ).fetchall()
        with in_background(old.adopted, database, batch=5, publisher_stopped=True) as outcome:
            until(lambda: old.rows_of(database, "select count(*) from outbox_events") == [(20,)], "the rest is moved")
            publisher.execute("update shop.events set sent_at = now() where id = any (%s)", [[row[0] for row in taken]])
            publisher.commit()
    assert outcome[0].rows == 20
    assert old.rows_of(database, WAITING) == [(0,)]


def test_a_publisher_that_locked_rows_of_the_last_batch_marks_them_without_a_deadlock(database: str) -> None:
    """A weaker lock of the table would let it lock rows, and have it wait for us while we wait for it."""
    old.home_made(database)
    with psycopg.connect(database) as publisher, psycopg.connect(database) as late:
        late.execute(INSERT, [1])
        with in_background(old.adopted, database, lock_timeout=timedelta(seconds=30)) as outcome:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over waits for the table")
            late.commit()
        publisher.execute("select id from shop.events where sent_at is null for update skip locked")
    assert outcome[0].rows == 1
    with psycopg.connect(database) as publisher:
        insert(database)
        publisher.execute("select id from shop.events for update")
        with in_background(old.adopted, database, lock_timeout=timedelta(seconds=30)) as outcome:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over waits for the publisher")
            publisher.execute("update shop.events set kind = kind")
            publisher.commit()
    assert outcome[0].rows == 0


def test_who_holds_the_table_is_named_when_patience_ends(database: str) -> None:
    """The backlog stays moved, nothing of the trigger is there, and the same command goes on."""
    old.home_made(database, rows=5)
    with psycopg.connect(database) as late:
        late.execute(INSERT, [1])
        with pytest.raises(OperateError, match="could not be locked within 0:00:00"):
            old.adopted(
                database,
                lock_timeout=timedelta(milliseconds=50),
                patience=timedelta(milliseconds=800),
                publisher_stopped=True,
            )
        assert old.rows_of(database, "select count(*) from outbox_events") == [(5,)]
        assert old.rows_of(database, "select count(*) from pg_trigger where tgname = 'outbox_adopt'") == [(0,)]
        assert old.rows_of(database, "select count(*) from pg_proc where proname like 'outbox_adopt%'") == [(0,)]
    assert old.adopted(database).rows == 1


def test_services_wait_no_longer_than_they_may(database: str) -> None:
    """A last transaction that takes longer is undone, and says what would make it short."""
    old.home_made(database, rows=5)
    old.run(
        database,
        "create function shop.slow(kind text) returns text language plpgsql stable as "
        "$$begin perform pg_sleep(0.05); return kind; end$$",
    )
    with psycopg.connect(database) as late:
        late.execute(
            "insert into shop.events (kind, order_id, payload) select 'a.b', 1, '{}' from generate_series(1, 20)"
        )
        words = old.words(fields={"event_type": "shop.slow(kind)"})
        terms: dict[str, Any] = {
            "hold": timedelta(milliseconds=200),
            "lock_timeout": timedelta(seconds=60),
            "publisher_stopped": True,
        }
        with in_background(old.adopted, database, words, **terms) as outcome:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over waits for the table", 60)
            late.commit()
    (error,) = outcome
    assert isinstance(error, OperateError)
    assert "create index concurrently" in str(error)
    assert old.rows_of(database, WAITING) == [(20,)]


def test_a_long_backlog_with_keys_needs_the_old_publisher_stopped(database: str) -> None:
    """Two publishers side by side would overtake each other within a key; a short one is moved under the lock."""
    old.home_made(database, rows=30)
    with pytest.raises(OperateError, match="--publisher-stopped"):
        old.adopted(database, batch=29)
    assert old.rows_of(database, "select count(*) from outbox_events") == [(0,)]
    assert old.adopted(database, batch=30).rows == 30


def test_beside_a_publisher_that_runs_nothing_is_moved_ahead_of_the_lock(database: str) -> None:
    """It would send the later rows of a key that come meanwhile, before the relay has sent those that were moved."""
    old.home_made(database, rows=5)
    with psycopg.connect(database) as late:
        late.execute(INSERT, [1])
        with in_background(old.adopted, database, lock_timeout=timedelta(milliseconds=50)) as outcome:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over tries to lock the table")
            with psycopg.connect(database) as publisher:
                chosen = "select id from shop.events where sent_at is null order by id for update skip locked"
                assert [row for (row,) in publisher.execute(chosen).fetchall()] == [1, 2, 3, 4, 5]
                publisher.execute("update shop.events set sent_at = now() where id <= 5")
            late.commit()
    assert [each.rows for each in outcome] == [1]
    assert old.rows_of(database, "select count(*) from outbox_events") == [(1,)]


def test_a_row_that_turned_bad_since_the_comparison_stops_the_move(database: str) -> None:
    """It is named by its id, the batches before it stay, and the command goes on once it is put right."""
    old.home_made(database, rows=30)
    old.run(database, "update shop.events set kind = null where id = 25")
    with pytest.raises(OperateError, match=r"row 25 of shop\.events cannot be taken: has no event_type"):
        old.adopted(database, batch=10, publisher_stopped=True)
    assert old.rows_of(database, "select count(*) from outbox_events") == [(20,)]
    old.run(database, "update shop.events set kind = 'order.paid' where id = 25")
    assert old.adopted(database).rows == 10
    in_order(database, 30)


@pytest.mark.slow("writes many large rows")
def test_large_rows_are_moved_a_few_at_a_time(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a statement stores is bounded; a row of 9 MB goes alone where it must, and the order is kept."""
    monkeypatch.setattr(moving, "_BYTES", 12_000_000)
    old.home_made(database)
    old.run(
        database,
        "insert into shop.events (kind, order_id, payload) select 'a.b', 1, "
        "to_jsonb(repeat('x', case when n % 3 = 0 then 9000000 else 4000000 end)) from generate_series(1, 9) as n",
    )
    assert old.shadow(database).taken == 9
    assert old.adopted(database).rows == 9
    old.run(
        database, "insert into shop.events (kind, order_id, payload) values ('a.b', 1, to_jsonb(repeat('x', 9000000)))"
    )
    in_order(database, 10)


def test_a_new_row_that_is_no_event_fails_its_insert(database: str) -> None:
    """With outbox_emit's words, in the service that stores it."""
    old.home_made(database)
    old.adopted(database)
    with pytest.raises(pg.InvalidParameterValue, match="outbox_emit: event 0 has no event_type"):
        old.run(database, "insert into shop.events (order_id, payload) values (1, '{}')")
    assert old.rows_of(database, "select count(*) from shop.events") == [(0,)]


def test_a_new_row_that_is_no_event_may_be_kept_instead(database: str) -> None:
    """It waits in the old table, with a warning for the service and a word from the shadow; others are events."""
    old.home_made(database)
    old.adopted(database, refused=Refused.KEEP)
    notices: list[tuple[str | None, str | None]] = []
    with psycopg.connect(database) as connection:
        connection.add_notice_handler(lambda notice: notices.append((notice.sqlstate, notice.message_primary)))
        connection.execute("insert into shop.events (kind, order_id, payload) values (null, 1, '{}'), ('a.b', 1, '{}')")
    assert notices == [("22023", "outbox_adopt: a row of shop.events is no event and stays pending")]
    assert old.rows_of(database, "select event_type from outbox_events") == [("a.b",)]
    found = old.shadow(database)
    assert (found.pending, found.refused["has no event_type"].first) == (1, ["1"])


def test_a_service_needs_no_right_beyond_its_own_table(database: str) -> None:
    """The trigger has the owner's rights, and cannot be called or misled by others."""
    old.home_made(database)
    old.adopted(database)
    role = sql.Identifier(SERVICE)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            owner.execute(sql.SQL("grant usage, create on schema shop to {}").format(role))
            owner.execute(sql.SQL("grant insert on shop.events to {}").format(role))
            with psycopg.connect(make_conninfo(database, user=SERVICE, password=PASSWORD)) as service:
                service.execute(
                    "create function shop.now() returns timestamptz language sql as $$select null::timestamptz$$"
                )
                service.execute("set search_path to shop, pg_catalog")
                service.execute("set timezone to 'Asia/Kathmandu'")
                service.execute("insert into shop.events (kind, order_id, payload) values ('a.b', 1, '{}')")
                service.commit()
                with pytest.raises(pg.InsufficientPrivilege):
                    service.execute("select * from public.outbox_adopt_shop_events_row(1)")
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(role))
            owner.execute(sql.SQL("drop role {}").format(role))
    in_order(database, 1)


def test_a_table_is_given_back(database: str) -> None:
    """Rows wait again, for whoever sends them; nothing of ours is left; and it can be taken over once more."""
    old.home_made(database, rows=3)
    old.adopted(database)
    insert(database)
    assert old.released(database)
    assert not old.released(database)
    insert(database)
    assert old.rows_of(database, WAITING) == [(1,)]
    assert old.rows_of(database, "select count(*) from pg_proc where proname like 'outbox_adopt%'") == [(0,)]
    assert old.adopted(database).rows == 1
    in_order(database, 5)


def test_a_table_that_was_renamed_is_given_back_whole(database: str) -> None:
    """Or taken over anew: functions of the name that it had are not left behind."""
    functions = "select proname from pg_proc where proname like 'outbox_adopt%' order by 1"
    old.home_made(database, rows=3)
    old.adopted(database)
    old.run(database, "alter table shop.events rename to past; alter schema shop rename to store")
    old.run(database, "insert into store.past (kind, order_id, payload) values ('a.b', 1, '{}')")
    assert old.rows_of(database, "select count(*) from outbox_events") == [(4,)]
    old.adopted(database, old.words(table="store.past"))
    assert [name for (name,) in old.rows_of(database, functions)] == [
        "outbox_adopt_store_past", "outbox_adopt_store_past_mark", "outbox_adopt_store_past_row"
    ]  # fmt: skip
    old.run(database, "alter table store.past rename to events")
    assert old.released(database, "store.events")
    assert old.rows_of(database, functions) == []


def test_two_who_take_over_at_once_move_each_row_once(database: str) -> None:
    """One waits for the other's rows, finds them marked, and goes on."""
    old.home_made(database, rows=2_000)
    terms: dict[str, Any] = {"batch": 50, "publisher_stopped": True}
    with in_background(old.adopted, database, None, **terms) as first:
        second = old.adopted(database, None, **terms)
    assert first[0].rows + second.rows == 2_000
    insert(database)
    in_order(database, 2_001)


def test_giving_back_waits_for_who_inserts(database: str) -> None:
    """Its row is an event; the next one waits: none is both or neither."""
    old.home_made(database)
    old.adopted(database)
    with psycopg.connect(database) as service:
        service.execute(INSERT, [1])
        with in_background(old.released, database) as outcome:
            until(lambda: waiters(database, "AccessExclusiveLock") == 1, "the release waits for the service")
            service.execute(INSERT, [1])
            service.commit()
    assert outcome == [True]
    insert(database)
    assert old.rows_of(database, "select count(*) from outbox_events") == [(2,)]
    assert old.rows_of(database, WAITING) == [(1,)]


@pytest.mark.parametrize("before", [False, True])
def test_giving_back_waits_for_who_takes_over(database: str, *, before: bool) -> None:
    """It removes what is there when its turn comes, and says so; neither fails of what the other drops."""
    old.home_made(database)
    if before:
        old.adopted(database)
    waiting = (
        "select count(*) from pg_locks where not granted and locktype = 'advisory' "
        "and database = (select oid from pg_database where datname = current_database())"
    )
    with psycopg.connect(database) as service:
        service.execute(INSERT, [1])
        with in_background(old.adopted, database, lock_timeout=timedelta(seconds=30)) as taken:
            until(lambda: waiters(database, "ExclusiveLock") == 1, "the take-over waits for the service")
            with in_background(old.released, database) as released:
                until(lambda: old.rows_of(database, waiting) == [(1,)], "the release waits for the take-over")
                service.commit()
    assert [each.rows for each in taken] == [0 if before else 1]
    assert released == [True]
    assert old.rows_of(database, "select count(*) from pg_proc where proname like 'outbox_adopt%'") == [(0,)]


@pytest.mark.parametrize("target", [0, 1])
def test_the_outbox_does_not_go_away_under_a_table_that_is_taken_over(database: str, target: int) -> None:
    """Every insert into that table would fail; a step back says which command comes first."""
    old.home_made(database)
    old.adopted(database)
    with closing(connect(database)) as connection:
        with pytest.raises(MigrationError, match="relay adopt --table"):
            schema.migrate(connection, "public", target)
        insert(database)
        old.run(database, "delete from outbox_events")
        old.released(database)
        schema.migrate(connection, "public", target)


def test_columns_that_the_mapping_needs_cannot_be_dropped_by_mistake(database: str) -> None:
    """Nor the table: services would find out by failing inserts. Other columns come and go."""
    old.home_made(database, rows=1)
    old.adopted(database)
    for change in ("alter table shop.events drop column payload", "drop table shop.events"):
        with pytest.raises(pg.DependentObjectsStillExist):
            old.run(database, change)
    old.run(
        database, "alter table shop.events add column note text; alter table shop.events rename column kind to type"
    )
    old.run(database, "insert into shop.events (type, order_id, payload) values ('a.b', 1, '{}')")
    assert old.rows_of(database, "select event_type from outbox_events order by id desc limit 1") == [("a.b",)]


@pytest.fixture
def other(database: str) -> Iterator[str]:
    """A role that owns the old table, and has nothing of the outbox but the right to look."""
    old.home_made(database, rows=2)
    role = sql.Identifier(SERVICE)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            owner.execute(sql.SQL("grant usage on schema shop to {}").format(role))
            owner.execute(sql.SQL("grant select on outbox_events, outbox_migrations to {}").format(role))
            owner.execute(sql.SQL("alter table shop.events owner to {}").format(role))
            yield make_conninfo(database, user=SERVICE, password=PASSWORD)
        finally:
            owner.execute(sql.SQL("drop owned by {} cascade").format(role))
            owner.execute(sql.SQL("drop role {}").format(role))


def test_a_table_of_another_role_is_not_taken_over(database: str, other: str) -> None:
    """Its owner could have triggers run with the rights of who takes it over, a superuser's for example."""
    with pytest.raises(ConfigurationError, match=f"belongs to role '{SERVICE}'"):
        old.adopted(database)
    assert old.shadow(database).taken == 2
    assert old.rows_of(other, "select count(*) from outbox_events") == [(0,)]


def test_the_owner_of_the_old_table_alone_needs_few_rights_of_the_outbox(database: str, other: str) -> None:
    """Without them it is told, and nothing is changed; with them its trigger stores, and can do nothing else."""
    with pytest.raises(ConfigurationError, match="permission denied for schema public"):
        old.adopted(other)
    assert old.rows_of(database, WAITING) == [(2,)]
    old.run(
        database,
        f"grant create on schema public to {SERVICE}; grant execute on function outbox_emit(jsonb) to {SERVICE}",
    )
    assert old.adopted(other).rows == 2
    insert(database)
    in_order(database, 3)
    assert old.released(other)


def test_a_mark_that_a_trigger_undoes_is_noticed(database: str) -> None:
    """Rows would be taken again and again: the batch is undone, and so is the insert of a new row."""
    old.home_made(database, rows=2)
    old.run(
        database,
        """
        create function shop.undo() returns trigger language plpgsql as $$begin return null; end$$;
        create trigger undo before update on shop.events for each row execute function shop.undo();
        alter table shop.events disable trigger undo""",
    )
    old.run(database, "alter table shop.events enable trigger undo")
    with pytest.raises(OperateError, match=r"2 row\(s\) of shop.events were to be marked, 0 were"):
        old.adopted(database)
    old.run(database, "alter table shop.events disable trigger undo")
    old.adopted(database)
    old.run(database, "alter table shop.events enable trigger undo")
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match=r"a new row of shop\.events waits although it is marked"):
        insert(database)
    assert old.rows_of(database, "select count(*) from outbox_events") == [(2,)]
