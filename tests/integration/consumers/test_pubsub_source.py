"""What a source holds of a subscription: for how long, how much of it, and what it gives back."""

import time

import pytest

from consumers.events import DeliveriesLost, SettleFailed, SourceAway
from consumers.sources import pubsub
from consumers.sources.pubsub import PubSubSource
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.pubsub import Fault, PubSubEmulator
from relay.errors import ConfigurationError
from tests.support.pubsub_source import PROJECT, SECONDS, left_behind, reading

DOWN = Fault("UNAVAILABLE", method="StreamingPull")
NO_EXTENSIONS = Fault("UNAVAILABLE", method="ModifyAckDeadline")


async def test_what_is_worked_on_for_long_is_held_all_the_while() -> None:
    """A handler may take hours; the service waits for as long as we say so."""
    async with reading(deadline=10) as reader:
        await reader.publish("a", "b")
        first, second = await reader.deliveries(2)
        for _ in range(20):
            await reader.pass_time(9)
        assert not await reader.pull()
        assert await reader.source.acknowledge(first)
        await reader.until(lambda: reader.leases.outstanding() == 1, "the other one is held")
        for _ in range(3):
            await reader.pass_time(9)
        assert await reader.source.acknowledge(second)
        await reader.nothing_held()
        assert reader.bodies == ["a", "b"]
        assert not reader.told


async def test_leases_outlive_the_reading() -> None:
    """While the process stops, handlers end their work; what they work on is still ours."""
    async with reading(deadline=10) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        await reader.end()
        for _ in range(5):
            await reader.pass_time(9)
        assert await reader.source.acknowledge(delivery)
        await reader.nothing_held()
        assert not await reader.pull()


async def test_leases_outlive_the_stream() -> None:
    """What came over a stream that broke is held by requests of their own."""
    async with reading(deadline=10) as reader:
        await reader.publish("a")
        await reader.deliveries(1)
        reader.emulator.faults.set(DOWN)
        await reader.until(lambda: bool(reader.of(SourceAway)), "the stream is gone")
        for _ in range(5):
            await reader.pass_time(9)
        reader.emulator.faults.clear()
        await reader.publish("b")
        await reader.deliveries(2)
        assert reader.bodies == ["a", "b"]
        assert not reader.of(DeliveriesLost)


async def test_an_extension_that_fails_is_tried_again_until_it_is_too_late() -> None:
    """A short outage of one method costs nothing."""
    async with reading(deadline=10) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        reader.emulator.faults.set(NO_EXTENSIONS)
        reader.clock.now += 9
        await reader.until(lambda: reader.emulator.faults.answered > 2, "it is tried more than once")
        reader.emulator.faults.clear()
        await reader.pass_time(0)
        assert not reader.told
        assert await reader.source.acknowledge(delivery)


async def test_what_could_not_be_extended_is_lost_and_told_of_once() -> None:
    """The operator hears how many, and why; the messages come again."""
    async with reading(deadline=10, max_messages=2) as reader:
        await reader.publish("a", "b")
        await reader.deliveries(2)
        reader.emulator.faults.set(NO_EXTENSIONS, DOWN)
        reader.clock.now += 9
        await reader.until(lambda: reader.emulator.faults.answered > 2, "it was tried")
        reader.clock.now += 2
        await reader.until(lambda: bool(reader.of(DeliveriesLost)), "they are lost")
        for _ in range(3):
            reader.clock.now += 20
            await reader.looked()
        (lost,) = reader.of(DeliveriesLost)
        assert lost.messages == 2
        assert "UNAVAILABLE" in lost.reason
        assert sorted(await reader.pull()) == ["a", "b"]


async def test_what_comes_again_while_it_is_held_is_the_same_work() -> None:
    """After a stop of the whole process (SIGSTOP, a laptop's lid) the messages come again under new ack ids."""
    async with reading(deadline=10) as reader:
        await reader.publish("a", "b", "c")
        first, second, third = await reader.deliveries(3)
        assert await reader.source.acknowledge(third)
        await reader.until(lambda: reader.leases.outstanding() == 2, "two are held")
        old = {each.handle.ack_id for each in (first, second)}
        reader.clock.now += 70
        reader.emulator.wake()
        await reader.until(lambda: not old & {first.handle.ack_id, second.handle.ack_id}, "both have come again")
        assert reader.source.held_messages == 2
        for _ in range(3):
            await reader.pass_time(9)
        assert await reader.source.acknowledge(first)
        reader.source.give_back(second)
        await reader.deliveries(4)
        assert reader.bodies == ["a", "b", "c", "b"]
        assert await reader.source.acknowledge(reader.got[3])
        await reader.nothing_held()
        assert not await reader.pull()
        assert [each.messages for each in reader.of(DeliveriesLost)] in ([], [2])


