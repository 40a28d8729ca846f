"""What a replay makes the store forget, and what it does not."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from consumers import outcome
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.protocol import AlreadyDone, Begun
from consumers.delivery import Delivery
from consumers.forgetting import StoreMemory
from consumers.outcome import Dead
from consumers.received import Received
from idempotency import Claimed, Done, InProgress, MemoryManager, script

WHOSE = "billing"
DELIVERY = Delivery(body=b"", attributes={}, attempt=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def store() -> MemoryManager:
    """An empty one."""
    return MemoryManager()


async def completed(store: MemoryManager, event: UUID, result: bytes | str | None) -> None:
    """The event is done, with this result."""
    claim = await store.claim(WHOSE, event)
    assert isinstance(claim, Claimed)
    await store.complete(claim, result)


def received(event: UUID) -> Received[None]:
    """An event as the pipeline has it."""
    return Received(
        event_id=event,
        event_type="order.paid",
        version=1,
        occurred_at=datetime(2025, 1, 31, tzinfo=UTC),
        data=None,
        attributes={},
    )


async def test_a_dead_letter_is_forgotten(store: MemoryManager) -> None:
    """Its replay is acted on, with all attempts."""
    event = uuid4()
    await completed(store, event, b'{"dead_letter":true}')

    await StoreMemory(store).forget(WHOSE, event)

    again = await store.claim(WHOSE, event)
    assert isinstance(again, Claimed)
    assert again.attempt == 1


@pytest.mark.parametrize("result", [None, b'{"total": 3}', "not JSON", b"true"])
async def test_what_had_its_effect_stays_known(store: MemoryManager, result: bytes | str | None) -> None:
    """A run that is repeated after it was killed finds events that were acted on meanwhile."""
    event = uuid4()
    await completed(store, event, result)

    await StoreMemory(store).forget(WHOSE, event)

    assert await store.claim(WHOSE, event) == Done(result)


async def test_asking_leaves_no_trace(store: MemoryManager) -> None:
    """An event that the store does not know is as free as before, and has lost no attempt."""
    event = uuid4()

    await StoreMemory(store).forget(WHOSE, event)

    claim = await store.claim(WHOSE, event)
    assert isinstance(claim, Claimed)
    assert claim.attempt == 1


async def test_whoever_acts_on_it_now_is_left_alone(store: MemoryManager) -> None:
    """It was delivered again by itself: the one who has it completes it."""
    event = uuid4()
    claim = await store.claim(WHOSE, event)
    assert isinstance(claim, Claimed)

    await StoreMemory(store).forget(WHOSE, event)

    assert isinstance(await store.claim(WHOSE, event), InProgress)
    await store.complete(claim)


class Overtaken(MemoryManager):
    """Before what is to be forgotten reaches the store, another replay forgets it, and its consumer has its effect."""

    overtaken = False

    async def ask(self, call: Any) -> Any:
        """Carry a call out, the first of its kind late."""
        if call.script is script.FORGET and not self.overtaken:
            self.overtaken = True
            await self.forget(WHOSE, self.event)
            await completed(self, self.event, b'{"total":3}')
        return await super().ask(call)

    def __init__(self, event: UUID) -> None:
        super().__init__()
        self.event = event


async def test_an_effect_that_comes_in_between_stays_known() -> None:
    """Of two dead letters of one event, or of two replays, one may be on its way for long."""
    event = uuid4()
    store = Overtaken(event)
    await completed(store, event, b'{"dead_letter":true}')

    await StoreMemory(store).forget(WHOSE, event)

    assert store.overtaken
    assert await store.claim(WHOSE, event) == Done(b'{"total":3}')


@pytest.mark.parametrize("mode", [ClaimDedup, MarkDedup])
async def test_what_a_dead_letter_completed_is_told_from_an_effect(
    store: MemoryManager, mode: type[ClaimDedup] | type[MarkDedup]
) -> None:
    """In either mode; a mark that was set before the effect is made anew for it."""
    dedup, memory = mode(store, WHOSE), StoreMemory(store)
    dead, done = uuid4(), uuid4()
    for event, end in ((dead, Dead("refused")), (done, outcome.Done())):
        begun = await dedup.begin(received(event), DELIVERY)
        assert isinstance(begun, Begun)
        await dedup.complete(begun, end)
        assert isinstance(await dedup.begin(received(event), DELIVERY), AlreadyDone)
        await memory.forget(WHOSE, event)

    assert isinstance(await dedup.begin(received(dead), DELIVERY), Begun)
    assert isinstance(await dedup.begin(received(done), DELIVERY), AlreadyDone)
