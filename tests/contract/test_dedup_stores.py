"""What every store of marks promises: in memory, on fakeredis, on a real server, with and without an event loop."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.crc import key_slot

from idempotency import (
    AlreadyDoneError,
    Claimed,
    Done,
    FingerprintConflictError,
    InProgress,
    InProgressError,
    InvalidKeyError,
    LeaseLostError,
    LockTimeoutError,
    Marked,
    StoreUnavailableError,
)
from tests.support.dedup import KINDS, World, world_of

LEASE, TTL = timedelta(seconds=60), timedelta(hours=720)
NONE, SECOND = timedelta(0), timedelta(seconds=1)


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A store of each kind."""
    async with world_of(request.param, lambda: request.getfixturevalue("stack").redis_url) as made:
        yield made


@pytest.fixture
def store(world: World) -> Any:
    """The store alone."""
    return world.store


@pytest.fixture
def event() -> UUID:
    """An event that nobody has seen."""
    return uuid4()


async def claimed(store: Any, event: UUID, **options: Any) -> Claimed:
    """A claim that must succeed."""
    answer = await store.claim("billing", event, **options)
    assert isinstance(answer, Claimed)
    return answer


async def test_a_claim_is_held_by_one_and_completed_once(store: Any, event: UUID) -> None:
    """Claimed, then InProgress for everybody else, then Done for everybody."""
    claim = await claimed(store, event)
    assert (claim.consumer, claim.event_id, claim.attempt, claim.lease) == ("billing", event, 1, LEASE)
    other = await store.claim("billing", event)
    assert isinstance(other, InProgress)
    assert NONE < other.retry_after <= LEASE
    await store.complete(claim)
    assert await store.claim("billing", event) == Done(None)


@pytest.mark.parametrize("result", [None, "", b"", "paid: 19 €", b"\x00\xff\n\nraw", "two\nlines", b"\n"])
async def test_a_result_comes_back_as_it_was_given(store: Any, event: UUID, result: bytes | str | None) -> None:
    """To every later claim and mark, a text as a text and bytes as bytes."""
    await store.complete(await claimed(store, event), result)
    assert await store.claim("billing", event) == Done(result)
    assert await store.mark("billing", event) == Done(result)


async def test_an_event_is_marked_once(store: Any, event: UUID) -> None:
    """The first call marks, every later one recognises."""
    assert [await store.check_and_mark_processed("billing", event) for _ in range(3)] == [False, True, True]
    assert await store.claim("billing", event) == Done()


async def test_consumers_know_nothing_of_each_other(store: Any, event: UUID) -> None:
    """What one holds or has processed is new to another."""
    await claimed(store, event)
    assert not await store.check_and_mark_processed("mail", event)


async def test_a_mark_waits_for_the_claim(world: World, event: UUID) -> None:
    """A claim is no mark: whoever only marks must neither skip the event nor act beside its holder."""
    claim = await claimed(world.store, event)
    with pytest.raises(InProgressError, match=str(event)) as refused:
        await world.store.check_and_mark_processed("billing", event)
    assert NONE < refused.value.retry_after <= LEASE
    assert isinstance(await world.store.mark("billing", event), InProgress)
    assert f"{world.prefix}:evt:processed:billing:{event}" not in await world.keys()
    await world.store.complete(claim)
    assert await world.store.check_and_mark_processed("billing", event)


async def test_the_names_are_the_documented_ones(world: World, event: UUID) -> None:
    """Other programs read them, and all of an event lies in one slot of a cluster."""
    mark = f"{world.prefix}:evt:processed:billing:{event}"
    beside = {f"{world.prefix}:evt:claim:{{{mark}}}", f"{world.prefix}:evt:attempts:{{{mark}}}"}
    claim = await claimed(world.store, event)
    assert set(await world.keys()) == beside
    assert {key_slot(key.encode()) for key in beside} == {key_slot(mark.encode())}
    await world.store.complete(claim)
    assert await world.keys() == [mark]


