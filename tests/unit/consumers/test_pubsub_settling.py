"""How acknowledgements, extensions and returns travel: in which requests, how often, and who hears what of them."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from consumers.events import SettleFailed
from consumers.sources import pubsub_settling
from consumers.sources.pubsub_settling import Settling
from relay.errors import BrokerError
from relay.kernel.backoff import Delay
from tests.support.waiting import until_async

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
LATER = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"
AWAY = BrokerError("UNAVAILABLE", "nobody answers")
SECONDS = 10.0


class FakeReceiving:
    """Answers as it is told to, each call by the next answer, and in the end with success."""

    def __init__(self, *answers: Mapping[str, str] | BaseException) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[int | None, list[str]]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.at_once = 0
        self.most_at_once = 0
        self.bad: set[str] = set()

    async def acknowledge(self, ack_ids: Sequence[str], seconds: float) -> Mapping[str, str]:
        """Note the request, and answer when the way is open."""
        return await self._answer(None, ack_ids, seconds)

    async def modify(self, ack_ids: Sequence[str], deadline: int, seconds: float) -> Mapping[str, str]:
        """The same."""
        return await self._answer(deadline, ack_ids, seconds)

    async def _answer(self, deadline: int | None, ack_ids: Sequence[str], seconds: float) -> Mapping[str, str]:
        assert seconds > 0
        self.requests.append((deadline, list(ack_ids)))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        if self.bad & set(ack_ids):
            raise BrokerError("INVALID_ARGUMENT", "no ack id of this service")
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def said(self) -> list[str]:
        """Every ack id of every request."""
        return [ack_id for _, ack_ids in self.requests for ack_id in ack_ids]


class Settled:
    """What is under test, and what it told."""

    def __init__(self, *answers: Mapping[str, str] | BaseException, **settings: Any) -> None:
        self.calls = FakeReceiving(*answers)
        self.told: list[Any] = []
        self.settling = Settling(
            self.calls, "billing", "orders", self.told.append, **({"linger": 0.001, "tried_seconds": 30.0} | settings)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""

        async def holds() -> bool:
            return condition()

        await until_async(holds, "what was waited for", SECONDS)

    async def quiet(self) -> None:
        """Wait until all is said."""
        await self.until(lambda: not self.settling.unsaid)

    async def end(self, seconds: float = SECONDS) -> None:
        """Flush, after which nothing may be under way."""
        await self.settling.flush(seconds)
        assert not self.settling._sending
        assert not self.settling._answers


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub_settling, "_PAUSE", Delay(first=0.001, most=0.002, jitter=0.0))


async def test_many_acknowledgements_share_a_request() -> None:
    """Those of one moment go together."""
    settled = Settled()
    for number in range(300):
        settled.settling.acknowledge(str(number))
    await settled.quiet()
    assert settled.calls.requests == [(None, [str(number) for number in range(300)])]
    await settled.end()


async def test_a_request_has_no_more_than_a_thousand_ids() -> None:
    """Whatever is to be said with them."""
    settled = Settled()
    for number in range(2_500):
        settled.settling.acknowledge(f"a{number}")
        settled.settling.give_back(f"g{number}", 7)
    await settled.settling.extend([f"e{number}" for number in range(2_500)], 60)
    await settled.end()
    assert max(len(ack_ids) for _, ack_ids in settled.calls.requests) == 1_000
    assert len(settled.calls.requests) == 9
    assert len(set(settled.calls.said)) == 7_500


async def test_a_request_stays_below_the_bytes_that_the_service_takes() -> None:
    """512 KiB, whatever the length of an ack id is; one that is longer by itself is for the service to refuse."""
    settled = Settled()
    for number in range(1_000):
        settled.settling.acknowledge(f"{number:04}" + "x" * 1_000)
    settled.settling.acknowledge("y" * 1_000_000)
    await settled.end()
    sizes = [sum(map(len, ack_ids)) for _, ack_ids in settled.calls.requests if len(ack_ids) > 1]
    assert max(sizes) <= 512 * 1_024 - 10_000
    assert len(settled.calls.said) == 1_001


async def test_each_rest_has_its_own_requests() -> None:
    """A request has one deadline for all its ack ids."""
    settled = Settled()
    for number in range(10):
        settled.settling.give_back(str(number), number % 2 * 30)
    await settled.end()
    assert settled.calls.requests == [(0, list("02468")), (30, list("13579"))]


async def test_few_requests_are_under_way_at_once() -> None:
    """While the service hangs, what is to be said waits, and goes with fewer requests."""
    settled = Settled()
    settled.calls.open.clear()
    for number in range(200):
        settled.settling.acknowledge(str(number))
        if number < 50:
            await asyncio.sleep(0.002)
    assert settled.settling.unsaid == 200
    settled.calls.open.set()
    await settled.quiet()
    assert settled.calls.most_at_once == 10
    assert len(settled.calls.requests) <= 12
    assert sorted(map(int, settled.calls.said)) == list(range(200))
    await settled.end()


async def test_whoever_waits_for_room_is_told_of_it() -> None:
    """The number of what is unsaid has shrunk when it is called."""
    seen: list[int] = []
    settled: Settled = Settled(relieved=lambda: seen.append(settled.settling.unsaid))
    settled.settling.acknowledge("a")
    settled.settling.give_back("b", 1)
    assert settled.settling.unsaid == 2
    await settled.quiet()
    assert seen == [1, 0]
    await settled.end()


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "ABORTED"])
async def test_what_failed_in_passing_is_said_again(code: str) -> None:
    """And nobody needs to hear of it."""
    failure = BrokerError(code, "not now")
    settled = Settled(failure, failure, failure)
    settled.settling.acknowledge("a")
    await settled.quiet()
    assert settled.calls.requests == [(None, ["a"])] * 4
    assert not settled.told
    await settled.end()


@pytest.mark.parametrize("code", ["NOT_FOUND", "PERMISSION_DENIED", "INVALID_ARGUMENT", "FAILED_PRECONDITION"])
async def test_what_will_not_pass_is_told_of_at_once(code: str) -> None:
    """An operator has something to do; the messages come again."""
    settled = Settled(BrokerError(code, "never"))
    settled.settling.give_back("a", 9)
    await settled.quiet()
    assert settled.calls.requests == [(9, ["a"])]
    assert [(each.operation, each.messages, each.error.code) for each in settled.told] == [("give_back", 1, code)]
    await settled.end()


async def test_a_day_long_outage_is_told_of_once_for_each_request() -> None:
    """After as long as anything may come of it."""
    settled = Settled(*[AWAY] * 10_000, tried_seconds=0.05)
    for ack_id in "abc":
        settled.settling.acknowledge(ack_id)
    await settled.quiet()
    assert [(each.operation, each.messages) for each in settled.told] == [("acknowledge", 3)]
    assert 1 < len(settled.calls.requests) < 100
    await settled.end()


async def test_a_bug_below_is_told_of_too() -> None:
    """No task dies of it unheard, and the next requests go out."""
    settled = Settled(ZeroDivisionError("a bug"))
    settled.settling.acknowledge("a")
    await settled.quiet()
    (failed,) = settled.told
    assert isinstance(failed, SettleFailed)
    assert "ZeroDivisionError" in str(failed.error)
    settled.settling.acknowledge("b")
    await settled.end()
    assert settled.calls.said == ["a", "b"]


async def test_an_ack_id_that_the_service_does_not_know_takes_no_others_along() -> None:
    """The request is refused whole, so it is halved until the others are said."""
    settled = Settled()
    settled.calls.bad = {"13", "77"}
    for number in range(100):
        settled.settling.acknowledge(str(number))
    await settled.quiet()
    taken = set(itertools.chain(*(ids for _, ids in settled.calls.requests if not settled.calls.bad & set(ids))))
    assert taken == {str(number) for number in range(100)} - settled.calls.bad
    assert [(each.operation, each.messages) for each in settled.told] == [("acknowledge", 2)]
    await settled.end()


async def test_a_confirmation_is_the_service_s_word() -> None:
    """Those that are refused for good are; those that may work later are asked again."""
    settled = Settled({"b": INVALID, "c": LATER, "d": LATER}, {"d": INVALID})
    words = await asyncio.gather(*(settled.settling.confirm(ack_id) for ack_id in "abcd"))
    assert words == [True, False, True, False]
    assert settled.calls.requests == [(None, ["a", "b", "c", "d"]), (None, ["c", "d"])]
    assert not settled.told
    await settled.end()


async def test_two_may_wait_for_the_same_word() -> None:
    """It is asked for once."""
    settled = Settled()
    words = await asyncio.gather(*(settled.settling.confirm("a") for _ in range(2)))
    assert words == [True, True]
    assert settled.calls.said == ["a"]
    await settled.end()


async def test_a_confirmation_that_nobody_waits_for_any_more_disturbs_nobody() -> None:
    """The others of its request have their word all the same."""
    settled = Settled()
    settled.calls.open.clear()
    asks = [asyncio.ensure_future(settled.settling.confirm(ack_id)) for ack_id in "abc"]
    await settled.until(lambda: len(settled.calls.said) == 3)
    asks[1].cancel()
    await asyncio.wait([asks[1]])
    settled.calls.open.set()
    assert await asks[0]
    assert await asks[2]
    assert asks[1].cancelled()
    await settled.end()


async def test_a_confirmation_ends_when_the_process_does() -> None:
    """Whoever waits when it begins to stop, and whoever asks then, waits for a few seconds more."""
    settled = Settled(hurried_seconds=0.05)
    settled.calls.open.clear()
    early = asyncio.ensure_future(settled.settling.confirm("a"))
    await settled.until(lambda: bool(settled.calls.said))
    settled.settling.hurry()
    async with asyncio.timeout(SECONDS):
        assert not await early
        assert not await settled.settling.confirm("b")
    await settled.end(0.01)
    assert not await settled.settling.confirm("c")
    assert "c" not in settled.calls.said


async def test_a_confirmation_ends_in_an_outage() -> None:
    """By then the lease has ended too."""
    settled = Settled(*[AWAY] * 1_000, tried_seconds=0.03)
    assert not await settled.settling.confirm("a")
    assert [(each.operation, each.messages) for each in settled.told] == [("acknowledge", 1)]
    await settled.end()


async def test_flushing_takes_no_longer_than_it_may() -> None:
    """What was not said, and what was not answered, is told of, and everyone who waits is answered."""
    settled = Settled()
    settled.calls.open.clear()
    for number in range(12_000):
        settled.settling.acknowledge(str(number))
    settled.settling.give_back("z", 3)
    word = asyncio.ensure_future(settled.settling.confirm("w"))
    await settled.until(lambda: settled.calls.at_once == 10)
    async with asyncio.timeout(SECONDS):
        await settled.end(0.02)
    assert not await word
    told = {
        operation: sum(each.messages for each in settled.told if each.operation == operation)
        for operation in ("acknowledge", "give_back")
    }
    assert told == {"acknowledge": 12_001, "give_back": 1}
    assert settled.calls.at_once == 0


async def test_flushing_says_what_waits_for_its_turn() -> None:
    """Without the linger, however many requests that takes."""
    settled = Settled(linger=1_000.0)
    for number in range(30_000):
        settled.settling.acknowledge(str(number))
    await settled.end()
    assert len(set(settled.calls.said)) == 30_000
    assert not settled.told


async def test_nothing_is_said_after_the_end() -> None:
    """A thread that ends late finds a connection that is closed."""
    settled = Settled()
    await settled.end()
    settled.settling.acknowledge("a")
    settled.settling.give_back("b", 1)
    assert not await settled.settling.confirm("c")
    await settled.end()
    assert not settled.calls.requests


async def test_an_extension_is_tried_once_unless_it_is_told_otherwise() -> None:
    """Whoever extends looks again soon, at what is held then."""
    settled = Settled(AWAY, {"a": INVALID, "b": LATER}, AWAY, {"b": LATER}, {})
    failed = await settled.settling.extend(["a", "b"], 60)
    assert (failed.refused, failed.failed, failed.error) == ({}, ["a", "b"], AWAY)
    mixed = await settled.settling.extend(["a", "b", "c"], 60)
    assert (mixed.refused, mixed.failed) == ({"a": INVALID}, ["b"])
    worked = await settled.settling.extend(["b"], 60, SECONDS)
    assert (worked.refused, worked.failed) == ({}, [])
    assert len(settled.calls.requests) == 5
    assert not settled.told
    await settled.end()


async def test_one_batch_of_extensions_does_not_wait_for_another() -> None:
    """A request that hangs must not let the leases of the others end."""
    settled = Settled()
    settled.calls.open.clear()
    extending = asyncio.ensure_future(settled.settling.extend([str(number) for number in range(3_000)], 60))
    await settled.until(lambda: settled.calls.at_once == 3)
    settled.calls.open.set()
    assert not (await extending).failed
    await settled.end()
