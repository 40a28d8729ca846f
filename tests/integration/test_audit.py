"""The oracle is only worth something if it finds every fault that it claims to find."""

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg
import pytest
from google.pubsub_v1.types import PubsubMessage
from psycopg.rows import dict_row

from relay import emit
from relay.brokers.pubsub_reader import PubSubReader
from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID
from tests.support.audits import Audit
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until_async

BULK = """
    insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload,
                               published_at, message_id)
    select id, 't', 't', 't', jsonb_build_object('event_id', id, 'event_type', 't', 'version', 1, 'occurred_at', '',
                                                 'actor', null, 'data', repeat('x', 200)), clock_timestamp(), 'm'
    from (select gen_random_uuid() as id from generate_series(1, %(count)s)) as new
    returning id, event_id::text, payload::text as body"""
NOBODYS_EVENT = "00000000-0000-7000-8000-000000000000"


@dataclass
class Hand:
    """Does the relay's work by hand, well or badly."""

    connection: psycopg.Connection[dict[str, Any]]
    pubsub: PubSubSide
    channel: Channel
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000)))

    def emit(self, **fields: Any) -> str:
        """Commit an event; its id."""
        emitted = emit(self.connection, event(next(self.numbers), **fields))
        self.connection.commit()
        return str(emitted.event_id)

    def mark(self, *event_ids: str) -> None:
        """Mark rows as published."""
        self.connection.execute(
            "update outbox_events set published_at = clock_timestamp(), message_id = 'm' where event_id = any(%s)",
            (list(event_ids),),
        )
        self.connection.commit()

    async def publish(self, *event_ids: str, **changes: Any) -> None:
        """Publish the rows' messages in this order, with changes to what they should be."""
        for event_id in event_ids:
            await self.pubsub.publish(self.channel, [self.message(event_id, **changes)])

    async def relay(self, *event_ids: str) -> None:
        """Publish and mark."""
        await self.publish(*event_ids)
        self.mark(*event_ids)

    async def relay_many(self, count: int) -> None:
        """Commit, publish and mark events by the thousand."""
        rows = self.connection.execute(BULK, {"count": count}).fetchall()
        self.connection.commit()
        for start in range(0, count, 1_000):
            page = rows[start : start + 1_000]
            await self.pubsub.publish(
                self.channel,
                [
                    PubsubMessage(
                        data=row["body"].encode(),
                        attributes={"event_id": row["event_id"], "sequence": str(row["id"])},
                    )
                    for row in page
                ],
            )

    def message(self, event_id: str, **changes: Any) -> PubsubMessage:
        """The row's message."""
        row = self.connection.execute(
            "select id, payload::text as body, ordering_key from outbox_events where event_id = %s", (event_id,)
        ).fetchone()
        assert row
        self.connection.commit()
        fields = {
            "data": row["body"].encode(),
            "attributes": {"event_id": event_id, "sequence": str(row["id"])},
            "ordering_key": row["ordering_key"] or "",
        }
        return PubsubMessage(**{**fields, **changes})


@pytest.fixture
def hand(database: str, pubsub: PubSubSide, channel: Channel) -> Iterator[Hand]:
    """A hand on this test's database and channel."""
    with psycopg.connect(database, row_factory=dict_row) as connection:
        yield Hand(connection, pubsub, channel)


@pytest.fixture
async def in_order(hand: Hand, pubsub: PubSubSide) -> Channel:
    """The hand's channel, with a subscription that promises the order of a key."""
    hand.channel = await pubsub.open(ordered=True)
    return hand.channel


async def test_what_the_relay_carried_is_clean(relay: Commands, database: str, audit: Audit, channel: Channel) -> None:
    """After a tick every event is expected, seen, and without fault."""
    with psycopg.connect(database) as connection:
        for number in range(50):
            emit(connection, event(number))
    ticked = relay("tick")
    assert ticked.returncode == 0, ticked.stderr

    report = await audit(channel)

    assert report.passed
    assert (report.expected, report.seen, report.messages) == (50, 50, 50)
    assert report.examples == {}


def test_the_command_says_that_all_is_well(relay: Commands, database: str, channel: Channel) -> None:
    """On the command line, a clean audit ends with its verdict and exit code 0."""
    with psycopg.connect(database) as connection:
        emit(connection, event())
    ticked = relay("tick")
    assert ticked.returncode == 0, ticked.stderr

    done = relay("audit", "--subscription", channel.subscription, "--quiet", "200ms")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "passed: every published event was received"
    assert done.stderr == ""


