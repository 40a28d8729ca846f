"""What the statements of sends read: what they are asked for, by its index, however much is over."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from consumers.inbox.session import statement
from relay.testing.databases import fresh_database
from tests.support.plans import analysed_for_now, prepare, scans_of

pytestmark = pytest.mark.slow("fills a large inbox")

FINISHED = 50_000
OTHERS = 2_000
DUE = 300
TOKEN = "3f7b4b7e-0000-4000-8000-000000000000"  # noqa: S105 -- no secret: it names a claim
INSERT = """
insert into inbox_deliveries (consumer, event_id, event_type, envelope, state, outcome, available_at, ticket, sent_at)
select 'push', gen_random_uuid(), %(event_type)s, '{}', %(state)s, case when %(state)s = 'done' then 'ok' end,
       clock_timestamp() - make_interval(secs => %(age)s), 't', clock_timestamp()
  from generate_series(1, %(rows)s)
"""
CLAIM = {
    "consumer": "push", "types": ["push.due", "push.due@each"], "most": 100, "shard": 0, "shards": 1, "skew": 0.0,
    "token": TOKEN, "owner": "test", "lease": 60.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def large(outbox_postgres_url: str, inbox_template: str) -> Iterator[str]:
    """Much is over, much waits for its turn, and some is due."""
    with fresh_database(outbox_postgres_url, inbox_template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table inbox_deliveries set (autovacuum_enabled = false)")
            for event_type, state, age, rows in (
                ("push.due", "done", 10.0, FINISHED),
                ("push.due", "sent", -3_600.0, OTHERS),
                ("push.due", "sent", 10.0, DUE),
                ("mail.due", "sent", 10.0, OTHERS),
            ):
                connection.execute(INSERT, {"event_type": event_type, "state": state, "age": age, "rows": rows})
        yield url


@pytest.fixture
def connection(large: str) -> Iterator[psycopg.Connection[Any]]:
    """As a consumer's session is, without what it would leave."""
    with analysed_for_now(large), psycopg.connect(large) as opened:
        for knob in ("plan_cache_mode = force_generic_plan", *(f"enable_{way} = off" for way in WAYS)):
            opened.execute(f"set local {knob}".encode())
        yield opened
        opened.rollback()


WAYS = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_a_claim_of_sends_reads_those_that_it_takes(connection: psycopg.Connection[Any], analysed: bool) -> None:  # noqa: FBT001
    """Of its types, in the order in which they are due."""
    if analysed:
        connection.execute("analyze inbox_deliveries")
    scans = scans_of(connection, prepare(connection, "claim_sent", statement), CLAIM)

    found = {scan["Index Name"]: scan["Actual Rows"] * scan["Actual Loops"] for scan in scans if scan["Actual Loops"]}
    assert found == {"inbox_deliveries_sent": 100, "inbox_deliveries_pkey": 100}
    assert not sum(scan.get("Rows Removed by Filter", 0) for scan in scans)
    taken = connection.execute("select count(*) from inbox_deliveries where token = %s and state = 'sent'", [TOKEN])
    assert taken.fetchone() == (100,)


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_a_verdict_reads_the_rows_that_it_names(connection: psycopg.Connection[Any], analysed: bool) -> None:  # noqa: FBT001
    """Twice: to lock them, and to change them."""
    if analysed:
        connection.execute("analyze inbox_deliveries")
    connection.execute(
        "update inbox_deliveries set token = %s where id in "
        "(select id from inbox_deliveries where state = 'sent' order by id limit 100)",
        [TOKEN],
    )
    ids = [id_ for (id_,) in connection.execute("select id from inbox_deliveries where token = %s", [TOKEN])]
    columns = {"outcomes": "ok", "codes": "", "errors": "", "whats": "confirmed", "details": "", "states": "done"}
    said = {name: [value] * 100 for name, value in columns.items()}
    values = {**said, "ids": ids, "tokens": [TOKEN] * 100, "rests": [0.0] * 100, "skew": 0.0}
    scans = scans_of(connection, prepare(connection, "settle_sent", statement), values)

    assert {scan["Index Name"] for scan in scans if scan["Actual Loops"]} == {"inbox_deliveries_pkey"}
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) == 200
    assert connection.execute("select count(*) from inbox_history where what = 'confirmed'").fetchone() == (100,)
