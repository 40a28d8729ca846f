"""In whatever order: one believes that it holds, what is done stays done, attempts are counted exactly."""

import asyncio
import random
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from idempotency import Claimed, Done, InProgress, InProgressError, LeaseLostError, Manager
from relay.dev.stack import Stack
from tests.support.dedup import FAKE, MEMORY, SERVER, SYNC_FAKE, world_of

# No sum of steps is a lease, a rest or a life, so that nothing happens at the very moment when something runs out.
LEASE, REST, TTL, STEP = (timedelta(seconds=each) for each in (10, 5, 100, 3.7))
NONE = timedelta(0)


@dataclass
class Known:
    """What is known of an event by those who talk about it among themselves."""

    claims: list[Claimed] = field(default_factory=list)
    over: set[str] = field(default_factory=set)  # tokens that were given back, completed or said to be lost
    attempts: int = 0
    counted_until: float = 0.0
    last: str = ""
    done_by: str | None = None
    done_until: float = 0.0


class Machine(RuleBasedStateMachine):
    """Holders of some events, who claim, renew, complete, release, are late, and forget."""

    kind: ClassVar[str]
    url: ClassVar[str]
    events: ClassVar[list[int]] = [0, 1]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.world = self.run(self.stack.enter_async_context(world_of(self.kind, lambda: self.url, ttl=TTL)))
        self.store = self.world.store
        self.ids = [uuid4() for _ in self.events]
        self.known = [Known() for _ in self.events]

    def run(self, what: Any) -> Any:
        """Wait for a coroutine."""
        return self.runner.run(_awaited(what))

    def teardown(self) -> None:
        """Close what was opened."""
        self.run(self.stack.aclose())
        self.runner.close()

    @property
    def now(self) -> float:
        """The time by the store's clock."""
        now: float = self.world.clock()
        return now

    @rule(event=st.sampled_from(events))
    def claim(self, event: int) -> None:
        """Somebody wants it."""
        known, answer = self.known[event], self.run(self._claim(event))
        if self.now < known.done_until:
            assert isinstance(answer, Done)
        elif isinstance(answer, Claimed):
            assert not self.believers(known)
            attempts = known.attempts if self.now < known.counted_until else 0
            assert answer.attempt == attempts + 1
            known.claims.append(answer)
            known.attempts, known.last, known.done_by = answer.attempt, answer.token, None
            known.counted_until = self.now + TTL.total_seconds()
        else:
            assert isinstance(answer, InProgress)

    @rule(event=st.sampled_from(events), which=st.integers(0, 9))
    def renew(self, event: int, which: int) -> None:
        """One of those who ever held it wants to go on."""
        known = self.known[event]
        if (claim := self.one_of(known, which)) is None:
            return
        try:
            renewed = self.run(self.store.renew(claim))
        except LeaseLostError:
            assert claim not in self.believers(known)
            known.over.add(claim.token)
        else:
            assert claim.token not in known.over
            known.claims[known.claims.index(claim)] = renewed

    @rule(event=st.sampled_from(events), which=st.integers(0, 9))
    def complete(self, event: int, which: int) -> None:
        """One of those who ever held it has finished."""
        known = self.known[event]
        if (claim := self.one_of(known, which)) is None:
            return
        others = [each for each in self.believers(known) if each.token != claim.token]
        done = self.now < known.done_until
        try:
            self.run(self.store.complete(claim))
        except LeaseLostError:
            assert others or (done and known.done_by != claim.token)
        else:
            assert not others
            assert not done or known.done_by == claim.token
            if not done:
                known.done_until, known.done_by = self.now + TTL.total_seconds(), claim.token
                known.attempts, known.last = 0, ""
        known.over.add(claim.token)

    @rule(
        event=st.sampled_from(events),
        which=st.integers(0, 9),
        counted=st.booleans(),
        rest=st.sampled_from([NONE, REST]),
    )
    def release(self, event: int, which: int, *, counted: bool, rest: timedelta) -> None:
        """One of those who ever held it gives it back, perhaps once more."""
        known = self.known[event]
        if (claim := self.one_of(known, which)) is None:
            return
        self.run(self.store.release(claim, counted=counted, rest=rest))
        if known.last == claim.token and self.now < known.counted_until:
            known.attempts -= not counted
            known.last = ""
            known.counted_until = self.now + TTL.total_seconds()
        known.over.add(claim.token)

    @rule(event=st.sampled_from(events))
    def check_and_mark(self, event: int) -> None:
        """Somebody else marks before its effect."""
        known = self.known[event]
        try:
            before = self.run(self.store.check_and_mark_processed("billing", self.ids[event]))
        except InProgressError:
            assert self.now >= known.done_until
        else:
            assert before == (self.now < known.done_until)
            assert not self.believers(known)
            if not before:
                known.done_until, known.done_by = self.now + TTL.total_seconds(), "a mark"

    @rule(event=st.sampled_from(events))
    def forget(self, event: int) -> None:
        """An operator wants it anew, when nobody is at it."""
        known = self.known[event]
        if not self.believers(known):
            self.run(self.store.forget("billing", self.ids[event]))
            self.known[event] = Known()

    @rule(steps=st.integers(1, 4))
    def pass_time(self, steps: int) -> None:
        """Leases and rests run out."""
        self.run(self.world.advance(steps * STEP))

    @rule()
    def pass_a_life(self) -> None:
        """Marks are forgotten."""
        self.run(self.world.advance(28 * STEP))

    @invariant()
    def one_believes(self) -> None:
        """Never two at once."""
        assert all(len(self.believers(known)) <= 1 for known in self.known)

    def believers(self, known: Known) -> list[Claimed]:
        """Who may still take the event for theirs."""
        return [each for each in known.claims if each.token not in known.over and each.is_held(self.now)]

    def one_of(self, known: Known, which: int) -> Claimed | None:
        """One of those who ever held the event, the last ones first."""
        return known.claims[-1 - which % len(known.claims)] if known.claims else None

    def _claim(self, event: int) -> Any:
        return self.store.claim("billing", self.ids[event], lease=LEASE)