async def test_the_command_fails_with_the_ids_of_what_is_lost(relay: Commands, hand: Hand) -> None:
    """On the command line, a lost event is named, in JSON too, and the exit code is 1."""
    lost = hand.emit()
    hand.mark(lost)
    arguments = "audit", "--subscription", hand.channel.subscription, "--quiet", "200ms"

    in_words, in_json = relay(*arguments), relay(*arguments, "--json")

    assert (in_words.returncode, in_json.returncode) == (1, 1)
    assert lost in in_words.stdout
    assert in_words.stdout.splitlines()[-1] == "failed: 1 lost"
    report = json.loads(in_json.stdout)
    assert (report["passed"], report["lost"], report["examples"]) == (False, 1, {"lost": [lost]})


def test_an_unknown_subscription_is_a_wrong_call(relay: Commands) -> None:
    """A mistyped name is named in full, with its project, and the exit code is 2."""
    done = relay("audit", "--subscription", "nobody-made-this")
    assert done.returncode == 2
    assert f"subscription projects/{PROJECT_ID}/subscriptions/nobody-made-this cannot be read" in done.stderr


def test_a_wrong_duration_is_a_wrong_call(relay: Commands) -> None:
    """A duration that nobody could mean is refused in words."""
    done = relay("audit", "--subscription", "any", "--quiet", "soon")
    assert done.returncode == 2
    assert "'soon' is not a duration" in done.stderr


async def test_nothing_is_not_a_success(relay: Commands, audit: Audit, channel: Channel, hand: Hand) -> None:
    """Neither an empty outbox nor one of which nothing is published passes."""
    report = await audit(channel)
    assert report.empty
    assert not report.passed

    hand.emit()
    done = relay("audit", "--subscription", channel.subscription, "--quiet", "200ms")

    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("nothing was audited")
    assert "1 are pending" in done.stdout


async def test_a_marked_row_without_a_message_is_lost(hand: Hand, audit: Audit, channel: Channel) -> None:
    """Between others that arrived, the one that did not is found."""
    events = [hand.emit() for _ in range(3)]
    await hand.publish(events[0], events[2])
    hand.mark(*events)

    report = await audit(channel)

    assert report.faults == {"lost": 1}
    assert report.examples == {"lost": (events[1],)}
    assert (report.expected, report.seen) == (3, 2)


async def test_a_message_of_no_row_is_unknown(hand: Hand, audit: Audit, channel: Channel) -> None:
    """A message whose event was never committed is found."""
    known = hand.emit()
    await hand.relay(known)
    await hand.publish(known, attributes={"event_id": NOBODYS_EVENT, "sequence": "7"})

    report = await audit(channel)

    assert report.faults == {"unknown": 1}
    assert report.examples == {"unknown": (NOBODYS_EVENT,)}


async def test_what_was_forgotten_is_no_fault(hand: Hand, audit: Audit, in_order: Channel, relay: Commands) -> None:
    """A removed row is known by its record, a redacted one by its id; one that somebody deleted stays unknown."""
    forgotten = [hand.emit(aggregate_id=name, ordering_key=name) for name in ("removed", "redacted", "deleted")]
    await hand.relay(*forgotten)
    for way in (["removed"], ["redacted", "--redact"]):
        assert relay("forget", "--aggregate", "order", *way, "--reason", "ticket 815").returncode == 0
    hand.connection.execute("delete from outbox_events where aggregate_id = 'deleted'")
    hand.connection.commit()

    report = await audit(in_order)

    assert report.examples == {"unknown": (forgotten[2],)}
    assert (report.forgotten, report.expected, report.seen) == (1, 1, 3)


@pytest.mark.parametrize("attributes", [{}, {"event_id": "7"}, {"event_id": NOBODYS_EVENT.replace("-", "")}])
async def test_a_message_without_an_event_id_is_undecodable(
    hand: Hand, audit: Audit, channel: Channel, attributes: dict[str, str]
) -> None:
    """No event_id, one that is no UUID, and one in another spelling are found, by the broker's id."""
    known = hand.emit()
    await hand.relay(known)
    await hand.publish(known, attributes=attributes)

    report = await audit(channel)

    assert report.faults == {"undecodable": 1}
    assert len(report.examples["undecodable"]) == 1


async def test_an_event_that_was_published_twice_is_a_duplicate(hand: Hand, audit: Audit, channel: Channel) -> None:
    """Every further message of an event counts, and none is a fault."""
    twice, thrice, once = hand.emit(), hand.emit(), hand.emit()
    await hand.relay(twice, thrice, once)
    await hand.publish(twice, thrice, thrice)

    report = await audit(channel)

    assert report.passed
    assert (report.duplicates, report.redelivered) == (3, 0)
    assert report.examples == {"duplicates": (twice, thrice, thrice)}