async def test_everything_that_is_written_expires(world: World, event: UUID) -> None:
    """A store that only grows is one that is full some day."""
    store = world.store
    await claimed(store, event)
    await store.release(await claimed(store, uuid4()), rest=SECOND)
    await store.release(await claimed(store, uuid4()), counted=False)
    await store.complete(await claimed(store, uuid4()), "result")
    await store.check_and_mark_processed("billing", uuid4())
    async with store.lock("report"):
        written = await world.keys()
        assert len(written) == 7
        if world.redis is not None:
            lives = {key: await world.redis.pttl(key) for key in written}
            assert all(0 < life <= TTL / timedelta(milliseconds=1) for life in lives.values()), lives
    await world.advance(TTL)
    assert await world.keys() == []


async def test_the_belief_ends_before_the_lease(world: World, event: UUID) -> None:
    """The deadline is counted from before the request was sent, by the caller's clock."""
    before = world.clock()
    claim = await claimed(world.store, event, lease=timedelta(seconds=5))
    assert before + 5 <= claim.deadline <= world.clock() + 5
    assert claim.is_held(world.clock())
    await world.advance(timedelta(seconds=5))
    assert not claim.is_held(world.clock())


async def test_whoever_lets_the_lease_run_out_loses_the_event(world: World, event: UUID) -> None:
    """The next claim takes it, and the first holder is told at its next word."""
    store = world.store
    first = await claimed(store, event)
    await world.advance(LEASE)
    second = await claimed(store, event)
    assert second.attempt == 2
    for late in (store.renew(first), store.complete(first)):
        with pytest.raises(LeaseLostError, match=str(event)):
            await late
    await store.release(first, rest=LEASE)
    assert isinstance(await store.claim("billing", event), InProgress)
    await store.complete(second, "second")
    with pytest.raises(LeaseLostError):
        await store.complete(first, "first")
    assert await store.claim("billing", event) == Done("second")


async def test_a_late_completion_that_meets_nobody_succeeds(world: World, event: UUID) -> None:
    """It can only prevent a duplicate."""
    claim = await claimed(world.store, event)
    await world.advance(LEASE)
    await world.store.complete(claim, "late")
    assert await world.store.claim("billing", event) == Done("late")


async def test_a_completion_outlives_a_store_that_lost_everything(world: World, event: UUID) -> None:
    """As after the restart of a server that keeps nothing on disk."""
    claim = await claimed(world.store, event)
    await world.advance(TTL)
    assert await world.keys() == []
    await world.store.complete(claim)
    assert await world.store.claim("billing", event) == Done()


async def test_what_ran_out_is_not_renewed(world: World, event: UUID) -> None:
    """Its holder had to stop believing by then."""
    claim = await claimed(world.store, event)
    await world.advance(LEASE)
    with pytest.raises(LeaseLostError):
        await world.store.renew(claim)


async def test_a_renewal_moves_the_deadline_on_both_sides(world: World, event: UUID) -> None:
    """By the claim's own lease, or by another one."""
    store = world.store
    claim = await claimed(store, event)
    await world.advance(LEASE / 2)
    renewed = await store.renew(claim)
    assert renewed.deadline >= claim.deadline + 30
    assert (renewed.attempt, renewed.token, renewed.lease) == (claim.attempt, claim.token, LEASE)
    await world.advance(LEASE / 2)
    assert isinstance(await store.claim("billing", event), InProgress)
    longer = await store.renew(renewed, lease=2 * LEASE)
    await world.advance(LEASE)
    assert longer.is_held(world.clock())
    assert isinstance(await store.claim("billing", event), InProgress)
    await store.complete(longer)


async def test_to_complete_twice_is_to_complete(store: Any, event: UUID) -> None:
    """A holder whose answer was lost asks again."""
    claim = await claimed(store, event)
    await store.complete(claim, "once")
    await store.complete(claim, "once")
    assert await store.claim("billing", event) == Done("once")


async def test_a_claim_that_is_asked_again_is_the_same_claim(world: World, event: UUID) -> None:
    """Whose answer was lost: its lease begins anew with the deadline that it gets, and it is one attempt."""
    store = world.store
    call = store._calls.claims("billing", [event], None, None)
    first = await store.ask_one(call)
    await world.advance(LEASE / 2)
    again = await store.ask_one(call)
    assert (again.token, again.attempt) == (first.token, 1)
    assert again.deadline >= first.deadline + 30
    await world.advance(LEASE * 0.75)
    assert again.is_held(world.clock())
    assert isinstance(await store.claim("billing", event), InProgress)
    await world.advance(LEASE)
    assert (await store.ask_one(call)).attempt == 1
    await world.advance(LEASE)
    assert (await claimed(store, event)).attempt == 2
    assert isinstance(await store.ask_one(call), InProgress)


