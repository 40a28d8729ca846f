"""Subscriptions with exactly-once delivery: what is ours, and what the service's word is worth."""

import asyncio

import pytest

from consumers.events import DeliveriesLost
from relay.dev.pubsub import Fault
from tests.support.pubsub_source import reading

EXACTLY_ONCE = {"enable_exactly_once_delivery": True}
ORDERED = EXACTLY_ONCE | {"enable_message_ordering": True}
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
LATER = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"


def refusing(reason: str, method: str, times: int = 0) -> Fault:
    """Every ack id of a call is refused for this reason."""
    return Fault("INVALID_ARGUMENT", method=method, times=times, ack_failure=reason)


async def test_an_acknowledgement_is_what_the_service_says_it_is() -> None:
    """True only where the message will not come again."""
    async with reading(subscription=EXACTLY_ONCE) as reader:
        await reader.publish("a", "b")
        first, second = await reader.deliveries(2)
        assert await reader.source.acknowledge(first)
        reader.emulator.faults.set(refusing(INVALID, "Acknowledge"))
        assert not await reader.source.acknowledge(second)
        assert not await reader.source.acknowledge(second)
        assert reader.source.held_messages == 0
        assert not reader.told


async def test_what_is_refused_for_now_is_asked_again() -> None:
    """The pipeline waits, and does not hear of it."""
    async with reading(subscription=EXACTLY_ONCE) as reader:
        await reader.publish("a", "b", "c")
        deliveries = await reader.deliveries(3)
        reader.emulator.faults.set(refusing(LATER, "Acknowledge", times=2))
        assert await asyncio.gather(*map(reader.source.acknowledge, deliveries)) == [True] * 3
        assert reader.emulator.faults.answered == 2
        await reader.nothing_held()


async def test_a_handler_sees_only_what_is_ours() -> None:
    """A receipt that is refused comes again, and so does one that could not be confirmed; neither is handed over."""
    async with reading(subscription=EXACTLY_ONCE, begin=False, deadline=10) as reader:
        await reader.publish("a")
        reader.emulator.faults.set(refusing(INVALID, "ModifyAckDeadline", times=1))
        reader.begin()
        await reader.until(lambda: reader.emulator.faults.answered == 1, "the receipt is refused")
        await reader.until(lambda: not reader.source.held_messages, "it is let go")
        assert not reader.got
        reader.clock.now += 11
        reader.emulator.wake()
        await reader.deliveries(1)
        assert reader.bodies == ["a"]


async def test_a_receipt_is_asked_for_as_long_as_it_may_be_ours() -> None:
    """What follows is not handed over before it: the service may have kept it for us."""
    async with reading(subscription=ORDERED, begin=False) as reader:
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="ModifyAckDeadline", times=3))
        await reader.publish("1", key="k")
        reader.begin()
        await reader.until(lambda: reader.emulator.faults.answered > 0, "the receipt is asked for")
        await reader.publish("2", key="k")
        await reader.deliveries(2)
        assert reader.bodies == ["1", "2"]
        assert not reader.told


async def test_a_receipt_that_cannot_be_confirmed_is_given_back() -> None:
    """And told of: somebody may have to act."""
    async with reading(subscription=EXACTLY_ONCE, begin=False) as reader:
        await reader.publish("a")
        reader.emulator.faults.set(Fault("PERMISSION_DENIED", method="ModifyAckDeadline", times=1))
        reader.begin()
        await reader.deliveries(1)
        (lost,) = reader.of(DeliveriesLost)
        assert lost.messages == 1
        assert "PERMISSION_DENIED" in lost.reason
        assert await reader.source.acknowledge(reader.got[0])
        await reader.nothing_held()
        assert reader.source.held_bytes == 0


