"""A claim before the effect, the completion behind it: what Redis can do for acting once."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from consumers.dead_letters import BURIED
from consumers.dedup.keeper import LOST, Keeper, Renewed
from consumers.dedup.protocol import AlreadyDone, Begun, End, InProgress, Mode, OnLost, UnkeepableError
from consumers.dedup.tokens import Tokens
from consumers.delivery import Delivery
from consumers.gather import Gather
from consumers.outcome import Dead, Defer, Done, Invalid, Retry, Sent, Skip
from consumers.received import Received
from idempotency import Claimed, LeaseLostError, Store, StoreUnavailableError
from idempotency import Done as Known
from idempotency import InProgress as Held
from relay.kernel.clock import Clock, SystemClock

_RESULT: TypeAdapter[Any] = TypeAdapter(Any)
# A lease is renewed so many times in its length: three failures in a row do not lose it.
_RENEWALS = 4


class ClaimDedup:
    """Once, but for a consumer that dies between its effect and the completion.

    All claims of a process are renewed together. What cannot be renewed is lost when its lease ends by our own clock,
    which began before the store's did; whoever acts on it is told then.
    """

    mode = Mode.CLAIM
    durable = False

    def __init__(self, store: Store, consumer: str, clock: Clock | None = None) -> None:
        self._store = store
        self._keeper: Keeper[Begun] = Keeper(
            self._renew,
            clock or SystemClock(),
            every=store.settings.lease.total_seconds() / _RENEWALS,
            now=store.clock,
        )
        self._consumer = consumer
        self._tokens = Tokens()
        self._claims: Gather[tuple[UUID, str], Any] = Gather(self._claim_many)
        self._completions: Gather[tuple[Claimed, Any], Any] = Gather(self._complete_many)

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:
        """Begin to keep what is claimed."""
        warnings = await self._store.examine(retention)
        self._keeper.start(on_lost)
        return warnings

    async def begin(self, event: Received[Any], delivery: Delivery) -> Begun | AlreadyDone | InProgress:  # noqa: ARG002 -- the store counts
        """Claim it, unless it is done or somebody else's."""
        match await self._tokens.ask(event.event_id, self._claims.ask):
            case Claimed() as claim:
                if not claim.is_held(self._store.clock()):
                    # The answer lay about for longer than the lease: somebody else may have the event by now.
                    await self._store.release(claim, counted=False)
                    return InProgress(0.0)
                begun = Begun(event, claim.attempt, claim)
                self._keeper.keep(begun, claim.deadline)
                return begun
            case Held(retry_after):
                return InProgress(retry_after.total_seconds())
            case Known():
                return AlreadyDone()
            case other:
                raise TypeError(f"the store answered {other!r}")

    async def complete(self, begun: Begun, end: End) -> None:
        """Have it known as done, with the result."""
        await self._completions.ask((begun.token, _kept(end)))
        self._keeper.drop(begun)

    async def release(
        self,
        begun: Begun,
        why: Retry | Defer | None = None,  # noqa: ARG002 -- a claim has no room for it
        *,
        counted: bool,
        rest: float = 0.0,
    ) -> None:
        """Give the claim back."""
        self._keeper.drop(begun)
        await self._store.release(begun.token, counted=counted, rest=timedelta(seconds=rest))

    def abandon(self, begun: Begun) -> None:
        """Renew it no longer."""
        self._keeper.drop(begun)

    def give_up(self) -> None:
        """Fail what is being asked now, and what is asked from now on only once."""
        error = StoreUnavailableError("the process ends, and the store has not answered")
        self._claims.fail(error)
        self._completions.fail(error)

    async def close(self) -> None:
        """Renew nothing any longer."""
        await self._keeper.close()

    async def _claim_many(self, asked: Sequence[tuple[UUID, str]]) -> Sequence[Any]:
        tokens = [token for _, token in asked]
        return await self._store.claim_many(self._consumer, [event for event, _ in asked], tokens=tokens)

    async def _complete_many(self, done: Sequence[tuple[Claimed, Any]]) -> Sequence[Any]:
        return await self._store.complete_many([claim for claim, _ in done], [result for _, result in done])

    async def _renew(self, held: Sequence[Begun]) -> Sequence[Renewed]:
        answers = await self._store.renew_many([begun.token for begun in held])
        return [_renewed(begun, answer) for begun, answer in zip(held, answers, strict=True)]


def _renewed(begun: Begun, answer: object) -> Renewed:
    match answer:
        case Claimed():
            begun.token = answer
            return answer.deadline
        case LeaseLostError():
            return LOST
        case _:
            return None


def _kept(end: End) -> bytes | None:
    """What is kept of the end. Raises UnkeepableError where the result is no JSON."""
    match end:
        case Done(None) | Skip() | Sent():
            return None
        case Done(result):
            kept = result
        case Dead() | Invalid():
            kept = BURIED
    try:
        return _RESULT.dump_json(kept)
    except Exception as error:  # the value is the user's, and so may be how it is written
        raise UnkeepableError from error
