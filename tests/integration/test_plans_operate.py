"""The plans of what operators ask, pinned on a table whose statistics are wrong: none looks at published rows."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.statements import statement
from relay.testing.databases import fresh_database
from tests.support.plans import scans

ROWS = 5_000
FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload, available_at, ordering_key,
                           attempt_count, published_at, message_id, failed_at, failure_reason)
select id, 'order.paid', 'order', n::text,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', n),
       case state when 'scheduled' then now() + interval '1 day' when 'due' then now() when 'retrying' then now()
                  else '-infinity' end,
       case state when 'ordered' then 'k' || n %% 9 end, case state when 'retrying' then 1 else 0 end,
       case state when 'published' then now() end, case state when 'published' then 'm' end,
       case when state in ('failed', 'discarded') then now() end,
       case state when 'failed' then 'max_attempts' when 'discarded' then 'discarded' end
  from unnest(array['published', 'failed', 'discarded', 'scheduled', 'due', 'retrying', 'ordered', 'fresh']) as state,
       generate_series(1, %s) as n, lateral (select md5(state || n)::uuid as id) as identity
"""
# Of nine keys three wait behind a failed row, three behind one that is put off.
HOLD = """
update outbox_events as head
   set failed_at = case when key < 'k3' then now() end, failure_reason = case when key < 'k3' then 'max_attempts' end,
       blocks_key = key < 'k3', attempt_count = 1, available_at = now() + interval '1 day'
  from (select ordering_key as key, min(id) as first from outbox_events where ordering_key < 'k6' group by 1) as keys
 where head.id = first
"""
ROUTING = {"patterns": [], "pattern_topics": [], "default_topic": "t"}
PAGE = {
    **dict.fromkeys(
        ("type", "topic", "aggregate_type", "aggregate_id", "ordering_key", "reason", "code", "since", "until")
    ),
    **ROUTING,
    "discarded": False,
    "rows": 500,
    "after_time": "-infinity",
    "after_id": 0,
}


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[str]:
    """A database with rows in every state, for tests that commit nothing."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
            connection.execute(FILL, (ROWS,))
            connection.execute(HOLD)
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """An operator's transaction on the filled table, rolled back."""
    with psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(statement("operate_enter"), {"search_path": '"public"'})
        yield connection
        connection.rollback()


@pytest.mark.parametrize("most", [100_000, 2_000, 100])
@pytest.mark.parametrize("enter", ["operate_enter", "doctor_enter"])
def test_a_look_reads_the_indexes_of_what_waits_and_what_failed(filled: str, enter: str, most: int) -> None:
    """Each row that it counts is read, whichever limit ends it; no published one is."""
    with psycopg.connect(filled) as connection:
        connection.execute(statement(enter), {"search_path": '"public"'})
        queue, keys = (scans(connection, name, {"most": most, "keys": 10_000}) for name in ("queue", "keys"))
    failing = {"outbox_events_retrying", "outbox_events_unresolved"}
    assert {scan["Index Name"] for scan in queue} == {"outbox_events_fresh", "outbox_events_delayed", *failing}
    assert {scan["Index Name"] for scan in keys} == {"outbox_events_ordered", *failing}
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in (*queue, *keys)) == 0


@pytest.mark.parametrize("name", ["queue", "keys"])
def test_a_look_ends_at_its_limit(connection: psycopg.Connection[Any], name: str) -> None:
    """A backlog of any size costs the same."""
    found = scans(connection, name, {"most": 100, "keys": 4})
    read = [round(scan["Actual Rows"] * scan["Actual Loops"]) for scan in found]
    # Of keys what is due, put off and blocked is counted up to the limit each.
    assert max(read) <= 3 * 100
    assert sum(read) <= 7 * 100


def test_blocked_keys_are_found_by_what_failed_and_counted_within_bounds(connection: psycopg.Connection[Any]) -> None:
    """Twice as deep as the limit at most, however long they are."""
    found = scans(connection, "blocked_keys", {"most": 300, "keys": 10_000, "shown": 2})
    assert {scan["Index Name"] for scan in found} == {
        "outbox_events_unresolved",
        "outbox_events_ordered",
        "outbox_events_pkey",
    }
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in found) <= 3 * 300 + 2
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in found) == 0


