"""Extensions whose answer comes when things have changed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from google.pubsub_v1.types import ReceivedMessage

from consumers.delivery import Delivery
from consumers.sources.pubsub_holding import Holding
from consumers.sources.pubsub_settling import Said

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"


class Bench:
    """A holding whose extensions are answered by hand, at a time of the test's choice."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[list[str]] = []
        self.answers: asyncio.Queue[Said] = asyncio.Queue()
        self.lost: list[tuple[int, str]] = []
        settling: Any = SimpleNamespace(extend=self._extend)
        self.holding = Holding(
            settling, lambda *lost: self.lost.append(lost), deadline=60, extend_every=15.0, monotonic=lambda: self.now
        )

    async def _extend(self, ack_ids: Sequence[str], seconds: int, tried: float = 0.0) -> Said:
        assert (seconds, tried) == (60, 0.0)
        self.asked.append(list(ack_ids))
        return await self.answers.get()

    def receive(self, *ack_ids: str, message: str = "") -> list[Delivery]:
        """These come."""
        received = [
            ReceivedMessage.pb()(ack_id=ack_id, message={"message_id": message or ack_id, "data": b"x"})
            for ack_id in ack_ids
        ]
        fresh, again = self.holding.receive(received)
        return fresh or again

    async def look(self, now: float) -> None:
        """Time has come to look for what is to be extended."""
        self.now = now
        self.holding._extend_due()
        await asyncio.sleep(0)

    async def answer(self, **refused: str) -> None:
        """The extension under way is answered."""
        self.answers.put_nowait(Said(refused=refused))
        await asyncio.wait(self.holding._extensions, return_when=asyncio.FIRST_COMPLETED)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A holding."""
    made = Bench()
    yield made
    for extension in made.holding._extensions:
        extension.cancel()


async def test_only_what_has_worn_is_extended_and_only_once_at_a_time(bench: Bench) -> None:
    """What came later is extended later."""
    bench.receive("a")
    bench.now = 10.0
    bench.receive("b")
    await bench.look(14.9)
    assert bench.asked == []
    await bench.look(15.0)
    await bench.look(18.0)
    assert bench.asked == [["a"]]
    await bench.look(25.0)
    assert bench.asked == [["a"], ["b"]]
    await bench.answer()


async def test_what_is_gone_because_it_was_acknowledged_is_no_loss(bench: Bench) -> None:
    """The acknowledgement overtook the extension."""
    acknowledging, other, let_go = bench.receive("a", "b", "c")
    await bench.look(15.0)
    acknowledging.handle.settling = True
    bench.holding.let_go(let_go)
    await bench.answer(a=INVALID, b=INVALID, c=INVALID)
    assert bench.lost == [(1, INVALID)]
    assert other.handle.lost
    assert not acknowledging.handle.lost


async def test_what_is_being_acknowledged_is_not_told_of_when_it_is_late(bench: Bench) -> None:
    """Its acknowledgement tells."""
    acknowledging, _ = bench.receive("a", "b")
    acknowledging.handle.settling = True
    await bench.look(60.0)
    assert [count for count, _ in bench.lost] == [1]


async def test_a_refused_ack_id_says_nothing_of_the_one_that_followed(bench: Bench) -> None:
    """The message came again while the extension was under way."""
    (delivery,) = bench.receive("a", message="m")
    await bench.look(15.0)
    bench.now = 20.0
    assert bench.receive("b", message="m") == [delivery]
    await bench.answer(a=INVALID)
    assert not delivery.handle.lost
    assert delivery.handle.until == 80.0
    assert not bench.lost
    await bench.look(35.0)
    assert bench.asked == [["a"], ["b"]]
    await bench.answer()


async def test_an_extension_counts_from_when_it_was_asked_for(bench: Bench) -> None:
    """The service may have taken it then, and answered late."""
    (delivery,) = bench.receive("a")
    await bench.look(15.0)
    bench.now = 24.0
    await bench.answer()
    assert delivery.handle.until == 75.0