async def test_what_somebody_else_got_meanwhile_is_lost() -> None:
    """A process that slept past its deadlines knows it when it wakes."""
    async with reading(deadline=10, max_messages=1) as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        await reader.end()
        reader.clock.now += 70
        assert await reader.pull() == ["a"]
        await reader.until(lambda: bool(reader.of(DeliveriesLost)), "it is lost")
        assert delivery.handle.lost
        assert await reader.source.acknowledge(delivery)
        assert reader.source.held_messages == 0
        assert len(reader.told) == 1


async def test_another_message_of_the_same_id_is_another_message() -> None:
    """An emulator that was cleared counts from 1 again, and what we hold from before must not swallow what is new."""
    async with reading(begin=False) as reader:
        reader.begin()
        await reader.publish("old")
        (old,) = await reader.deliveries(1)
        reader.emulator.clear()
        reader.emulator._catalog._message_number = iter(range(1, 10))  # type: ignore[assignment]
        await reader.create()
        await reader.publish("new")
        _, new = await reader.deliveries(2)
        assert new.message_id == old.message_id
        assert reader.bodies == ["old", "new"]
        assert reader.source.held_messages == 2
        assert await reader.source.acknowledge(new)
        await reader.nothing_held()
        assert await reader.source.acknowledge(old)
        assert (reader.source.held_messages, reader.source.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("delay", "seconds"), [(-1.0, 0), (0.0, 0), (0.2, 1), (1.0, 1), (90.5, 91), (600.0, 600), (1e9, 600)]
)
async def test_a_delivery_rests_for_as_long_as_it_is_told_to(delay: float, seconds: int) -> None:
    """In whole seconds, never less than asked for, up to the 600 that the service takes."""
    async with reading() as reader:
        await reader.publish("a")
        (delivery,) = await reader.deliveries(1)
        await reader.end()
        reader.source.give_back(delivery, delay)
        await reader.until(
            lambda: (reader.leases.next_event() or reader.clock.now) == reader.clock.now + seconds, "it rests"
        )
        if seconds:
            reader.clock.now += seconds - 1
            assert not await reader.pull()
            reader.clock.now += 1
        assert await reader.pull() == ["a"]


async def test_what_has_an_end_has_one_end() -> None:
    """A delivery that was given back cannot be acknowledged, nor the other way round: the first word counts."""
    async with reading() as reader:
        await reader.publish("a", "b")
        first, second = await reader.deliveries(2)
        await reader.end()
        reader.source.give_back(first, 30)
        assert not await reader.source.acknowledge(first)
        assert await reader.source.acknowledge(second)
        reader.source.give_back(second)
        assert not await reader.source.acknowledge(second)
        await reader.until(lambda: not reader.source._settling.unsaid, "both are said")
        assert reader.leases.outstanding() == 1
        reader.clock.now += 30
        assert await reader.pull() == ["a"]


async def test_no_more_messages_are_held_than_agreed() -> None:
    """And all come in the end."""
    async with reading(max_messages=3) as reader:
        await reader.publish(*map(str, range(10)))
        for count in range(10):
            delivery = (await reader.deliveries(count + 1))[count]
            assert reader.source.held_messages <= 3
            assert await reader.source.acknowledge(delivery)
        assert sorted(map(int, reader.bodies)) == list(range(10))


async def test_attributes_take_room_too() -> None:
    """A hundred attributes of a kilobyte weigh more than most bodies."""
    async with reading(max_bytes=10_000) as reader:
        await reader.publish(*"abcdefgh", note="n" * 1_000, other="o" * 1_000, third="t" * 1_000)
        await reader.deliveries(4)
        assert reader.source.held_bytes > 10_000
        await reader.publish("late")
        for number in range(9):
            delivery = (await reader.deliveries(number + 1))[number]
            assert reader.source.held_messages <= 5
            assert await reader.source.acknowledge(delivery)
        assert reader.source.held_bytes == 0


async def test_a_stream_that_ends_while_nothing_can_be_held_is_opened_when_something_can() -> None:
    """What nobody reads would lie in buffers until its lease has ended."""
    async with reading(max_messages=2) as reader:
        await reader.publish(*map(str, range(6)))
        first, second = await reader.deliveries(2)
        reader.emulator.faults.set(DOWN)
        await reader.until(lambda: not reader.leases._listeners, "the stream has ended")
        reader.emulator.faults.clear()
        assert reader.leases.outstanding() == 2
        assert await reader.source.acknowledge(first)
        assert await reader.source.acknowledge(second)
        await reader.deliveries(4)
        assert reader.source.held_messages == 2
        assert not reader.told


async def test_what_lay_in_buffers_is_extended_at_once() -> None:
    """The service has counted since it sent it, not since we had room to look."""
    async with reading(max_messages=1, deadline=600, extend_every=100.0) as reader:
        await reader.publish("a", "b")
        (first,) = await reader.deliveries(1)
        await reader.until(lambda: not reader.source._room.is_set(), "there is no room")
        reader.clock.now += 500
        assert await reader.source.acknowledge(first)
        _, second = await reader.deliveries(2)
        assert second.handle.until == reader.clock.now + 100