def test_what_waits_behind_a_row_is_counted_by_its_key(connection: psycopg.Connection[Any]) -> None:
    """For whoever looks at it, and no further than the limit."""
    (head,) = connection.execute("select min(id) from outbox_events where blocks_key").fetchone() or (0,)
    found = scans(connection, "row_shown", {"id": head, "most": 100})
    assert {(scan["Index Name"], scan["Actual Rows"]) for scan in found if scan["Actual Rows"]} == {
        ("outbox_events_ordered", 100),
        ("outbox_events_pkey", 1),
    }


def test_what_a_row_waits_behind_is_found_by_its_key(connection: psycopg.Connection[Any]) -> None:
    """The first row of the key is the one, however many wait."""
    (last,) = connection.execute("select max(id) from outbox_events where ordering_key = 'k0'").fetchone() or (0,)
    found = scans(connection, "row_shown", {"id": last, "most": 100})
    assert {(scan["Index Name"], scan["Actual Rows"]) for scan in found if scan["Actual Rows"]} == {
        ("outbox_events_ordered", 1),
        ("outbox_events_pkey", 1),
    }


def test_causes_are_those_of_a_bounded_number_of_rows(connection: psycopg.Connection[Any]) -> None:
    """The newest of either kind."""
    found = scans(connection, "errors", {**ROUTING, "most": 100, "shown": 10})
    assert {(scan["Index Name"], scan["Actual Rows"]) for scan in found} == {
        ("outbox_events_unresolved", 100),
        ("outbox_events_retrying", 100),
    }


@pytest.mark.parametrize("enter", ["operate_enter", "doctor_enter"])
def test_topics_are_read_at_both_ends_of_what_waits(filled: str, enter: str) -> None:
    """So many rows at each, and no published one."""
    with psycopg.connect(filled) as connection:
        connection.execute(statement(enter), {"search_path": '"public"'})
        found = scans(connection, "doctor_topics", {"most": 100})
    assert sorted((scan["Index Name"], scan["Scan Direction"], scan["Actual Rows"]) for scan in found) == [
        (index, direction, 100)
        for index in ("outbox_events_delayed", "outbox_events_fresh", "outbox_events_ordered")
        for direction in ("Backward", "Forward")
    ]
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in found) <= 3  # the failed rows of blocked keys


def test_a_page_of_failed_rows_passes_over_what_was_discarded(connection: psycopg.Connection[Any]) -> None:
    """It reads what it answers with, and no more."""
    (scan,) = scans(connection, "failed_page", PAGE)
    assert (scan["Index Name"], scan["Actual Rows"]) == ("outbox_events_unresolved", 500)
    assert scan.get("Rows Removed by Filter", 0) == 0


def test_discarded_rows_have_an_index_too(connection: psycopg.Connection[Any]) -> None:
    """That of all failed rows."""
    (scan,) = scans(connection, "failed_page", {**PAGE, "discarded": True, "reason": "discarded"})
    assert scan["Index Name"] == "outbox_events_failed_rows"


def test_failed_rows_of_a_key_are_found_among_the_failed_rows(connection: psycopg.Connection[Any]) -> None:
    """And not among all that is stored."""
    (scan,) = scans(connection, "failed_page", {**PAGE, "ordering_key": "k0"})
    assert (scan["Index Name"], scan["Actual Rows"]) == ("outbox_events_unresolved", 1)


def test_rows_are_named_through_the_indexes_of_their_names(connection: psycopg.Connection[Any]) -> None:
    """One lookup a name."""
    event_ids = [row[0] for row in connection.execute("select event_id from outbox_events order by id limit 2")]
    found = scans(connection, "failed_named", {**ROUTING, "ids": [3, 4], "event_ids": event_ids})
    assert {scan["Index Name"] for scan in found} == {"outbox_events_pkey", "outbox_events_event_id"}
    assert max(scan["Actual Rows"] * scan["Actual Loops"] for scan in found) <= 4


