"""Streams that end, for every reason: what is told, what is lost, and that nothing is left running."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.pubsub_v1.types import StreamingPullRequest, StreamingPullResponse

from consumers.events import SourceAway, SourceBack
from consumers.sources import pubsub_streams
from consumers.sources.pubsub_streams import Streams
from relay.brokers.pubsub_receiving import Receiving
from relay.dev.pubsub import Fault
from relay.errors import BrokerError
from relay.kernel.backoff import Delay
from tests.support.pubsub_source import left_behind, reading
from tests.support.waiting import until_async


def codes(told: list[Any]) -> list[str]:
    """What was told: the codes of outages, and "back"."""
    return [getattr(each.error, "code", "") if isinstance(each, SourceAway) else "back" for each in told]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "INTERNAL", "UNKNOWN", "CANCELLED"])
async def test_a_stream_that_worked_is_opened_again_without_a_word(code: str) -> None:
    """The service ends each of them after some minutes."""
    async with reading(steady=0.01) as reader:
        for number in range(5):
            await reader.publish(str(number))
            await reader.deliveries(number + 1)
            await reader.until(lambda: reader.source._streams._steady, "the stream is steady")
            answered = reader.emulator.faults.answered
            reader.emulator.faults.set(Fault(code, method="StreamingPull", times=1))
            await reader.until(lambda: reader.emulator.faults.answered > answered, "the stream is ended")  # noqa: B023 -- called at once
        assert reader.bodies == list("01234")
        assert not reader.told


async def test_one_failure_is_not_told_of() -> None:
    """A server that is on its way out takes a stream and ends it: the next one is another server's."""
    async with reading(steady=1_000.0, heartbeat=1_000.0) as reader:
        await reader.publish("a")
        await reader.deliveries(1)
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="StreamingPull", times=1))
        await reader.publish("b")
        await reader.deliveries(2)
        assert not reader.told


async def test_an_outage_is_told_of_once_and_so_is_its_end() -> None:
    """However many attempts there are in between; also where nothing comes when it is over."""
    async with reading() as reader:
        await reader.until(lambda: reader.source._streams._steady, "the stream is steady")
        reader.emulator.faults.set(Fault("UNAVAILABLE", method="StreamingPull"))
        reader.clock.now += 5
        await reader.until(lambda: reader.emulator.faults.answered > 10, "it is tried again and again")
        reader.clock.now += 100
        reader.emulator.faults.clear()
        await reader.until(lambda: bool(reader.of(SourceBack)), "it is back")
        away, told_back = codes(reader.told)
        # gRPC has a word of its own for a stream that the service ends while something is being written to it.
        assert away in {"UNAVAILABLE", "INTERNAL"}
        assert told_back == "back"
        (back,) = reader.of(SourceBack)
        assert 100 <= back.seconds <= 105


async def test_streams_that_bring_something_and_die_are_an_outage() -> None:
    """Told of once; tried ever more slowly; what they bring is taken."""
    async with reading(steady=1_000.0, heartbeat=1_000.0) as reader:
        for number in range(12):
            await reader.publish(str(number))
            await reader.deliveries(number + 1)
            answered = reader.emulator.faults.answered
            reader.emulator.faults.set(Fault("UNAVAILABLE", method="StreamingPull", times=1))
            await reader.until(lambda: reader.emulator.faults.answered > answered, "the stream is ended")  # noqa: B023 -- called at once
        assert codes(reader.told) == ["UNAVAILABLE"]


async def test_another_reason_is_news() -> None:
    """First the service was away, then the permission; in between nobody needs to hear of it."""
    async with reading() as reader:
        for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "PERMISSION_DENIED", "INTERNAL"):
            reader.emulator.faults.set(Fault(code, method="StreamingPull"))
            answered = reader.emulator.faults.answered
            await reader.until(lambda: reader.emulator.faults.answered > answered + 3, "it is tried again")  # noqa: B023 -- called at once
        assert codes(reader.told) == ["UNAVAILABLE", "PERMISSION_DENIED", "INTERNAL"]