async def _awaited(what: Any) -> Any:
    return await what


long = pytest.mark.slow("as many sequences as take some seconds")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        *[(MEMORY, 40), (FAKE, 8), (SYNC_FAKE, 8), (SERVER, 8)],
        *[pytest.param(*each, marks=long) for each in ((MEMORY, 150), (FAKE, 50), (SYNC_FAKE, 50), (SERVER, 40))],
    ],
)
def test_the_promises_hold_in_any_order(kind: str, examples: int, request: pytest.FixtureRequest) -> None:
    """For two events, whoever does what and when."""
    url = request.getfixturevalue("stack").redis_url if kind == SERVER else ""
    made = type("Made", (Machine,), {"kind": kind, "url": url})
    run_state_machine_as_test(
        made, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None, database=None)
    )


@dataclass
class Belief:
    """From when to when somebody believed that it held an event."""

    begin: float
    end: float


async def test_real_leases_are_believed_in_by_one(stack: Stack) -> None:
    """By the clock of a real server: workers claim, die, give back and complete, and no two beliefs overlap."""
    events = [uuid4() for _ in range(12)]
    beliefs: dict[UUID, list[Belief]] = defaultdict(list)
    done: dict[UUID, int] = defaultdict(int)

    async def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 -- who dies when
        async with Redis.from_url(stack.redis_url) as redis:
            manager = Manager(redis, prefix=f"t-{events[0].hex}")
            while len(done) < len(events):
                event = chance.choice([each for each in events if each not in done] or events)
                answer = await manager.claim("billing", event, lease=timedelta(milliseconds=30))
                if not isinstance(answer, Claimed):
                    if isinstance(answer, InProgress):
                        await asyncio.sleep(answer.retry_after.total_seconds())
                    continue
                belief = Belief(time.monotonic(), answer.deadline)
                beliefs[event].append(belief)
                fate = chance.random()
                if fate < 0.3:
                    continue  # it dies, and its lease runs out
                belief.end = min(belief.end, time.monotonic())
                if fate < 0.6:
                    await manager.release(answer)
                elif await _completes(manager, answer):
                    done[event] += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(seed) for seed in range(6)))
    assert set(done.values()) == {1}
    for each in beliefs.values():
        each.sort(key=lambda belief: belief.begin)
        assert all(former.end <= later.begin for former, later in pairwise(each))


async def _completes(manager: Manager, claim: Claimed) -> bool:
    try:
        await manager.complete(claim)
    except LeaseLostError:
        return False
    return True