async def test_a_message_that_was_delivered_twice_is_no_duplicate(
    hand: Hand, audit: Audit, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker delivers again, because its acknowledgement got lost, is told from what was published again."""
    events = [hand.emit() for _ in range(2)]
    await hand.relay(*events)
    acknowledge = PubSubReader.acknowledge

    async def give_back_once(self: PubSubReader, received: Any) -> None:
        monkeypatch.setattr(PubSubReader, "acknowledge", acknowledge)
        await self._client.modify_ack_deadline(
            subscription=self._name, ack_ids=[each.ack_id for each in received], ack_deadline_seconds=0
        )

    monkeypatch.setattr(PubSubReader, "acknowledge", give_back_once)

    report = await audit(channel)

    assert report.passed
    assert (report.messages, report.redelivered, report.duplicates) == (2, 2, 0)


async def test_a_key_that_arrives_out_of_order_is_an_inversion(hand: Hand, audit: Audit, in_order: Channel) -> None:
    """Within a key, every first arrival that is older than one before it is found."""
    events = [hand.emit(ordering_key="a") for _ in range(4)]
    await hand.relay(events[0], events[3], events[1], events[2])

    report = await audit(in_order)

    assert report.faults == {"inversions": 2}
    assert report.examples == {"inversions": (events[1], events[2])}


async def test_order_is_a_matter_of_first_arrivals_in_one_key(hand: Hand, audit: Audit, in_order: Channel) -> None:
    """Duplicates that come late, other keys, and events without a key are in nobody's way."""
    a, b, loose = [
        [hand.emit(**fields) for _ in range(2)] for fields in ({"ordering_key": "a"}, {"ordering_key": "b"}, {})
    ]
    await hand.relay(loose[1], *b, *a, loose[0])
    await hand.publish(a[0])

    report = await audit(in_order)

    assert report.passed
    assert (report.inversions, report.duplicates) == (0, 1)


async def test_order_that_was_not_promised_cannot_be_broken(hand: Hand, audit: Audit, channel: Channel) -> None:
    """A subscription without message ordering may deliver a key as it likes; it is told, and is no fault."""
    events = [hand.emit(ordering_key="a") for _ in range(2)]
    await hand.relay(*reversed(events))

    report = await audit(channel)

    assert report.passed
    assert report.inversions == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"data": b"{}"},
        {"ordering_key": "other"},
        {"ordering_key": ""},
        {"attributes": {"sequence": "99"}},
        {"attributes": {}},
    ],
)
async def test_a_message_that_is_not_its_rows_is_mismatched(
    hand: Hand, audit: Audit, channel: Channel, changes: dict[str, Any]
) -> None:
    """Another body, ordering key or sequence than the row's is found."""
    good, bad = hand.emit(ordering_key="a"), hand.emit(ordering_key="a")
    await hand.relay(good)
    if "attributes" in changes:
        changes = {"attributes": {"event_id": bad, **changes["attributes"]}}
    await hand.publish(bad, **changes)
    hand.mark(bad)

    report = await audit(channel)

    assert report.faults == {"mismatched": 1}
    assert report.examples["mismatched"] == (bad,)


async def test_a_row_of_another_topic_is_neither_expected_nor_welcome(
    hand: Hand, audit: Audit, channel: Channel
) -> None:
    """Rows of other topics are not missed here, and a message of theirs is misrouted."""
    full = f"projects/{PROJECT_ID}/topics/{channel.topic}"
    here = [hand.emit(), hand.emit(topic=channel.topic), hand.emit(topic=full)]
    elsewhere, stray = hand.emit(topic="other-topic"), hand.emit(topic=f"projects/other/topics/{channel.topic}")
    await hand.relay(*here, stray)
    hand.mark(elsewhere)

    report = await audit(channel)

    assert report.faults == {"misrouted": 1}
    assert report.examples["misrouted"] == (stray,)
    assert (report.expected, report.seen) == (3, 4)


async def test_pending_and_failed_rows_owe_nothing(hand: Hand, audit: Audit, channel: Channel) -> None:
    """Rows that are not published yet, or never will be, are counted and not missed."""
    published, discarded, failed = hand.emit(), hand.emit(), hand.emit()
    hand.emit()
    await hand.relay(published)
    for event_id, reason in ((discarded, "discarded"), (failed, "max_attempts")):
        hand.connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = %s where event_id = %s", (reason, event_id)
        )
    hand.connection.commit()

    report = await audit(channel)

    assert report.passed
    assert (report.expected, report.pending, report.failed, report.discarded) == (1, 1, 1, 1)