async def test_attempts_are_counted_and_can_be_taken_back(store: Any, event: UUID) -> None:
    """A release counts unless it says otherwise."""
    attempts = []
    for counted in (True, False, False, True, True):
        claim = await claimed(store, event)
        attempts.append(claim.attempt)
        await store.release(claim, counted=counted)
    assert attempts == [1, 2, 2, 2, 3]


async def test_a_refund_is_given_once(store: Any, event: UUID) -> None:
    """However often a holder says so, and whoever else has come since."""
    await store.release(await claimed(store, event))
    await store.release(await claimed(store, event))
    third = await claimed(store, event)
    for _ in range(3):
        await store.release(third, counted=False)
    again = await claimed(store, event)
    assert again.attempt == 3
    await store.release(third, counted=False)
    assert isinstance(await store.claim("billing", event), InProgress)


async def test_a_late_refund_counts_where_nobody_has_come_since(world: World, event: UUID) -> None:
    """A process that was asleep at its shutdown gives its attempt back all the same."""
    claim = await claimed(world.store, event)
    await world.advance(LEASE)
    await world.store.release(claim, counted=False)
    assert (await claimed(world.store, event)).attempt == 1


async def test_completion_ends_the_count(world: World, event: UUID) -> None:
    """What is done again on purpose begins at one."""
    store = world.store
    await store.release(await claimed(store, event))
    await store.complete(await claimed(store, event))
    assert await store.forget("billing", event)
    assert (await claimed(store, event)).attempt == 1


async def test_a_released_event_may_rest(world: World, event: UUID) -> None:
    """Until the rest is over nobody gets it, on whatever machine, and everybody hears for how long."""
    store = world.store
    await store.release(await claimed(store, event), rest=timedelta(seconds=30))
    resting = await store.claim("billing", event)
    assert isinstance(resting, InProgress)
    assert timedelta(seconds=25) < resting.retry_after <= timedelta(seconds=30)
    with pytest.raises(InProgressError):
        await store.check_and_mark_processed("billing", event)
    await world.advance(timedelta(seconds=20))
    later = await store.claim("billing", event)
    assert isinstance(later, InProgress)
    assert later.retry_after <= timedelta(seconds=10)
    await world.advance(timedelta(seconds=10))
    assert (await claimed(store, event)).attempt == 2


async def test_a_repeated_release_does_not_prolong_the_rest(world: World, event: UUID) -> None:
    """Nor does it bring back one that is over."""
    store = world.store
    claim = await claimed(store, event)
    await store.release(claim, rest=timedelta(seconds=10))
    await world.advance(timedelta(seconds=8))
    await store.release(claim, rest=timedelta(seconds=10))
    await world.advance(timedelta(seconds=2))
    await store.release(claim, rest=timedelta(seconds=10))
    await claimed(store, event)


async def test_a_late_completion_ends_the_rest_of_another_attempt(world: World, event: UUID) -> None:
    """The first effect was done after all; nobody holds the event while it rests."""
    store = world.store
    slow = await claimed(store, event)
    await world.advance(LEASE)
    await store.release(await claimed(store, event), rest=LEASE)
    await store.complete(slow, "slow")
    assert await store.claim("billing", event) == Done("slow")


async def test_a_released_event_was_completed_by_nobody(store: Any, event: UUID) -> None:
    """A release after the completion changes nothing."""
    claim = await claimed(store, event)
    await store.complete(claim)
    await store.release(claim, counted=False, rest=LEASE)
    assert await store.claim("billing", event) == Done()


async def test_a_completed_event_is_not_handed_out_before_its_time(world: World, event: UUID) -> None:
    """And is new when the life of its mark is over."""
    await world.store.complete(await claimed(world.store, event))
    await world.advance(TTL - SECOND)
    assert await world.store.claim("billing", event) == Done()
    await world.advance(SECOND)
    assert (await claimed(world.store, event)).attempt == 1


async def test_a_forgotten_event_is_new(world: World, event: UUID) -> None:
    """Its mark, its claim, its attempts and its rest are gone; what was never there is said to be so."""
    store = world.store
    assert not await store.forget("billing", event)
    await store.check_and_mark_processed("billing", event)
    assert await store.forget("billing", event)
    await store.release(await claimed(store, event), rest=LEASE)
    assert await store.forget("billing", event)
    assert await world.keys() == []
    assert not await store.check_and_mark_processed("billing", event)


