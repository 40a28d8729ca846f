"""A subscription with dead letters is read once, to an end that comes, and held meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from google.pubsub_v1.types import PubsubMessage

from consumers.sources import pubsub_dead_letter_box
from consumers.sources.pubsub_dead_letter_box import PubSubDeadLetterBox
from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_reader import Received
from relay.dev.stack import PROJECT_ID
from relay.errors import BrokerError, ConfigurationError
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until_async

QUIET = 0.4


@pytest.fixture
async def channel(pubsub: PubSubSide) -> Channel:
    """With the shortest deadline."""
    return await pubsub.open(ack_deadline=10)


def box(pubsub: PubSubSide, channel: Channel) -> PubSubDeadLetterBox:
    """On the channel's subscription."""
    return PubSubDeadLetterBox(PubSubAddress(PROJECT_ID, pubsub.address), channel.subscription, QUIET)


def letter(body: str, at: str = "2025-01-31T12:00:00+00:00") -> PubsubMessage:
    """A dead letter of that moment."""
    return PubsubMessage(data=body.encode(), attributes={"dead_letter_at": at})


async def read(opened: PubSubDeadLetterBox) -> list[str]:
    """All that it hands over."""
    async with aclosing(opened.read()) as messages:
        return [message.body.decode() async for message in messages]


async def test_what_was_not_taken_is_there_again_at_once(pubsub: PubSubSide, channel: Channel) -> None:
    """Also where the work on it failed."""
    await pubsub.publish(channel, [letter("a"), letter("b")])
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 -- the work
        async with box(pubsub, channel) as opened, aclosing(opened.read()) as messages:
            async for message in messages:
                if message.body == b"b":
                    await opened.take(message.message_id)
            assert opened.count == 1
            raise ZeroDivisionError

    assert [message.data for message in await pubsub.drain(channel)] == [b"a"]


async def test_a_message_is_handed_over_once_however_often_it_comes(
    pubsub: PubSubSide, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases that were lost bring it again; the last delivery is the one that is acknowledged."""
    monkeypatch.setattr(pubsub_dead_letter_box, "_HOLD_SECONDS", 0)  # as lost as can be
    await pubsub.publish(channel, [letter("a")])
    async with box(pubsub, channel) as opened:
        found: list[Received] = []
        redelivered = asyncio.Event()
        hold = opened._hold

        async def counting(received: object) -> object:
            if found:
                monkeypatch.setattr(pubsub_dead_letter_box, "_HOLD_SECONDS", 60)
                redelivered.set()
            return await hold(received)  # type: ignore[arg-type]

        monkeypatch.setattr(opened, "_hold", counting)
        async with aclosing(opened.read()) as messages:
            async for message in messages:
                found.append(message)  # noqa: PERF401 -- seen while it is read
        assert redelivered.is_set()
        assert len(found) == 1
        await opened.take(found[0].message_id)

    assert await pubsub.drain(channel) == []


async def test_what_is_held_is_kept_from_others_for_as_long_as_it_takes(
    pubsub: PubSubSide, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is renewed, through failures of the service too."""
    monkeypatch.setattr(pubsub_dead_letter_box, "_RENEW_SECONDS", 0.05)
    await pubsub.publish(channel, [letter("a")])
    async with box(pubsub, channel) as opened:
        assert await read(opened) == ["a"]
        await pubsub.fail("UNAVAILABLE", "ModifyAckDeadline")
        await until_async(pubsub.has_failed, "a renewal fails")
        await pubsub.heal()
        await pubsub.fail("ABORTED", "ModifyAckDeadline")
        await until_async(pubsub.has_failed, "another one is tried")
        await pubsub.heal()
        assert await pubsub.drain(channel) == []

    assert len(await pubsub.drain(channel)) == 1


async def test_what_comes_while_it_is_worked_on_is_for_the_next_run(pubsub: PubSubSide, channel: Channel) -> None:
    """A replay may fail again before it has ended."""
    async with box(pubsub, channel) as opened:
        assert await read(opened) == []
        await pubsub.publish(channel, [letter("a")])
        assert len(await pubsub.drain(channel)) == 1


@pytest.fixture
async def failing(pubsub: PubSubSide, channel: Channel) -> AsyncIterator[None]:
    """A consumer that goes on failing, faster than anybody's patience."""

    async def fail() -> None:
        while True:
            await pubsub.publish(channel, [letter("new", "2999-01-01T00:00:00+00:00")])
            await asyncio.sleep(QUIET / 10)

    task = asyncio.create_task(fail())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("failing")
async def test_the_end_comes_although_events_go_on_failing(pubsub: PubSubSide, channel: Channel) -> None:
    """What was there when the reading began is read; nobody waits for the end of what comes meanwhile."""
    await pubsub.publish(channel, [letter("a")])
    async with box(pubsub, channel) as opened:
        async with asyncio.timeout(20 * QUIET):
            assert "a" in await read(opened)


async def test_a_subscription_that_is_missing_is_a_wrong_call(pubsub: PubSubSide) -> None:
    """With how it might be named."""
    with pytest.raises(ConfigurationError, match=r"subscriptions/missing does not exist; .* name of their topic"):
        async with box(pubsub, Channel("missing", "missing")):
            pass


async def test_a_service_that_refuses_is_told_at_once(pubsub: PubSubSide, channel: Channel) -> None:
    """Nobody waits for a permission."""
    await pubsub.fail("PERMISSION_DENIED", "GetSubscription")
    with pytest.raises(BrokerError, match="PERMISSION_DENIED"):
        async with box(pubsub, channel):
            pass