async def test_what_follows_a_lost_message_of_its_key_is_not_ours_either() -> None:
    """The service delivers the whole rest of the key again, in order."""
    async with reading(subscription=ORDERED, begin=False) as reader:
        await reader.publish("1", "2", "3", key="k")
        await reader.publish("other", key="l")
        modify = reader.source._settling._calls.modify

        async def refuse_second(ack_ids: list[str], deadline: int, seconds: float) -> dict[str, str]:
            answer = dict(await modify(ack_ids, deadline, seconds))
            if deadline and len(ack_ids) > 2 and not reader.got:
                await modify([ack_ids[1]], 0, seconds)
                answer[ack_ids[1]] = INVALID
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader.source._settling._calls, "modify", refuse_second)
            reader.begin()
            await reader.until(lambda: len(reader.got) >= 4, "all have come")
        assert [each for each in reader.bodies if each != "other"] == ["1", "2", "3"]
        for each in reader.got:
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()


async def test_a_lease_that_is_refused_is_lost_and_told_of_once() -> None:
    """It is not asked for again and again, and cannot be acknowledged."""
    async with reading(subscription=EXACTLY_ONCE, deadline=10) as reader:
        await reader.publish("a", "b")
        first, second = await reader.deliveries(2)
        await reader.end()
        reader.emulator.faults.set(refusing(INVALID, "ModifyAckDeadline"))
        reader.clock.now += 5
        await reader.until(lambda: bool(reader.told), "it is told of")
        answered = reader.emulator.faults.answered
        for _ in range(3):
            reader.clock.now += 1
            await reader.looked()
        assert reader.emulator.faults.answered == answered
        assert [(each.messages, each.reason) for each in reader.of(DeliveriesLost)] == [(2, INVALID)]
        reader.clock.now += 60
        assert await reader.pull() == ["a", "b"]
        assert not await reader.source.acknowledge(first)
        reader.source.give_back(second)
        assert len(reader.told) == 1


async def test_what_comes_again_while_it_is_held_is_acknowledged_by_its_latest_ack_id() -> None:
    """The handler that began with an earlier one has done the work."""
    async with reading(subscription=EXACTLY_ONCE, deadline=10) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        old = delivery.handle.ack_id
        reader.clock.now += 70
        reader.emulator.wake()
        await reader.until(lambda: delivery.handle.ack_id != old, "it has come again")
        assert await reader.source.acknowledge(delivery)
        assert reader.bodies == ["a"]
        assert reader.source.held_messages == 0


async def test_an_acknowledgement_under_way_follows_the_message_to_its_latest_ack_id() -> None:
    """It was late; what came again meanwhile is acknowledged in its place."""
    async with reading(subscription=EXACTLY_ONCE, deadline=10) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        old = delivery.handle.ack_id
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="Acknowledge"))
        word = asyncio.ensure_future(reader.source.acknowledge(delivery))
        await reader.until(lambda: reader.emulator.faults.answered > 0, "it is asked for")
        reader.clock.now += 70
        reader.emulator.wake()
        await reader.until(lambda: delivery.handle.ack_id != old, "it has come again")
        reader.emulator.faults.clear()
        assert await word
        assert reader.bodies == ["a"]
        await reader.nothing_held()


async def test_what_is_being_acknowledged_is_held_until_it_is() -> None:
    """However long the service takes to answer; and its being gone then is no loss."""
    async with reading(subscription=EXACTLY_ONCE, deadline=10) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="Acknowledge"))
        word = asyncio.ensure_future(reader.source.acknowledge(delivery))
        for _ in range(4):
            await reader.pass_time(9)
        reader.emulator.faults.clear()
        assert await word
        for _ in range(3):
            reader.clock.now += 20
            await reader.looked()
        assert not reader.told


async def test_a_subscription_may_become_exactly_once_and_cease_to_be() -> None:
    """Each response says what it is."""
    async with reading() as reader:
        await reader.publish("a", "b")
        first, second = await reader.deliveries(2)
        assert await reader.source.acknowledge(first)
        await reader.change(enable_exactly_once_delivery=True)
        await reader.publish("c", "d")
        _, _, third, fourth = await reader.deliveries(4)
        reader.emulator.faults.set(refusing(INVALID, "Acknowledge", times=1))
        assert not await reader.source.acknowledge(third)
        assert await reader.source.acknowledge(second)
        await reader.change(enable_exactly_once_delivery=False)
        await reader.publish("e")
        fifth = (await reader.deliveries(5))[4]
        for each in (fourth, fifth):
            assert await reader.source.acknowledge(each)
        await reader.until(lambda: reader.leases.outstanding() <= 1, "all others are acknowledged")


