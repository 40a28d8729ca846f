"""Functions that take effect once for each key."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from fakeredis import FakeRedis

from idempotency import (
    AlreadyDoneError,
    FingerprintConflictError,
    InProgressError,
    InvalidKeyError,
    MemoryManager,
    ResultError,
    SyncManager,
    identity_of_text,
)


@pytest.fixture
def store() -> MemoryManager:
    """An empty store."""
    return MemoryManager()


async def test_a_repeat_gets_the_first_result(store: MemoryManager) -> None:
    """And takes no effect; another key does."""
    effects = []

    @store.idempotent("charges", key=lambda key, *_args, **_kwargs: key)
    async def charge(_key: str, amount: int) -> dict[str, int]:
        """Take the money."""
        effects.append(amount)
        return {"charged": amount}

    assert [await charge("k-1", amount=5), await charge("k-1", 7), await charge("k-2", 9)] == [
        {"charged": 5},
        {"charged": 5},
        {"charged": 9},
    ]
    assert effects == [5, 9]
    assert (charge.__name__, charge.__doc__) == ("charge", "Take the money.")


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, None]}])
async def test_a_result_of_json_is_the_same_again(store: MemoryManager, value: Any) -> None:
    """None and nothing are results too."""

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> Any:
        return value

    assert await charge() == value
    assert await charge() == value


async def test_two_at_once_are_told_apart(store: MemoryManager) -> None:
    """The second hears when to come again."""
    entered, over = asyncio.Event(), asyncio.Event()

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> int:
        entered.set()
        await over.wait()
        return 1

    first = asyncio.create_task(charge())
    await entered.wait()
    with pytest.raises(InProgressError):
        await charge()
    over.set()
    assert await first == await charge() == 1


async def test_what_failed_may_be_tried_again(store: MemoryManager) -> None:
    """An exception keeps no result."""
    outcomes: Iterator[int | Exception] = iter([ZeroDivisionError(), 1])

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ZeroDivisionError):
        await charge()
    assert await charge() == await charge() == 1


async def test_an_error_of_the_body_is_not_taken_for_ours(store: MemoryManager) -> None:
    """Something in it may have been done before, and it has failed all the same."""

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> None:
        raise AlreadyDoneError("an inner one", "inner")

    for _ in range(2):
        with pytest.raises(AlreadyDoneError, match="an inner one"):
            await charge()


async def test_a_result_that_cannot_be_kept_is_told_once_the_effect_is_marked(store: MemoryManager) -> None:
    """Nothing may undo the mark: a repeat takes no second effect."""
    effects = []

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> object:
        effects.append(1)
        return object()

    with pytest.raises(ResultError, match="marked as done") as refused:
        await charge()
    assert isinstance(refused.value.__cause__, TypeError)
    with pytest.raises(AlreadyDoneError):
        await charge()
    assert effects == [1]


async def test_a_result_that_cannot_be_read_says_so(store: MemoryManager) -> None:
    """As after a change of the codec."""
    claim: Any = await store.claim("charges", identity_of_text("k"))
    await store.complete(claim, b"\xff not JSON")

    @store.idempotent("charges", key=lambda: "k")
    async def charge() -> int:
        return 1

    with pytest.raises(ResultError, match="cannot read"):
        await charge()


async def test_a_codec_of_ones_own_keeps_what_it_likes(store: MemoryManager) -> None:
    """Bytes as well as texts."""

    class Hex:
        def dumps(self, value: bytes, /) -> bytes:
            return value.hex().encode()

        def loads(self, stored: bytes, /) -> bytes:
            return bytes.fromhex(stored.decode())

    @store.idempotent("charges", key=lambda: "k", codec=Hex())
    async def charge() -> bytes:
        return b"\x00"

    assert [await charge(), await charge()] == [b"\x00", b"\x00"]


async def test_one_key_with_two_contents_is_a_conflict(store: MemoryManager) -> None:
    """Where a fingerprint of the arguments is wanted."""

    @store.idempotent("charges", key=lambda key, _: key, fingerprint=lambda _, body: json.dumps(body))
    async def charge(_key: str, body: Any) -> Any:
        return body

    assert await charge("k", {"a": 1}) == await charge("k", {"a": 1})
    with pytest.raises(FingerprintConflictError):
        await charge("k", {"a": 2})


async def test_a_key_is_a_uuid_or_stands_for_one(store: MemoryManager) -> None:
    """A text always for the same; one that looks like a UUID is a text; nothing stands for nothing."""
    event = uuid4()

    @store.idempotent("charges", key=lambda key: key)
    async def charge(_key: UUID | str) -> int:
        return 1

    await charge(event)
    assert await store.check_and_mark_processed("charges", event)
    assert not await store.check_and_mark_processed("charges", identity_of_text(str(event)))
    assert identity_of_text("k-1") == UUID("696c2c91-7a97-5db5-b791-8ea1a96f1dac")
    for nothing in ("", " ", None):
        with pytest.raises(InvalidKeyError):
            await charge(nothing)  # type: ignore[arg-type]


def test_functions_without_an_event_loop_are_decorated_too() -> None:
    """By the synchronous manager, with the same results."""
    effects = []
    with FakeRedis(decode_responses=True) as redis:
        manager = SyncManager(redis)

        @manager.idempotent("charges", key=lambda _amount: "k")
        def charge(amount: int) -> list[int]:
            effects.append(amount)
            return [amount]

        assert [charge(5), charge(6)] == [[5], [5]]

        @manager.idempotent("refunds", key=lambda: "k")
        def refund() -> object:
            return object()

        with pytest.raises(ResultError):
            refund()
        with pytest.raises(AlreadyDoneError):
            refund()
    assert effects == [5]