@pytest.mark.parametrize("result", ["", b"", "dead", b"dead", "two\nlines", b"\x00\xff\n\nraw"])
async def test_an_event_may_be_forgotten_for_its_result_alone(store: Any, event: UUID, result: bytes | str) -> None:
    """What was completed with it is new, with all its attempts; a fingerprint makes no difference."""
    await store.release(await claimed(store, event))
    await store.complete(await claimed(store, event, fingerprint="a hash"), result)
    assert await store.forget("billing", event, only_result=result)
    assert not await store.forget("billing", event, only_result=result)
    assert (await claimed(store, event)).attempt == 1


@pytest.mark.parametrize("result", [None, "", "dead", b"dead!", b"\ndead", b"ead", "b\ndead"])
async def test_a_completion_with_another_result_is_not_forgotten_for_it(
    store: Any, event: UUID, result: bytes | str | None
) -> None:
    """Nor a text for bytes: somebody's effect would take place twice."""
    await store.complete(await claimed(store, event), result)
    assert not await store.forget("billing", event, only_result=b"dead")
    assert await store.claim("billing", event) == Done(result)


async def test_what_was_not_completed_is_not_forgotten_for_a_result(world: World, event: UUID) -> None:
    """Not a mark, ours or another program's, nor a claim, a count, a rest."""
    store, foreign, held, resting = world.store, uuid4(), uuid4(), uuid4()
    await store.check_and_mark_processed("billing", event)
    await world.put(f"{world.prefix}:evt:processed:billing:{foreign}", "dead")
    claim = await claimed(store, held)
    await store.release(await claimed(store, resting), rest=LEASE)
    for each in (event, foreign, held, resting, uuid4()):
        assert not await store.forget("billing", each, only_result="dead")
    assert await store.claim("billing", event) == await store.claim("billing", foreign) == Done()
    assert isinstance(await store.claim("billing", resting), InProgress)
    await store.complete(claim)
    await world.advance(LEASE)
    assert (await claimed(store, resting)).attempt == 2


async def test_a_mark_is_given_back_by_whom_it_belongs_to(store: Any, event: UUID) -> None:
    """A handler that failed after its mark lets the next delivery try; another's mark stays."""
    marked = await store.mark("billing", event)
    assert isinstance(marked, Marked)
    assert await store.mark("billing", event) == Done()
    assert await store.unmark(marked)
    assert await store.unmark(marked)
    other = await store.mark("billing", event)
    assert isinstance(other, Marked)
    assert not await store.unmark(marked)
    assert await store.check_and_mark_processed("billing", event)


async def test_a_completion_is_no_mark_to_be_given_back(store: Any, event: UUID) -> None:
    """Whoever marked before somebody else completed has lost it."""
    marked = await store.mark("billing", event)
    await store.forget("billing", event)
    await store.complete(await claimed(store, event))
    assert not await store.unmark(marked)
    assert await store.claim("billing", event) == Done()


@pytest.mark.parametrize("value", ["1", "2026-01-01T00:00:00Z", "6f1d1c8e0b8f4c55a2f0a4f0d4b7c9ae", ""])
async def test_marks_of_other_programs_are_recognised(world: World, event: UUID, value: str) -> None:
    """Whatever stands under the name says that the event was processed."""
    await world.put(f"{world.prefix}:evt:processed:billing:{event}", value)
    assert await world.store.check_and_mark_processed("billing", event)
    assert await world.store.mark("billing", event) == Done()
    assert await world.store.claim("billing", event, fingerprint="a") == Done()


async def test_the_same_identity_with_other_content_is_a_conflict(store: Any, event: UUID) -> None:
    """While it is held, and when it is done; who gives no fingerprint is not compared."""
    claim = await claimed(store, event, fingerprint="sha-a")
    for _ in range(2):
        with pytest.raises(FingerprintConflictError, match="sha-b"):
            await store.claim("billing", event, fingerprint="sha-b")
        assert isinstance(await store.claim("billing", event, fingerprint="sha-a"), InProgress | Done)
        assert isinstance(await store.claim("billing", event), InProgress | Done)
        await store.complete(claim)


