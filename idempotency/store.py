"""What every asynchronous store can do, on whatever it keeps its marks."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from idempotency.answers import ClaimAnswer, Claimed, MarkAnswer, Marked, Result
from idempotency.call import Call
from idempotency.calls import Calls
from idempotency.errors import IdempotencyError
from idempotency.idempotent import JSON, Codec, Idempotent, Key, Recipe
from idempotency.lock import Lock
from idempotency.once import Once
from idempotency.settings import Settings

_T = TypeVar("_T")
_NONE = timedelta(0)


class Store(ABC):
    """The face of an asynchronous store; `Manager` keeps its marks in Redis, `MemoryManager` in this process.

    `clock` reads seconds that only go forward, `sleep` waits for some, `chance` draws from 0 to 1: tests give their
    own.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.sleep = sleep
        self.chance = chance
        self._calls = Calls(settings)

    @abstractmethod
    async def ask(self, call: Call[_T]) -> list[_T | IdempotencyError]:
        """Carry a call out, and answer for each of its events."""

    async def ask_one(self, call: Call[_T]) -> _T:
        """Carry a call about one event out; an error is raised."""
        answer = (await self.ask(call))[0]
        if isinstance(answer, IdempotencyError):
            raise answer
        return answer

    @abstractmethod
    async def examine(self, retention: timedelta | None = None) -> list[str]:
        """What an operator should know before the store is relied on, one sentence each; none when all is well.

        `retention` is how long the broker may deliver an event again, such as the retention of a subscription.
        """

    async def check_and_mark_processed(self, consumer: str, event_id: UUID | str) -> bool:
        """At most once: mark the event as processed before its effect, and tell whether it was marked already.

        True means "processed before, skip it". Of many callers at once exactly one gets False, and gets it although
        an answer was lost on the way and Redis was asked again. Raises InProgressError while somebody holds a claim
        of the event, InvalidKeyError for a nameless consumer and for an event id that is no UUID.

        What nobody can repair: a consumer that crashes between this call and its effect does not get the event again.
        Where StoreUnavailableError reaches the caller, or the call is cancelled, the mark may be set or not; if it
        is, the next delivery is told True although nobody acted.
        """
        return await self.ask_one(self._calls.check(consumer, event_id))

    async def check_and_mark_many(
        self, consumer: str, event_ids: Iterable[UUID | str]
    ) -> list[bool | IdempotencyError]:
        """At most once: `check_and_mark_processed` for many events in one round trip.

        What would be raised for one of them is its answer.
        """
        return await self.ask(self._calls.checks(consumer, event_ids))

    async def mark(self, consumer: str, event_id: UUID | str) -> MarkAnswer:
        """At most once: like `check_and_mark_processed`, and `unmark` gives back what is Marked."""
        return await self.ask_one(self._calls.mark(consumer, event_id))

    async def mark_many(
        self, consumer: str, event_ids: Iterable[UUID | str], *, tokens: Sequence[str] | None = None
    ) -> list[MarkAnswer | IdempotencyError]:
        """`mark` for many events in one round trip; an error is the answer of its event.

        Whoever asks with a token of its own, one for each event, may ask again where it never got an answer.
        """
        return await self.ask(self._calls.marks(consumer, event_ids, tokens))

    async def unmark(self, marked: Marked) -> bool:
        """Forget a mark that this call's `mark` made, so that the event is new again; False leaves another's alone."""
        return await self.ask_one(self._calls.discard(marked.key, marked.token))

    async def claim(
        self, consumer: str, event_id: UUID | str, *, lease: timedelta | None = None, fingerprint: str | None = None
    ) -> ClaimAnswer:
        """Take the event for a lease, without marking it as processed.

        Claimed is followed by `complete` or `release`; where neither comes, the event is free again when the lease
        runs out. Raises FingerprintConflictError where `fingerprint` and the one that is stored are two.
        """
        prints = None if fingerprint is None else (fingerprint,)
        return await self.ask_one(self._calls.claims(consumer, (event_id,), lease, prints))

    async def claim_many(
        self,
        consumer: str,
        event_ids: Iterable[UUID | str],
        *,
        lease: timedelta | None = None,
        fingerprints: Sequence[str | None] | None = None,
        tokens: Sequence[str] | None = None,
    ) -> list[ClaimAnswer | IdempotencyError]:
        """`claim` for many events in one round trip; errors are answers. `tokens` as for `mark_many`."""
        return await self.ask(self._calls.claims(consumer, event_ids, lease, fingerprints, tokens))

    async def renew(self, claim: Claimed, *, lease: timedelta | None = None) -> Claimed:
        """Hold the event for another lease from now on. Raises LeaseLostError when it is no longer held."""
        return await self.ask_one(self._calls.renewals((claim,), lease))

    async def renew_many(
        self, claims: Iterable[Claimed], *, lease: timedelta | None = None
    ) -> list[Claimed | IdempotencyError]:
        """`renew` for many claims in one round trip; an error is the answer of its claim."""
        return await self.ask(self._calls.renewals(claims, lease))

    async def complete(self, claim: Claimed, result: Result = None) -> None:
        """Mark the event as processed, with a result for those who come later.

        Where the lease ran out and nobody took the event over, the mark is set all the same: it can only prevent a
        duplicate. Raises LeaseLostError when somebody else holds or has completed the event.
        """
        return await self.ask_one(self._calls.completions((claim,), (result,)))

    async def complete_many(
        self, claims: Iterable[Claimed], results: Sequence[Result] | None = None
    ) -> list[IdempotencyError | None]:
        """`complete` for many claims in one round trip; an error is the answer of its claim."""
        return await self.ask(self._calls.completions(claims, results))

    async def release(self, claim: Claimed, *, counted: bool = True, rest: timedelta = _NONE) -> None:
        """Give the event back, for the next claim to take.

        `counted=False` takes the attempt back. Until `rest` is over every claim of the event is InProgress, on all
        machines. What somebody else holds by now stays theirs, and nothing is raised.
        """
        return await self.ask_one(self._calls.releases((claim,), counted=counted, rest=rest))

    async def release_many(
        self,
        claims: Iterable[Claimed],
        *,
        counted: bool | Sequence[bool] = True,
        rest: timedelta | Sequence[timedelta] = _NONE,
    ) -> list[IdempotencyError | None]:
        """`release` for many claims in one round trip; an error is the answer of its claim."""
        return await self.ask(self._calls.releases(claims, counted=counted, rest=rest))

    async def forget(self, consumer: str, event_id: UUID | str, *, only_result: Result = None) -> bool:
        """Take away the event's mark, claim and attempts, as if it had never come; whether there was anything.

        For operators, and for what is to be done again on purpose. Whoever holds the event may still complete it.
        With `only_result` an event is forgotten if it was completed with exactly that, and else left as it is; that
        is looked at and done in one step, so that nobody's completion is lost in between.
        """
        return await self.ask_one(self._calls.forget(consumer, event_id, only_result))

    def once(
        self, consumer: str, event_id: UUID | str, *, lease: timedelta | None = None, fingerprint: str | None = None
    ) -> Once:
        """`async with store.once(…) as work:` runs its body for an event that nobody has processed or holds.

        Where there is nothing to do, the body is not entered: AlreadyDoneError has the result of the first time,
        InProgressError says when to come again. See `Once`.
        """
        return Once(self, consumer, event_id, lease, fingerprint)

    def lock(self, name: str, *, wait: timedelta = timedelta(seconds=10), lease: timedelta | None = None) -> Lock:
        """`async with store.lock(name):` keeps everybody else, on all machines, out of the same name.

        Raises LockTimeoutError when others hold it for longer than `wait`. See `Lock`.
        """
        return Lock(self, self._calls, name, wait, self.settings.lease if lease is None else lease)

    def idempotent(
        self,
        consumer: str,
        *,
        key: Key,
        lease: timedelta | None = None,
        fingerprint: Callable[..., str] | None = None,
        codec: Codec = JSON,
    ) -> Idempotent:
        """Decorate a coroutine function that is to take effect once for each key; repeats get the first result.

        `key` and `fingerprint` are called with the arguments of the function. A key that is a text, such as the
        `Idempotency-Key` of a request, stands for the event id `identity_of_text(key)`. See `Idempotent`.
        """
        return Idempotent(self, Recipe(consumer, key, lease, fingerprint, codec))