async def test_a_subscription_that_is_deleted_and_made_again_is_read_again() -> None:
    """Told of at once, as no time heals it."""
    async with reading() as reader:
        await reader.publish("a")
        (old,) = await reader.deliveries(1)
        await reader.delete()
        await reader.until(lambda: bool(reader.told), "it is told of")
        await reader.subscriber.create_subscription(
            request={
                "name": reader.address.subscription("orders"),
                "topic": reader.address.topic("orders"),
                "ack_deadline_seconds": 60,
            }
        )
        await reader.publish("b")
        _, new = await reader.deliveries(2)
        await reader.until(lambda: bool(reader.of(SourceBack)), "it is back")
        assert codes(reader.told) == ["NOT_FOUND", "back"]
        for each in (old, new):
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()


@pytest.mark.parametrize("kept", [True, False])
async def test_a_service_that_restarts_is_read_again(*, kept: bool) -> None:
    """With all that it had, or empty, and then with the subscription made anew."""
    async with reading() as reader:
        await reader.publish("a")
        (old,) = await reader.deliveries(1)
        await reader.emulator.stop()
        await reader.until(lambda: bool(reader.of(SourceAway)), "it is away")
        if not kept:
            reader.emulator.clear()
        await reader.emulator.start()
        if not kept:
            await reader.until(lambda: len(reader.of(SourceAway)) > 1, "the subscription is gone")
            await reader.create()
        await reader.publish("b")
        await reader.deliveries(2)
        await reader.until(lambda: bool(reader.of(SourceBack)), "it is back")
        assert codes(reader.told) == (["UNAVAILABLE", "back"] if kept else ["UNAVAILABLE", "NOT_FOUND", "back"])
        assert reader.bodies == ["a", "b"]
        for each in (old, reader.got[1]):
            assert await reader.source.acknowledge(each)
        await reader.nothing_held()
        assert not await reader.pull()


async def test_a_service_that_is_away_at_the_start_is_waited_for() -> None:
    """Opening takes what it is told; reading tells."""
    async with reading(begin=False) as reader:
        await reader.emulator.stop()
        reader.begin()
        await reader.until(lambda: bool(reader.of(SourceAway)), "it is away")
        await reader.emulator.start()
        await reader.publish("a")
        await reader.deliveries(1)
        await reader.until(lambda: bool(reader.of(SourceBack)), "it is back")
        assert codes(reader.told) == ["UNAVAILABLE", "back"]


async def test_all_streams_are_one_client_s() -> None:
    """By its id the service hands on what one stream held to the next."""
    async with reading(begin=False) as reader:
        wishes: list[Any] = []
        stream = Receiving.stream

        def noted(self: Receiving) -> Any:
            call: Any = stream(self)
            write = call.write

            async def note(request: Any) -> None:
                wishes.append(request)
                await write(request)

            call.write = note
            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Receiving, "stream", noted)
            reader.begin()
            for number in range(3):
                await reader.publish(str(number))
                await reader.deliveries(number + 1)
                reader.emulator.faults.set(Fault("UNAVAILABLE", method="StreamingPull", times=1))
        opening = [each for each in wishes if each.subscription]
        assert len(opening) >= 3
        assert len({each.client_id for each in opening}) == 1
        assert opening[0].max_outstanding_messages == 100


async def test_a_quiet_stream_is_kept_alive() -> None:
    """The service ends one on which the client says nothing for long."""
    async with reading(steady=0.0, heartbeat=0.005) as reader:
        await reader.publish("a")
        await reader.deliveries(1)
        await reader.until(lambda: len(reader.leases._listeners) == 1, "one stream is open")
        (listener,) = reader.leases._listeners
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert list(reader.leases._listeners) == [listener]
        assert not reader.told