async def test_no_fingerprint_conflicts_with_none(store: Any, event: UUID) -> None:
    """A completion without one is compared with nothing."""
    await store.complete(await claimed(store, event))
    assert await store.claim("billing", event, fingerprint="sha-a") == Done()


async def test_a_fingerprint_outlives_a_renewal_and_a_rest(world: World, event: UUID) -> None:
    """It belongs to the event as long as anybody knows it."""
    store = world.store
    claim = await store.renew(await claimed(store, event, fingerprint="sha-a"))
    await store.release(claim, rest=LEASE)
    with pytest.raises(FingerprintConflictError):
        await store.claim("billing", event, fingerprint="sha-b")


async def test_many_are_answered_one_by_one(store: Any) -> None:
    """In their order, with the errors of some among the answers of the others."""
    held, done, new, twice = (uuid4() for _ in range(4))
    await claimed(store, held)
    await store.complete(await claimed(store, done), b"result")
    nil = UUID(int=0)
    answers = await store.claim_many("billing", [nil, held, done, "42", new, twice, twice])
    kinds = [type(each) for each in answers]
    assert kinds == [InvalidKeyError, InProgress, Done, InvalidKeyError, Claimed, Claimed, InProgress]
    assert answers[2] == Done(b"result")
    assert [answers[4].event_id, answers[5].event_id] == [new, twice]
    checked = await store.check_and_mark_many("billing", [nil, held, done, "42", uuid4()])
    assert [type(each) for each in checked] == [InvalidKeyError, InProgressError, bool, InvalidKeyError, bool]
    assert [checked[2], checked[4]] == [True, False]
    marked = await store.mark_many("billing", [held, done, uuid4()])
    assert [type(each) for each in marked] == [InProgress, Done, Marked]


async def test_many_claims_are_renewed_completed_and_released_one_by_one(world: World) -> None:
    """One that was lost costs the others nothing."""
    store = world.store
    first = await store.claim_many("billing", [uuid4() for _ in range(4)])
    await world.advance(LEASE / 2)
    renewed = await store.renew_many(first[1:], lease=LEASE)
    await world.advance(LEASE / 2)
    await claimed(store, first[0].event_id)
    assert [type(each) for each in await store.renew_many([first[0], *renewed])] == [LeaseLostError, *[Claimed] * 3]
    completed = await store.complete_many([first[0], *renewed[:2]], [None, "a", b"b"])
    assert [type(each) for each in completed] == [LeaseLostError, type(None), type(None)]
    assert await store.claim_many("billing", [each.event_id for each in renewed[:2]]) == [Done("a"), Done(b"b")]
    more = await claimed(store, uuid4())
    assert await store.release_many([renewed[2], more], counted=[False, True], rest=[NONE, LEASE]) == [None, None]
    again = await store.claim_many("billing", [renewed[2].event_id, more.event_id])
    assert again[0].attempt == 1
    assert isinstance(again[1], InProgress)


async def test_one_that_cannot_be_asked_about_costs_the_others_nothing(world: World) -> None:
    """As where another program has written something else under its name."""
    if world.redis is None:
        pytest.skip("nobody else writes into the memory of a process")
    events = [uuid4() for _ in range(5)]
    await world.redis.hset(f"{world.prefix}:evt:processed:billing:{events[2]}", "not", "a mark")
    answers = await world.store.claim_many("billing", events)
    assert [type(each) for each in answers] == [Claimed, Claimed, StoreUnavailableError, Claimed, Claimed]
    assert [each.attempt for each in answers if isinstance(each, Claimed)] == [1, 1, 1, 1]
    with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
        await world.store.claim("billing", events[2])


async def test_fingerprints_of_many_are_their_own(store: Any) -> None:
    """A conflict is the answer of one event."""
    events = [uuid4(), uuid4(), uuid4()]
    await store.claim_many("billing", events, fingerprints=["a", "b", None])
    answers = await store.claim_many("billing", events, fingerprints=["a", "x", "two\nlines"])
    assert [type(each) for each in answers] == [InProgress, FingerprintConflictError, InvalidKeyError]


async def test_more_than_a_script_takes_are_asked_in_parts(store: Any) -> None:
    """In the order of the caller all the same."""
    events = [uuid4() for _ in range(2_100)]
    claims = await store.claim_many("billing", events)
    assert [each.event_id for each in claims] == events
    assert await store.complete_many(claims) == [None] * len(events)


