"""What an operator does about dead letters, on a broker and a store, with processes that are killed."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from google.pubsub_v1.types import PubsubMessage

from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID
from tests.support.dead_letters import DeadLetterDesk, Deceased, envelope
from tests.support.pubsub import Channel, PubSubSide, event_ids
from tests.support.waiting import until_async

QUIET = ("--quiet", "400ms")


def read(deceased: Deceased) -> tuple[str, ...]:
    """Which subscription, and a shorter silence than people have."""
    return ("--from", deceased.letters.subscription, *QUIET)


async def run(desk: DeadLetterDesk, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a command while the test's own connections go on."""
    return await asyncio.to_thread(lambda: desk(*arguments, **settings))


def lines(done: "subprocess.CompletedProcess[str]") -> list[dict[str, object]]:
    """What a script reads."""
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_a_replay_has_every_event_acted_on_once(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """As it was, for the one consumer, and its dead letter is gone."""
    events = [await deceased.bury(number) for number in range(3)]

    done = await run(desk, "replay", *read(deceased))

    assert done.returncode == 0, done.stderr
    topic = f"projects/{PROJECT_ID}/topics/{deceased.events.topic}"
    assert done.stdout == f"3 dead letter(s) replayed to {topic}\n"
    messages = await deceased.work()
    assert sorted(map(str, deceased.acted_on)) == sorted(map(str, events)) == sorted(event_ids(messages))
    assert {message.attributes["replayed_for"] for message in messages} == {deceased.name}
    assert not any(name.startswith("dead_letter_") for message in messages for name in message.attributes)
    assert await deceased.pubsub.drain(deceased.letters) == []


async def test_without_a_replay_an_event_would_be_taken_for_processed(deceased: Deceased) -> None:
    """What is published by hand does nothing: that is why there is a command."""
    event = await deceased.bury(1)
    await deceased.pubsub.publish(deceased.events, [PubsubMessage(data=envelope(event))])

    await deceased.work()

    assert deceased.acted_on == []


async def test_a_list_shows_what_the_users_hook_leaves(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """One that fails, as this one of a hook that is none, leaves no text of the reason, and it is said so."""
    await deceased.bury(7)

    table = await run(desk, "list", *read(deceased), CONSUMERS_LOG_REDACT="operator:truth")

    assert table.stdout.splitlines()[1].endswith("(redacted)")
    assert table.stderr.startswith("consumers: warning: the hook of CONSUMERS_LOG_REDACT failed (TypeError): texts are")


async def test_a_list_shows_what_failed_and_leaves_it(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """For people and for scripts; nothing is held when it has ended."""
    event = await deceased.bury(7, "k")

    table = await run(desk, "list", *read(deceased))
    (told,) = lines(await run(desk, "list", *read(deceased), "--json"))

    head, row = table.stdout.splitlines()
    assert head.split() == ["EVENT_ID", "EVENT_TYPE", "CONSUMER", "CODE", "ATTEMPTS", "AT", "REASON"]
    assert row.split()[:5] == [str(event), "order.paid", deceased.name, "GONE", "3"]
    assert table.stderr == "1 dead letter(s)\n"
    assert (told["event_id"], told["ordering_key"], told["sequence"]) == (str(event), "k", 7)
    assert len(await deceased.pubsub.drain(deceased.letters)) == 1


async def test_what_does_not_match_stays_and_is_there_at_once(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """By every part of a choice."""
    wanted = await deceased.bury(1, code="TIMEOUT", event_type="order.paid")
    others = [
        await deceased.bury(2, code="GONE", event_type="order.paid"),
        await deceased.bury(3, code="TIMEOUT", event_type="cart.left"),
        await deceased.bury(4, code="UNDECODABLE"),
    ]
    choice = ("--code", "TIMEOUT", "--event-type", "order.*", "--consumer", deceased.name, "--event-id", str(wanted))

    done = await run(desk, "replay", *read(deceased), *choice, "--json")

    (told,) = lines(done)
    assert (told["event_id"], told["outcome"]) == (str(wanted), "replayed")
    assert "3 stay that do not match" in done.stderr
    assert event_ids(await deceased.work()) == [str(wanted)]
    assert sorted(event_ids(await deceased.pubsub.drain(deceased.letters))) == sorted(map(str, others))


async def test_a_message_that_was_no_event_is_replayed_as_it_was(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """When it is asked for: a consumer that understands it may be deployed by now."""
    await deceased.bury(1, code="UNDECODABLE")

    assert "0 dead letter(s) replayed" in (await run(desk, "replay", *read(deceased))).stdout
    done = await run(desk, "replay", *read(deceased), "--code", "UNDECODABLE")

    assert done.returncode == 0, done.stderr
    assert [message.data for message in await deceased.work()] == [b"{"]


async def test_a_key_comes_back_in_order(pubsub: PubSubSide, deceased: Deceased, desk: DeadLetterDesk) -> None:
    """Whatever order they died in; and the limit takes the first of them."""
    deceased.events = await pubsub.open(ordered=True)
    for number in (3, 1, 4, 2):
        await deceased.bury(number, "k")

    limited = await run(desk, "replay", *read(deceased), "--limit", "1")
    assert "3 stay beyond --limit" in limited.stdout
    await run(desk, "replay", *read(deceased))

    messages = await deceased.work()
    assert [message.attributes["sequence"] for message in messages] == ["1", "2", "3", "4"]
    assert {message.ordering_key for message in messages} == {"k"}


async def test_another_topic_can_be_named(pubsub: PubSubSide, deceased: Deceased, desk: DeadLetterDesk) -> None:
    """Of a subscription that is gone nobody else can tell it."""
    event = await deceased.bury(1)
    deceased.events = other = await pubsub.open()

    done = await run(desk, "replay", *read(deceased), "--to", other.topic)

    assert done.returncode == 0, done.stderr
    assert event_ids(await deceased.work()) == [str(event)]


async def test_one_whose_topic_is_not_known_fails_by_name_and_stays(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """The others go on; the command has failed."""
    deceased.events, known = Channel("gone", "gone-orders"), deceased.events
    lost = await deceased.bury(1)
    deceased.events = known
    fine = await deceased.bury(2)

    done = await run(desk, "replay", *read(deceased))

    assert done.returncode == 1
    assert f"consumers: order.paid {lost} for {deceased.name} stays: its subscription gone-orders" in done.stderr
    assert "--to" in done.stderr
    assert event_ids(await deceased.work()) == [str(fine)]
    assert event_ids(await deceased.pubsub.drain(deceased.letters)) == [str(lost)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("OK", method="Publish", silent=True),
        Fault("OK", method="Publish", after=True, silent=True),
        Fault("OK", method="Acknowledge", silent=True),
        Fault("OK", method="Acknowledge", after=True, silent=True),
    ],
    ids=["before it is published", "before the broker answers", "before it is taken off", "before that is confirmed"],
)
@pytest.mark.parametrize(
    "meanwhile",
    [pytest.param(True, marks=pytest.mark.slow("kills a command for seconds")), False],
    ids=["acted on meanwhile", "acted on at last"],
)
async def test_killed_anywhere_a_replay_loses_nothing_and_nothing_is_acted_on_twice(
    pubsub: PubSubSide, deceased: Deceased, desk: DeadLetterDesk, fault: Fault, *, meanwhile: bool
) -> None:
    """The next run finds what is left, and the store knows what had its effect."""
    event = await deceased.bury(1)
    before = (await set_faults(pubsub.address, fault))["answered"]

    async def met() -> bool:
        return bool((await set_faults(pubsub.address, fault))["answered"] > before)

    with desk.start("replay", *read(deceased)) as process:
        try:
            await until_async(met, "the command meets the fault")
        finally:
            process.send_signal(signal.SIGKILL)
    await pubsub.heal()
    if meanwhile:
        await deceased.work()

    # Held for a second by the one that was killed.
    again = await run(desk, "replay", *read(deceased), "--quiet", "1500ms")
    assert again.returncode == 0, again.stderr
    assert (await run(desk, "replay", *read(deceased))).stdout.startswith("0 "), "the dead letter is gone"
    await deceased.work()

    assert deceased.acted_on == [event]


@pytest.mark.slow("waits for a store that is away")
async def test_a_store_that_is_away_replays_nothing(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """An event that is not forgotten would be recognised, and its dead letter gone."""
    event = await deceased.bury(1)

    done = await run(desk, "replay", *read(deceased), REDIS_URL="redis://127.0.0.1:1")

    assert done.returncode == 1
    assert str(event) in done.stderr
    assert await deceased.work() == []
    assert len(await deceased.pubsub.drain(deceased.letters)) == 1


async def test_no_store_has_to_be_meant(deceased: Deceased, desk: DeadLetterDesk) -> None:
    """A setting that is only forgotten must not lose events."""
    await deceased.bury(1)

    refused = await run(desk, "replay", *read(deceased), REDIS_URL="")
    assert "--without-store" in refused.stderr
    assert (await run(desk, "replay", *read(deceased), "--without-store", REDIS_URL="")).returncode == 0

    assert len(await deceased.work()) == 1


async def test_a_subscription_that_is_not_there_is_told_by_name(desk: DeadLetterDesk) -> None:
    """Its name is the topic's."""
    done = await run(desk, "list", "--from", "nobody-made-this")

    assert done.returncode == 2
    assert f"projects/{PROJECT_ID}/subscriptions/nobody-made-this does not exist" in done.stderr


async def test_a_place_for_dead_letters_is_created_once(
    pubsub: PubSubSide, desk: DeadLetterDesk, tmp_path: Path
) -> None:
    """The topic and the subscription that keeps what comes; again it is only told of."""
    name = f"c-{uuid4().hex}"
    (tmp_path / "billing.py").write_text(f"from consumers import Consumer\nconsumer = Consumer({name!r})\n")
    letters = Channel(f"{name}-dead-letters", f"{name}-dead-letters")

    first = await run(desk, "create", "billing:consumer")
    again = await run(desk, "create", "billing:consumer", "--retention", "7d", "--json")

    topic, subscription = (f"projects/{PROJECT_ID}/{kind}/{letters.topic}" for kind in ("topics", "subscriptions"))
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        f"{name}: topic {topic} created",
        f"{name}: subscription {subscription} created, keeps messages 31d",
    ]
    assert first.stderr == ""
    (told,) = lines(again)
    assert (again.returncode, told["topic_created"], told["subscription_created"]) == (0, False, False)
    assert "keeps messages 31d, not 7d; change it with: gcloud pubsub subscriptions update" in again.stderr
    await pubsub.publish(letters, [PubsubMessage(data=b"body")])
    assert len(await pubsub.drain(letters)) == 1


async def test_a_subscription_that_reads_something_else_is_no_place(
    pubsub: PubSubSide, desk: DeadLetterDesk, tmp_path: Path
) -> None:
    """Its dead letters would be dropped without a word."""
    name = f"c-{uuid4().hex}"
    (tmp_path / "billing.py").write_text(f"from consumers import Consumer\nconsumer = Consumer({name!r})\n")
    await pubsub.create(Channel(f"t-{name}", f"{name}-dead-letters"))

    done = await run(desk, "create", "billing:consumer")

    assert done.returncode == 1
    assert f"reads projects/{PROJECT_ID}/topics/t-{name}, so nothing of" in done.stderr
    assert "keeps messages 7d, not 31d" in done.stderr