@pytest.mark.parametrize("name", ["failed_retry", "failed_discard"])
def test_acting_looks_rows_up_by_id(connection: psycopg.Connection[Any], name: str) -> None:
    """As settling does."""
    chosen = connection.execute("select id from outbox_events where failed_at is not null order by id limit 500")
    ids = [row[0] for row in chosen]
    (lock,) = scans(connection, "failed_lock", {"ids": ids})
    assert (lock["Index Name"], lock["Actual Rows"]) == ("outbox_events_pkey", 500)
    record = {
        "ids": ids,
        "action_id": "0190163d-8694-739b-aea5-966c26f8ad91",
        "action": "retry",
        "by": "me",
        "why": "w",
    }
    (recorded,) = scans(connection, "actions_record", record)
    assert (recorded["Index Name"], recorded["Actual Loops"]) == ("outbox_events_pkey", 500)
    lookup, place = scans(connection, name, {"ids": ids})
    assert (lookup["Index Name"], place["Node Type"]) == ("outbox_events_pkey", "Tid Scan")


def test_history_is_found_by_its_row_and_by_its_command(connection: psycopg.Connection[Any]) -> None:
    """The record is never walked."""
    connection.execute(
        """insert into outbox_actions (action_id, action, acted_by, row_id, event_id, event_type, failed_at,
                                       failure_reason, attempt_count)
           select md5((n % 100)::text)::uuid, 'retry', 'me', n, md5(n::text)::uuid, 't', now(), 'max_attempts', 1
             from generate_series(1, 2000) as n"""
    )
    assert {scan["Index Name"] for scan in scans(connection, "actions_of_row", {"id": 7})} == {"outbox_actions_row"}
    assert {scan["Index Name"] for scan in scans(connection, "last_action", {"most": 100})} == {
        "outbox_actions_pkey",
        "outbox_actions_of_one_command",
    }


def plan_text(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> str:
    """The plan of a statement, as Postgres writes it for people."""
    cursor = psycopg.ClientCursor(connection)
    return "\n".join(line for (line,) in cursor.execute(b"explain (verbose) " + statement(name), values))


@pytest.mark.parametrize("meant", [1, 10_000])
def test_a_walk_that_looks_for_aggregates_reads_pages_of_the_primary_key(
    connection: psycopg.Connection[Any], meant: int
) -> None:
    """Each row of a page once, whatever it is looked for, and the same for every page."""
    values = {"types": ["order"] * meant, "ids": list(map(str, range(1, meant + 1))), "newest": 10**9, "rows": 500}
    for after in (0, 20_000):
        (scan,) = scans(connection, "forget_page", {**values, "after": after})
        assert (scan["Index Name"], scan["Actual Rows"], scan["Actual Loops"]) == ("outbox_events_pkey", 500, 1)
        assert scan["Index Cond"].startswith("((id > ")
        assert scan.get("Rows Removed by Filter", 0) == 0
        # The aggregates are read once, and not once a row.
        assert "hashed SubPlan" in plan_text(connection, "forget_page", {**values, "after": after})
    assert connection.execute(
        "select count(*) from pg_indexes where tablename = 'outbox_events' and indexdef ~ 'aggregate'"
    ).fetchone() == (0,)


@pytest.mark.parametrize("name", ["forget_record", "forget_remove", "forget_redact"])
def test_forgetting_looks_rows_up_by_id(connection: psycopg.Connection[Any], name: str) -> None:
    """Those that were found, and no other."""
    ids = [row[0] for row in connection.execute("select id from outbox_events order by id desc limit 500")]
    (lock,) = scans(connection, "forget_lock", {"types": ["order"], "ids": ["7"], "rows": ids})
    assert (lock["Index Name"], lock["Actual Rows"]) == ("outbox_events_pkey", 500)
    record = {
        "ids": ids,
        "action_id": "0190163d-8694-739b-aea5-966c26f8ad91",
        "action": "remove",
        "by": "me",
        "why": "w",
    }
    (scan,) = scans(connection, name, record)
    assert (scan["Index Name"], scan["Actual Rows"]) == ("outbox_events_pkey", 500)
    assert scan.get("Rows Removed by Filter", 0) == 0


def test_the_newest_row_is_read_at_the_end_of_the_primary_key(connection: psycopg.Connection[Any]) -> None:
    """One row, of however many."""
    (scan,) = scans(connection, "forget_mark", {})
    assert (scan["Index Name"], scan["Actual Rows"]) == ("outbox_events_pkey", 1)