async def test_a_message_before_its_mark_is_early(hand: Hand, audit: Audit, channel: Channel) -> None:
    """A crash between publish and commit leaves a message of a pending row, which is no fault."""
    crashed = hand.emit()
    await hand.publish(crashed)

    report = await audit(channel)

    assert report.passed
    assert (report.early, report.pending, report.expected) == (1, 1, 0)
    assert report.examples == {"early": (crashed,)}


async def test_a_row_that_is_marked_during_the_silence_is_late_not_lost(
    hand: Hand, audit: Audit, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published while the audit ends was not there to be read."""
    await hand.relay(hand.emit())
    late = hand.emit()
    describe = PubSubReader._describe
    calls = count()

    async def describe_and_mark(self: PubSubReader) -> Any:
        # The first call comes before the reading, the second in the middle of the silence.
        if next(calls) == 1:
            hand.mark(late)
        return await describe(self)

    monkeypatch.setattr(PubSubReader, "_describe", describe_and_mark)

    report = await audit(channel)

    assert report.passed
    assert (report.expected, report.late) == (1, 1)
    assert report.examples == {"late": (late,)}


async def test_reading_goes_on_while_messages_come(
    hand: Hand, audit: Audit, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is a silence: what is published after the first messages were read is read too."""
    first, *others = [hand.emit() for _ in range(5)]
    await hand.relay(first)
    acknowledge = PubSubReader.acknowledge

    async def acknowledge_and_go_on(self: PubSubReader, received: Any) -> None:
        await acknowledge(self, received)
        if others:
            await hand.relay(others.pop())

    monkeypatch.setattr(PubSubReader, "acknowledge", acknowledge_and_go_on)

    report = await audit(channel)

    assert report.passed
    assert (report.expected, report.seen) == (5, 5)


async def test_an_audit_leaves_nothing_behind(hand: Hand, audit: Audit, channel: Channel) -> None:
    """What was compared is acknowledged."""
    await hand.relay(hand.emit())
    assert (await audit(channel)).passed
    assert await hand.pubsub.drain(channel) == []


@pytest.mark.slow("audits many events, twice")
async def test_memory_does_not_grow_with_the_number_of_events(hand: Hand, audit: Audit, channel: Channel) -> None:
    """Eight times as many rows and messages take the same memory."""
    peaks = []
    for number in (4_000, 28_000):
        await hand.relay_many(number)
        tracemalloc.start()
        try:
            report = await audit(channel)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert report.seen == number

    assert report.expected == 32_000
    assert peaks[1] < peaks[0] * 1.25


async def test_an_outage_of_the_broker_is_no_silence(
    hand: Hand, audit: Audit, channel: Channel, pubsub: PubSubSide
) -> None:
    """While the service refuses to answer, nothing is believed to be at its end."""
    await hand.relay(hand.emit())
    refuse = Fault("UNAVAILABLE", method="Pull")
    before = (await set_faults(pubsub.address, refuse))["answered"]
    auditing = asyncio.create_task(audit(channel, quiet=0.1))

    async def refused_twice() -> bool:
        return bool((await set_faults(pubsub.address, refuse))["answered"] >= before + 2)

    await until_async(refused_twice, "the audit tries again")
    await pubsub.heal()

    report = await auditing

    assert report.passed
    assert report.seen == 1


async def test_a_refusal_ends_the_audit_in_words(relay: Commands, channel: Channel, pubsub: PubSubSide) -> None:
    """What trying again cannot help is told at once, with the service's own name for it."""
    await pubsub.fail("PERMISSION_DENIED", method="Pull")
    done = relay("audit", "--subscription", channel.subscription)
    assert done.returncode == 1
    assert done.stderr.startswith("relay: PERMISSION_DENIED: ")


async def test_a_deleted_topic_is_a_wrong_call(relay: Commands, channel: Channel, pubsub: PubSubSide) -> None:
    """Without its topic, nobody can tell what a subscription should hold."""
    await pubsub._publisher.delete_topic(topic=f"projects/{PROJECT_ID}/topics/{channel.topic}", timeout=10)
    done = relay("audit", "--subscription", channel.subscription)
    assert done.returncode == 2
    assert "_deleted-topic_" in done.stderr


def test_the_schema_of_the_outbox_is_the_settings_own(relay: Commands, channel: Channel) -> None:
    """The audit reads the outbox where the relay does, and says where it looked in vain."""
    done = relay("audit", "--subscription", channel.subscription, RELAY_SCHEMA="elsewhere")
    assert done.returncode == 2
    assert "'elsewhere'" in done.stderr
