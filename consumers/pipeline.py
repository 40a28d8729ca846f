"""The one road of every delivery: decode, recognise, handle, settle.

what is met on the road                        what becomes of the delivery
─────────────────────────────────────────────  ──────────────────────────────────────────────────────────
replayed for another consumer                  acknowledged, counted
no envelope                                    dead-letter topic, then acknowledged
no handler for the type                        acknowledged, counted
a version newer than all handlers              retried: producers may be deployed first; in the end dead
acted on before                                acknowledged, counted
in progress elsewhere, or resting              looked at again later, uncounted; never acknowledged
the store is away                              held, uncounted; nothing is begun until the store is back
the handler returns                            completed, then acknowledged
… raises something transient, or times out     released with a rest, an attempt; after the last one dead
… raises something fatal                       dead-letter topic, completed, acknowledged
the dead-letter topic is away                  held, uncounted; not acknowledged
… was sent, to be confirmed                    its row waits for the provider's word; without an inbox it is dead
the process stops                              an asynchronous handler is cancelled and released uncounted
a thread's handler is late                     waited for: its lease is kept until it returns
the lease is lost                              the handler is cancelled; it answers in vain if others have the event
its own transaction completed the event        nothing more is written; what the handler says besides is ignored

What comes out of the inbox takes the same road. What failed or rests is a row there: nothing goes to the dead-letter
topic, and nothing rests in this process.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, assert_never

from consumers.dead_letters import REPLAYED_FOR, attributes_of
from consumers.dedup.protocol import AlreadyDone, Begun, End, InProgress, Mode, UnkeepableError
from consumers.events import (
    CompletionUnwritten,
    DeadLetterFailed,
    Fate,
    OutcomeIgnored,
    ResultUnkept,
)
from consumers.job import Cancelled, Job
from consumers.outcome import Dead, Defer, Done, Invalid, Outcome, Retry, Sent, Skip
from consumers.parts import Parts
from consumers.received import Undecodable
from consumers.retry import UNLIMITED
from idempotency import LeaseLostError, StoreUnavailableError
from relay.errors import BrokerError
from relay.kernel.code_duration import read

# Whoever acts on an event elsewhere may end long before its lease does: we look again after so many seconds, doubling.
_FIRST_LOOK: Final = 0.25
_DEAD_LETTER_PAUSE: Final = 10.0
_UNCOMMITTED: Final = "what ctx.complete writes was not committed when the handler returned: commit within the handler"
_UNAWAITED: Final = "nobody awaited ctx.complete, which the connection needs: write await before it"


class Pipeline:
    """Works on one delivery after the other, as many at once as there are callers."""

    def __init__(self, parts: Parts, most_resting: int) -> None:
        self._parts = parts
        self._most_resting = most_resting
        self._giving_up = asyncio.Event()

    def give_up(self) -> None:
        """Wait for the store no longer: the process ends."""
        self._giving_up.set()

    async def run(self, job: Job) -> None:
        """Work on a delivery, up to its being acknowledged, given back, or put to rest."""
        subject = job.subject
        durable = self._parts.dedup.durable
        # Before all else: what was no event to that consumer is no dead letter of ours. It is in no inbox.
        if not durable and job.delivery.attributes.get(REPLAYED_FOR, self._parts.consumer) != self._parts.consumer:
            await self._finish(job, Fate.NOT_MEANT)
            return
        if isinstance(subject, Undecodable):
            await self._bury(job, None, job.verdict or Invalid(subject.reason, subject.code), None)
            return
        if job.line.handler is None and not durable:
            await self._finish(job, Fate.UNHANDLED)
            return
        try:
            answer = await self._parts.dedup.begin(subject, job.delivery)
        except StoreUnavailableError as error:
            self._hold(job, self._parts.gate.failed(error), error)
            return
        self._parts.gate.worked()
        match answer:
            case AlreadyDone():
                await self._finish(job, Fate.DUPLICATE)
            case InProgress(retry_after):
                pause = min(retry_after, _FIRST_LOOK * 2.0 ** min(job.looks, 20))
                job.looks += 1
                self._parts.tell(job, Fate.BUSY, again_in=pause)
                self._rest(job, pause)
            case Begun():
                job.begun, job.looks, job.entered = answer, 0, False
                if job.cut is Cancelled.LEASE_LOST:
                    job.cut = None  # it was another claim's
                self._parts.begun[answer] = job
                try:
                    await self._act(job, answer)
                finally:
                    del self._parts.begun[answer]
                job.begun = None
            case _:
                assert_never(answer)

    async def _act(self, job: Job, begun: Begun) -> None:
        job.since = self._parts.clock.monotonic()
        if begun.attempt == 1:
            job.first_attempt_at = self._parts.clock.wall()
        if job.verdict is not None:
            await self._bury(job, begun, job.verdict, None)
            return
        if job.line.handler is None:
            # It was stored for a handler that there was, or is elsewhere, and was left to that one for long enough.
            await self._bury(job, begun, Dead("no handler is for events of this type", "UNKNOWN_EVENT_TYPE"), None)
            return
        if self._has_killed(job, begun):
            begun.attempt -= 1  # this one is not made
            reason = f"begun {begun.attempt} times, and ended by no word of its handler: the process died"
            await self._bury(job, begun, Dead(reason, "RETRIES_EXHAUSTED"), None)
            return
        outcome, error = await self._parts.handling.run(job, begun)
        await self._settle(job, begun, outcome, error)

    async def _settle(self, job: Job, begun: Begun, outcome: Outcome | Cancelled, error: BaseException | None) -> None:
        seconds = self._parts.clock.monotonic() - job.since
        if begun.completed:
            left = await self._confirmed(job, begun, outcome)
            if left is None:
                await self._finish(job, Fate.DONE, begun, seconds)
                return
            outcome = left
        match outcome:
            case Done() | Skip() | Sent():
                await self._succeed(job, begun, outcome, seconds)
            case Retry():
                await self._retry(job, begun, outcome, error, seconds)
            case Defer():
                await self._defer(job, begun, outcome, seconds)
            case Dead() | Invalid():
                await self._bury(job, begun, outcome, error, seconds)
            case Cancelled.SHUTDOWN:
                await self._release(job, begun, counted=False, rest=0.0)
                self._parts.tell(job, Fate.RELEASED, begun, seconds)
                self._give_back(job, 0.0)
            case Cancelled.LEASE_LOST:
                self._lose(job, begun, None, seconds)
            case _:
                assert_never(outcome)

    async def _confirmed(self, job: Job, begun: Begun, outcome: Outcome | Cancelled) -> Outcome | Cancelled | None:
        """None where the handler's own transaction has completed the event; else what is to become of it."""
        parts = self._parts
        assert parts.effects is not None  # noqa: S101 -- it has said that it completes
        while True:
            try:
                completed = await parts.effects.confirm(begun)
            except StoreUnavailableError as error:
                pause = parts.gate.failed(error)
                if self._giving_up.is_set():
                    parts.dedup.abandon(begun)
                    return None
                await parts.clock.wait(self._giving_up, pause)
            else:
                parts.gate.worked()
                break
        if not completed and begun.unawaited and isinstance(outcome, Done):
            # To try again would repeat an effect that may be committed, and end in the same way.
            return Dead(_UNAWAITED, "UNAWAITED")
        if not completed:
            return Retry(_UNCOMMITTED, "UNCOMMITTED") if isinstance(outcome, Done) else outcome
        if not isinstance(outcome, Done):
            parts.observe(OutcomeIgnored(parts.consumer, job.subject, type(outcome).__name__, completed=True))
        return None

    def _has_killed(self, job: Job, begun: Begun) -> bool:
        """Whether all attempts are used although no handler has failed the last one: its processes died."""
        handler = job.line.handler
        most = UNLIMITED if handler is None else handler.retry.max_attempts
        return self._parts.dedup.mode in (Mode.CLAIM, Mode.INBOX) and most != UNLIMITED and begun.attempt > most

    async def let_go(self, job: Job, pause: float) -> None:
        """After a fault of our own: give the delivery back, and the event free unless its handler was entered."""
        begun, job.begun = job.begun, None
        if begun is not None and job.entered:
            self._parts.dedup.abandon(begun)
        elif begun is not None:
            with suppress(Exception):  # whatever is wrong with it has been told
                await self._parts.dedup.release(begun, counted=True, rest=pause)
        self._give_back(job, pause)

    async def _succeed(self, job: Job, begun: Begun, outcome: Done | Skip | Sent, seconds: float) -> None:
        match outcome:
            case Done():
                await self._complete(job, begun, outcome, Fate.DONE, seconds)
            case Skip(reason):
                await self._complete(job, begun, outcome, Fate.SKIPPED, seconds, reason=reason)
            case Sent():
                await self._sent(job, begun, outcome, seconds)
            case _:
                assert_never(outcome)

    async def _sent(self, job: Job, begun: Begun, sent: Sent, seconds: float) -> None:
        """It is not sent again for want of somebody who asks about it."""
        if not self._parts.dedup.durable:
            fault: str | None = "what became of it can only be asked where deliveries are kept; choose dedup='inbox'"
        else:
            fault = self._parts.confirmers.fault(sent, job.subject.event_type)
        if fault is None:
            await self._complete(job, begun, sent, Fate.SENT, seconds)
        else:
            await self._bury(job, begun, Dead(f"it was sent, and {fault}", "UNCONFIRMABLE"), None, seconds)

    async def _complete(  # noqa: PLR0913 -- what the log line says
        self, job: Job, begun: Begun, end: Done | Skip | Sent, fate: Fate, seconds: float, *, reason: str = ""
    ) -> None:
        try:
            await self._written(job, begun, end)
        except LeaseLostError as error:
            self._lose(job, begun, end, seconds, error)
            return
        await self._finish(job, fate, begun, seconds, reason=reason)

    async def _written(self, job: Job, begun: Begun, end: End) -> None:
        """Have the store know of the effect, however long it is away; at the end of the process, without it."""
        parts = self._parts
        while True:
            try:
                await parts.dedup.complete(begun, end)
            except UnkeepableError as error:
                # To have the event come again would repeat the effect, and end in the same way.
                result = end.result if isinstance(end, Done) else None
                parts.observe(
                    ResultUnkept(parts.consumer, job.subject, type(result).__name__, error.__cause__ or error)
                )
                end = Done()
            except StoreUnavailableError as error:
                pause = parts.gate.failed(error)
                if self._giving_up.is_set():
                    # Acknowledged all the same: to have it delivered again would surely repeat the effect.
                    parts.dedup.abandon(begun)
                    parts.observe(CompletionUnwritten(parts.consumer, job.subject, error))
                    return
                await parts.clock.wait(self._giving_up, pause)
            else:
                parts.gate.worked()
                return

    async def _retry(self, job: Job, begun: Begun, outcome: Retry, error: BaseException | None, seconds: float) -> None:
        handler = job.line.handler
        assert handler is not None  # noqa: S101 -- a delivery without a handler never gets here
        delay = self._parts.patience.next_attempt(job, handler.retry, begun.attempt, outcome)
        if isinstance(delay, Dead):
            await self._bury(job, begun, delay, error, seconds)
            return
        if lost := await self._release(job, begun, outcome, counted=True, rest=delay):
            self._lose(job, begun, outcome, seconds, lost)
            return
        self._parts.tell(
            job, Fate.RETRIED, begun, seconds, code=outcome.code, reason=outcome.reason, again_in=delay, error=error
        )
        self._rest(job, delay)

    async def _defer(self, job: Job, begun: Begun, outcome: Defer, seconds: float) -> None:
        pause = self._parts.patience.deferred(job, begun.deferrals, max(0.0, read(outcome.delay).total_seconds()))
        if isinstance(pause, Dead):
            await self._bury(job, begun, pause, None, seconds)
            return
        if lost := await self._release(job, begun, outcome, counted=False, rest=pause):
            self._lose(job, begun, outcome, seconds, lost)
            return
        self._parts.tell(job, Fate.DEFERRED, begun, seconds, again_in=pause)
        self._rest(job, pause)

    async def _bury(
        self,
        job: Job,
        begun: Begun | None,
        why: Dead | Invalid,
        error: BaseException | None,
        seconds: float = 0.0,
    ) -> None:
        """To the dead-letter topic, and only then completed and acknowledged."""
        parts = self._parts
        if begun is not None and parts.dedup.durable:
            await self._end(job, begun, why, error, seconds)
            return
        attempts = job.attempts = job.attempts or (begun.attempt if begun else 0)
        attributes = attributes_of(
            job.delivery,
            why,
            consumer=parts.consumer,
            subscription=parts.source.name,
            attempts=attempts,
            now=datetime.fromtimestamp(parts.clock.wall(), UTC),
        )
        try:
            await parts.dead_letters.send(job.delivery, attributes)
        except BrokerError as refused:
            pause = parts.patience.jittered(_DEAD_LETTER_PAUSE)
            parts.observe(DeadLetterFailed(parts.consumer, parts.dead_letters.topic, job.subject, refused, pause))
            if begun is not None:
                await self._release(job, begun, counted=False, rest=pause)
            job.verdict = why
            self._rest(job, pause)
            return
        if begun is None:
            await self._finish(job, Fate.UNDECODABLE, begun, seconds, code=why.code, reason=why.reason, error=error)
        else:
            await self._end(job, begun, why, error, seconds)

    async def _end(
        self, job: Job, begun: Begun, why: Dead | Invalid, error: BaseException | None, seconds: float
    ) -> None:
        try:
            await self._written(job, begun, why)
        except LeaseLostError as lost:
            self._lose(job, begun, why, seconds, lost)
            return
        fate = Fate.DEAD if isinstance(why, Dead) else Fate.INVALID
        await self._finish(job, fate, begun, seconds, code=why.code, reason=why.reason, error=error)

    async def _release(
        self, job: Job, begun: Begun, why: Retry | Defer | None = None, *, counted: bool, rest: float
    ) -> LeaseLostError | None:
        """Let others have it; where the store cannot be told, its lease ends by itself. Answers if others have it."""
        try:
            await self._parts.dedup.release(begun, why, counted=counted, rest=rest)
        except StoreUnavailableError as error:
            self._parts.dedup.abandon(begun)
            self._parts.gate.failed(error)
        except LeaseLostError as error:
            self._parts.dedup.abandon(begun)
            return error
        finally:
            job.begun = None
        return None

    def _lose(
        self, job: Job, begun: Begun, answer: Outcome | None, seconds: float, error: BaseException | None = None
    ) -> None:
        parts = self._parts
        parts.dedup.abandon(begun)
        if answer is not None:
            parts.observe(OutcomeIgnored(parts.consumer, job.subject, type(answer).__name__))
        self._parts.tell(job, Fate.LEASE_LOST, begun, seconds, again_in=_FIRST_LOOK, error=error)
        job.cut = None
        self._rest(job, _FIRST_LOOK)

    async def _finish(  # noqa: PLR0913 -- what the log line says
        self,
        job: Job,
        fate: Fate,
        begun: Begun | None = None,
        seconds: float = 0.0,
        *,
        code: str = "",
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        await self._parts.source.acknowledge(job.delivery)
        self._parts.flow.finish(job)
        self._parts.tell(job, fate, begun, seconds, code=code, reason=reason, error=error)

    def _hold(self, job: Job, pause: float, error: BaseException) -> None:
        self._parts.tell(job, Fate.HELD, again_in=pause, error=error)
        self._rest(job, pause)

    def _rest(self, job: Job, seconds: float) -> None:
        """Look at it again later: here, or, where too much rests here or the process stops, wherever it comes to.

        What was judged stays: elsewhere nobody knows of it, and its handler would run again.
        """
        flow = self._parts.flow
        if self._parts.dedup.durable:
            self._give_back(job, seconds)
            return
        bound_to_us = bool(job.delivery.ordering_key) or job.verdict is not None
        if flow.closed or (flow.resting >= self._most_resting and not bound_to_us):
            self._give_back(job, seconds)
        else:
            flow.rest(job, seconds)

    def _give_back(self, job: Job, seconds: float) -> None:
        self._parts.source.give_back(job.delivery, seconds)
        self._parts.flow.finish(job)