async def test_of_none_nothing_is_asked(store: Any) -> None:
    """An empty batch has an empty answer."""
    assert await store.claim_many("billing", []) == []
    assert await store.check_and_mark_many("billing", []) == []
    assert await store.renew_many([]) == await store.complete_many([]) == await store.release_many([]) == []


async def test_of_many_at_once_one_is_the_holder(store: Any, event: UUID) -> None:
    """Concurrent deliveries of one event."""
    answers = await asyncio.gather(*(store.claim("billing", event) for _ in range(50)))
    assert sum(isinstance(each, Claimed) for each in answers) == 1
    marks = await asyncio.gather(*(store.check_and_mark_processed("mail", event) for _ in range(50)))
    assert marks.count(False) == 1


async def test_once_runs_its_body_for_one(store: Any, event: UUID) -> None:
    """A clean exit completes with the result of the body; whoever comes later gets it without a body."""
    async with store.once("billing", event) as work:
        work.result = "receipt"
        with pytest.raises(InProgressError):
            async with store.once("billing", event):
                pytest.fail("entered twice")
    with pytest.raises(AlreadyDoneError) as done:
        async with store.once("billing", event):
            pytest.fail("entered again")
    assert done.value.result == "receipt"


async def test_once_gives_back_what_failed(store: Any, event: UUID) -> None:
    """The exception is the caller's, the attempt is counted, the event is free."""
    for attempt in (1, 2):
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 -- the body is what is ended
            async with store.once("billing", event) as work:
                assert work.attempt == attempt
                raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt):
        async with store.once("billing", event):
            raise KeyboardInterrupt
    assert (await claimed(store, event)).attempt == 3


async def test_once_that_comes_too_late_says_so(world: World, event: UUID) -> None:
    """Somebody else has the event, and this effect may be the second."""
    with pytest.raises(LeaseLostError):  # noqa: PT012 -- the body is what is ended
        async with world.store.once("billing", event):
            await world.advance(LEASE)
            await claimed(world.store, event)


async def test_a_lock_keeps_others_out(store: Any) -> None:
    """As long as its body runs; another name is another lock."""
    async with store.lock("report") as lock, store.lock("import"):
        assert lock.held.name == "report"
        with pytest.raises(LockTimeoutError, match="report") as refused:
            async with store.lock("report", wait=NONE):
                pytest.fail("entered twice")
        assert NONE < refused.value.retry_after <= LEASE
    async with store.lock("report", wait=NONE):
        pass


@pytest.mark.parametrize("name", ["", "  ", "a{b", "b}"])
async def test_names_that_identify_nothing_are_refused(store: Any, event: UUID, name: str) -> None:
    """An empty one would mix things up, and a brace would lay them into different slots."""
    with pytest.raises(InvalidKeyError):
        await store.claim(name, event)
    with pytest.raises(InvalidKeyError):
        await store.check_and_mark_many(name, [event])
    with pytest.raises(InvalidKeyError):
        await store.lock(name).__aenter__()


@pytest.mark.parametrize("event_id", [UUID(int=0), "42", "", None])
async def test_ids_that_identify_nothing_are_refused(world: World, event_id: Any) -> None:
    """By every call, and nothing is written."""
    store = world.store
    for call in (store.claim, store.mark, store.check_and_mark_processed, store.forget):
        with pytest.raises(InvalidKeyError):
            await call("billing", event_id)
    assert await world.keys() == []


@pytest.mark.parametrize("fingerprint", ["", " ", "a\nb", 7])
async def test_fingerprints_are_one_line(store: Any, event: UUID, fingerprint: Any) -> None:
    """A text that can be stored beside others."""
    with pytest.raises(InvalidKeyError, match="fingerprint"):
        await store.claim("billing", event, fingerprint=fingerprint)


@pytest.mark.parametrize(("lease", "error"), [(NONE, ValueError), (-SECOND, ValueError), (60, TypeError)])
async def test_a_lease_that_is_none_is_refused(store: Any, event: UUID, lease: Any, error: type[Exception]) -> None:
    """Where it is given."""
    with pytest.raises(error, match="lease is"):
        await store.claim("billing", event, lease=lease)