class OddCall:
    """A stream's call that does one odd thing."""

    def __init__(self, **odd: BaseException | Any) -> None:
        self.odd = odd
        self.ended = asyncio.Event()

    async def _do(self, what: str) -> Any:
        if what in self.odd:
            found = self.odd.pop(what)
            if isinstance(found, BaseException):
                raise found
            return found
        return None

    async def write(self, request: Any) -> None:
        """Send."""
        await self._do("write" if request.subscription else "beat")

    async def read(self) -> Any:
        """Receive; what was cancelled on this side shows itself as gRPC shows it."""
        if "read" in self.odd:
            return await self._do("read")
        await self.ended.wait()
        raise asyncio.CancelledError

    async def initial_metadata(self) -> None:
        """It is open."""
        await self._do("metadata")

    def done(self) -> bool:
        """Whether it has ended."""
        return self.ended.is_set()

    def cancel(self) -> bool:
        """End it."""
        self.ended.set()
        return True


class OddCalls:
    """Opens one odd stream after the other."""

    def __init__(self, *calls: OddCall) -> None:
        self.calls = list(calls)

    def stream(self) -> OddCall:
        """The next one; the last ones are quiet."""
        return self.calls.pop(0) if self.calls else OddCall()


@asynccontextmanager
async def streams(
    *calls: OddCall, room: asyncio.Event | None = None, take: Callable[[Any], Awaitable[None]] | None = None
) -> AsyncIterator[tuple[OddCalls, list[Any]]]:
    """Read these."""
    told: list[Any] = []
    odd: Any = OddCalls(*calls)

    async def wait_for_room() -> None:
        if room is not None:
            await room.wait()

    async def nothing(_: Any) -> None:
        pass

    running = asyncio.ensure_future(
        Streams(
            odd,
            StreamingPullRequest.pb()(subscription="s"),
            room=wait_for_room,
            take=take or nothing,
            consumer="billing",
            subscription="orders",
            observe=told.append,
            steady=0.0,
            heartbeat=0.005,
            answer=0.02,
            reconnect=Delay(first=0.0, most=0.0, jitter=0.0),
        ).run()
    )
    try:
        yield odd, told
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert not left_behind()


ODDITIES: dict[str, dict[str, Any]] = {
    "a call that has ended before it was written to": {"write": asyncio.InvalidStateError("it has ended")},
    "a channel that is closed": {"write": grpc.aio.UsageError("Channel is closed.")},
    "a core that fails": {"read": grpc.aio.InternalError("core")},
    "an end": {"read": grpc.aio.EOF},
    "a response that nobody can read": {"read": None},
    "a call that was cancelled on this side": {"read": asyncio.CancelledError()},
    "a heartbeat that fails": {"beat": RuntimeError("a bug")},
    "a heartbeat on what has ended": {"beat": asyncio.InvalidStateError("it has ended")},
    "a heartbeat that is refused": {
        "beat": grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone")
    },
    "metadata that never come": {"metadata": RuntimeError("a bug")},
}


@pytest.mark.parametrize("oddity", ODDITIES)
async def test_whatever_ends_a_stream_the_next_one_is_opened(oddity: str) -> None:
    """No error of gRPC's ends the reading, and none is left for the garbage collector to complain of."""
    async with streams(*(OddCall(**ODDITIES[oddity]) for _ in range(2))) as (odd, told):

        async def opened() -> bool:
            return not odd.calls

        await until_async(opened, "the last stream is opened")
        assert all(isinstance(each, SourceAway | SourceBack) for each in told)


