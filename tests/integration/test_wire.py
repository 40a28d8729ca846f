"""What a session of the relay's is told, and what others may have told it: values, settings, tables that change."""

import asyncio

import psycopg
import pytest
from psycopg import sql

from tests.support.bench import TOPIC, Bench

ODD = r"""it's \ {odd}, "quoted", %s $1 $$ -- /* ; é NULL"""
# What is in braces is a value that nobody else should see, and was taken out.
TOLD = r"select count(*) from outbox_events where starts_with(last_error, $$RuntimeError: it's \ $$)"
PUBLISHED = "select count(*) from outbox_events where published_at is not null"


def set_for_all(bench: Bench, name: str, value: str) -> None:
    """Make a setting the default of the database."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        alter = sql.SQL("alter database {} set {} = {}")
        connection.execute(alter.format(database, sql.Identifier(name), sql.Literal(value)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("standard_conforming_strings", "on"),
        ("standard_conforming_strings", "off"),
        ("client_encoding", "LATIN1"),
        ("datestyle", "German, DMY"),
        ("timezone", "Asia/Kathmandu"),
    ],
)
async def test_values_arrive_as_they_are_whatever_the_database_is_set_to(bench: Bench, name: str, value: str) -> None:
    """A key, a name and the broker's own words, in which everything stands that SQL takes for something else."""
    set_for_all(bench, name, value)
    bench.emit(1, ordering_key=ODD, aggregate_type=ODD)
    bench.emit(2)
    bench.broker.refuse = lambda _: RuntimeError(ODD)
    await bench.run_once()
    assert bench.query(TOLD) == [(2,)]
    bench.broker.refuse = lambda _: None
    bench.later += 600
    bench.make_due()
    await bench.run_once()
    assert bench.query(PUBLISHED) == [(2,)]
    (sent,) = [each for _, messages in bench.broker.requests for each in messages if each.ordering_key]
    assert (sent.ordering_key, sent.attributes["aggregate_type"]) == (ODD, ODD)


async def test_a_row_that_is_retried_has_no_reason_where_arrays_know_no_null(bench: Bench) -> None:
    """It would be a reason called NULL, which the table refuses, and with it all that the broker took beside it."""
    set_for_all(bench, "array_nulls", "off")
    bench.emit(1)
    bench.broker.refuse = lambda _: RuntimeError("a bug")
    report = await bench.run_once()
    assert (report.errors, bench.attempts()) == (1, [(1, 1, "RuntimeError")])
    assert bench.query("select failure_reason from outbox_events") == [(None,)]


async def test_a_table_that_is_altered_costs_one_pass_whatever_the_number_of_sessions(bench: Bench) -> None:
    """What was prepared on all of them no longer holds."""
    publisher = bench.publisher_on(bench.outbox, slots=3, batch_size=10)
    publish = bench.broker.publish

    async def takes_long(*asked: object) -> object:
        await asyncio.sleep(0)
        return await publish(*asked)  # type: ignore[arg-type]

    bench.broker.publish = takes_long  # type: ignore[assignment, method-assign]
    bench.emit(*range(100))
    await bench.run_once(publisher)
    with psycopg.connect(bench.url) as connection:
        connection.execute("alter table outbox_events alter column topic type varchar(512)")
    bench.emit(*range(100, 200), topic=TOPIC)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan must not change result type"):
        await bench.run_once(publisher)
    assert (await bench.run_once(publisher)).updated == 100