@pytest.mark.parametrize("hangs", [Fault("OK", silent=True), Fault("UNAVAILABLE")])
async def test_whoever_waits_for_the_word_is_answered_at_the_end(hangs: Fault) -> None:
    """Also when the service hangs, or is away, and also whoever has stopped waiting."""
    async with reading(subscription=EXACTLY_ONCE) as reader:
        await reader.publish("a", "b", "c")
        deliveries = await reader.deliveries(3)
        reader.emulator.faults.set(hangs)
        words = [asyncio.ensure_future(reader.source.acknowledge(each)) for each in deliveries]
        await reader.until(lambda: reader.emulator.faults.answered > 0, "they are asked for")
        words[1].cancel()
        await asyncio.wait([words[1]])
        await reader.end()
        await reader.source.close(0.05)
        assert not await words[0]
        assert not await words[2]
        assert reader.source.held_messages == 0


async def test_what_nobody_has_seen_is_given_back_when_reading_ends() -> None:
    """Cancelled between its arrival and the word that it is ours, it comes again at once, not in a minute."""
    async with reading(subscription=EXACTLY_ONCE, begin=False) as reader:
        await reader.publish("a", "b")
        reader.emulator.faults.set(Fault("OK", method="ModifyAckDeadline", silent=True, times=1))
        reader.begin()
        await reader.until(lambda: reader.emulator.faults.answered == 1, "the receipt is asked for")
        assert reader.source.held_messages == 2
        await reader.end()
        assert reader.source.held_messages == 0
        await reader.nothing_held()
        assert sorted(await reader.pull()) == ["a", "b"]


async def test_a_key_is_acknowledged_in_its_order() -> None:
    """One at a time, as the pipeline works on it; out of turn the service has us ask again."""
    async with reading(subscription=ORDERED) as reader:
        await reader.publish(*map(str, range(20)), key="k")
        deliveries = await reader.deliveries(20)
        assert reader.bodies == [str(number) for number in range(20)]
        later = asyncio.ensure_future(reader.source.acknowledge(deliveries[1]))
        assert await reader.source.acknowledge(deliveries[0])
        assert await later
        for each in deliveries[2:]:
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()


async def test_what_comes_again_of_a_key_is_handed_over_in_its_order() -> None:
    """An earlier message goes first, though we were at a later one: only so is any of them accepted."""
    async with reading(subscription=ORDERED, deadline=10) as reader:
        await reader.publish("1", "2", "3", key="k")
        deliveries = list(await reader.deliveries(3))
        reader.emulator.faults.set(refusing(INVALID, "Acknowledge", times=1))
        assert not await reader.source.acknowledge(deliveries[0])
        reader.clock.now += 70
        reader.emulator.wake()
        await reader.deliveries(6)
        assert reader.bodies == ["1", "2", "3"] * 2
        # The lane is worked off from its head, and nobody waits for what stands behind.
        for each in deliveries[1:]:
            assert not await reader.source.acknowledge(each)
        for each in reader.got[3:]:
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()
        assert reader.source.held_bytes == 0


async def test_whoever_waits_for_the_word_waits_no_minute_for_it_when_reading_has_ended() -> None:
    """A process that stops has less than that."""
    async with reading(subscription=EXACTLY_ONCE) as reader:
        reader.source._settling._hurried_seconds = 0.05
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="Acknowledge"))
        word = asyncio.ensure_future(reader.source.acknowledge(delivery))
        await reader.until(lambda: reader.emulator.faults.answered > 0, "it is asked for")
        await reader.end()
        async with asyncio.timeout(10):
            assert not await word