async def test_acknowledgements_survive_a_short_outage() -> None:
    """They are tried again, and nobody waits for them."""
    async with reading() as reader:
        await reader.publish(*map(str, range(5)))
        deliveries = await reader.deliveries(5)
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="Acknowledge", times=2))
        for each in deliveries:
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()
        assert not reader.told


async def test_nothing_is_received_that_could_not_be_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """While acknowledgements get stuck their messages come again and again; ack ids must not fill the memory."""
    monkeypatch.setattr(pubsub, "_MOST_UNSAID", 4)
    async with reading(max_messages=2) as reader:
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="Acknowledge"))
        await reader.publish("a", "b")
        for count in range(4):
            assert await reader.source.acknowledge((await reader.deliveries(count + 1))[count])
            if count == 1:
                reader.clock.now += 70
                reader.emulator.wake()
        assert reader.bodies == ["a", "b", "a", "b"]
        assert reader.source._full()
        assert reader.source.held_messages == 0
        reader.emulator.faults.clear()
        await reader.until(lambda: not reader.source._full(), "they are said, and there is room")


@pytest.mark.parametrize("hangs", [Fault("OK", silent=True), Fault("OK", delay_ms=60_000)])
async def test_closing_takes_no_longer_than_it_may(hangs: Fault) -> None:
    """Also where the service takes every call and answers none; what has not been said is told of."""
    async with PubSubEmulator() as emulator, reading(deadline=10) as reader:
        del emulator
        await reader.publish("a", "b", "c")
        first, second, _ = await reader.deliveries(3)
        reader.emulator.faults.set(hangs)
        await reader.end()
        assert await reader.source.acknowledge(first)
        reader.source.give_back(second, 5.0)
        began = time.monotonic()
        await reader.source.close(0.2)
        assert time.monotonic() - began < 5
        assert sorted((each.operation, each.messages) for each in reader.of(SettleFailed)) == [
            ("acknowledge", 1),
            ("give_back", 1),
        ]
        assert not left_behind()


async def test_closing_leaves_no_extension_under_way() -> None:
    """Not even until the loop's next turn."""
    async with reading(deadline=10) as reader:
        await reader.publish("a")
        await reader.deliveries(1)
        reader.emulator.faults.set(Fault("OK", method="ModifyAckDeadline", silent=True))
        reader.clock.now += 5
        await reader.until(lambda: reader.emulator.faults.answered > 0, "it is being extended")
        await reader.end()
        await reader.source.close(0.05)
        assert left_behind() == []


async def test_what_comes_again_under_an_ordering_key_is_handed_over_again() -> None:
    """Earlier ones of its key, which we do not hold any longer, may come again with it, and go first."""
    async with reading(deadline=10, subscription={"enable_message_ordering": True}) as reader:
        await reader.publish("1", "2", key="k")
        first, second = await reader.deliveries(2)
        await reader.end()
        reader.clock.now += 70
        reader.begin()
        *_, third, fourth = await reader.deliveries(4)
        assert reader.bodies == ["1", "2", "1", "2"]
        assert first.handle.lost
        for each in (first, second, third, fourth):
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()
        assert (reader.source.held_messages, reader.source.held_bytes) == (0, 0)


async def test_closing_says_what_is_still_to_be_said() -> None:
    """Hundreds of deliveries, each with its own rest, within the time that a stopping process has."""
    async with reading(max_messages=1_000) as reader:
        await reader.publish(*map(str, range(500)))
        deliveries = await reader.deliveries(500)
        await reader.end()
        for number, each in enumerate(deliveries[:-100]):
            reader.source.give_back(each, number / 3)
        for each in deliveries[-100:]:
            assert await reader.source.acknowledge(each)
        await reader.source.close(SECONDS)
        assert not reader.told
        reader.clock.now += 134
        assert len(await reader.pull()) == 400


async def test_a_closed_source_takes_what_comes_late() -> None:
    """A thread that could not be stopped may end after all is closed."""
    async with reading() as reader:
        await reader.publish("a", "b", "c")
        first, second, _ = await reader.deliveries(3)
        await reader.end()
        await reader.source.close(SECONDS)
        await reader.source.acknowledge(first)
        reader.source.give_back(second)
        assert not left_behind()


async def test_a_subscription_that_is_not_there_leaves_nothing_running() -> None:
    """The process says so and ends."""
    async with PubSubEmulator() as emulator:
        address = PubSubAddress(PROJECT, emulator=emulator.address)
        source = PubSubSource(
            address, "missing", consumer="billing", max_messages=1, max_bytes=1, observe=lambda _: None
        )
        with pytest.raises(ConfigurationError, match="there is no subscription"):
            await source.open()
        assert not left_behind()


async def test_messages_may_be_large() -> None:
    """One alone may exceed what gRPC takes by default."""
    async with reading(max_bytes=64 << 20) as reader:
        await reader.publish("x" * 6_000_000)
        (delivery,) = await reader.deliveries(1)
        assert len(delivery.body) == 6_000_000
        assert await reader.source.acknowledge(delivery)