class PingedCall(OddCall):
    """Opens, or not; answers so many heartbeats; and then is silent."""

    def __init__(self, *, opens: bool = True, answers: int = 0) -> None:
        super().__init__()
        self.opens = opens
        self.answers = answers
        self.beats = 0
        self.responses: asyncio.Queue[Any] = asyncio.Queue()

    async def initial_metadata(self) -> None:
        """It is open."""
        if not self.opens:
            await self.ended.wait()

    async def write(self, request: Any) -> None:
        """Send; what is not open takes nothing."""
        if not self.opens:
            await self.ended.wait()
            raise asyncio.CancelledError
        if not request.subscription:
            self.beats += 1
            if self.beats <= self.answers:
                self.responses.put_nowait(StreamingPullResponse.pb()())

    async def read(self) -> Any:
        """The next answer, or the end."""
        response = asyncio.ensure_future(self.responses.get())
        ended = asyncio.ensure_future(self.ended.wait())
        try:
            done, _ = await asyncio.wait([response, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            response.cancel()
            ended.cancel()
        if response in done:
            return response.result()
        raise asyncio.CancelledError


async def test_a_stream_that_ceases_to_answer_is_given_up() -> None:
    """A firewall drops what is quiet without a sign to either side; the service, which answered, would answer."""
    async with streams(PingedCall(answers=3), PingedCall(answers=1), PingedCall(answers=0)) as (odd, told):

        async def opened() -> bool:
            return not odd.calls

        await until_async(opened, "each is given up in its turn")
        assert not told


async def test_a_service_that_never_answers_is_not_asked_to() -> None:
    """As emulators, which know of no answers."""
    quiet = PingedCall()
    async with streams(quiet, OddCall()) as (odd, told):

        async def beaten() -> bool:
            return quiet.beats > 10

        await until_async(beaten, "it is told often that somebody is here")
        assert len(odd.calls) == 1
        assert not told


async def test_a_stream_that_does_not_open_is_given_up_where_others_opened() -> None:
    """And told of, as any that fails."""
    async with streams(OddCall(read=grpc.aio.EOF), *(PingedCall(opens=False) for _ in range(3))) as (odd, told):
        # The first one ends before it is seen to be open, unless it is given a moment.
        odd.calls.insert(0, OddCall(beat=RuntimeError("ends it, open")))

        async def opened() -> bool:
            return not odd.calls

        await until_async(opened, "each is given up in its turn")
        assert codes(told) in (["DEADLINE_EXCEEDED"], ["DEADLINE_EXCEEDED", "back"])


async def test_who_has_no_room_does_not_miss_an_answer() -> None:
    """It lies where nobody looks for it."""
    call = PingedCall(answers=1)
    room = asyncio.Event()
    room.set()

    async def take(_: Any) -> None:
        room.clear()

    async with streams(call, OddCall(), room=room, take=take) as (odd, _):

        async def beaten() -> bool:
            return call.beats > 10

        await until_async(beaten, "it is told often that somebody is here")
        assert len(odd.calls) == 1
        room.set()

        async def opened() -> bool:
            return not odd.calls

        await until_async(opened, "now nothing is heard")


async def test_what_is_wrong_with_our_own_work_is_not_taken_for_an_outage() -> None:
    """It ends the consumer, which says so."""

    async def take(_: Any) -> None:
        raise BrokerError("UNAVAILABLE", "not the stream's")

    async def room() -> None:
        pass

    odd: Any = OddCalls(OddCall(read="a response"))
    with pytest.raises(BrokerError):
        await Streams(
            odd,
            StreamingPullRequest.pb()(subscription="s"),
            room=room,
            take=take,
            consumer="billing",
            subscription="orders",
            observe=lambda _: None,
        ).run()
    assert not left_behind()


async def turns(count: int) -> None:
    """Give way to the loop so often."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", range(0, 60, 3))
async def test_reading_can_be_cancelled_at_any_point(after: int) -> None:
    """While it connects, opens, reads, waits for room, or pauses; what was handed over stays ours."""
    async with reading(max_messages=2, subscription={"enable_exactly_once_delivery": True}) as reader:
        await reader.end()
        await reader.publish("a", "b", "c")
        reader.begin()
        await turns(after)
        await reader.end()
        for each in reader.got:
            assert await reader.source.acknowledge(each)
        assert reader.source.held_messages == 0


async def test_reading_can_be_cancelled_while_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause between two attempts may be long."""
    monkeypatch.setattr(pubsub_streams, "RECONNECT", Delay(first=100.0, most=100.0, jitter=0.0))
    async with reading(reconnect=pubsub_streams.RECONNECT) as reader:
        reader.emulator.faults.set(Fault("PERMISSION_DENIED", method="StreamingPull"))
        await reader.until(lambda: bool(reader.told), "it pauses")
        await reader.end()
