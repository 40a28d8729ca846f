"""From what was sent to what became of it: claimed for a while, asked about, settled.

A claim is a rest with a token: the row stays `sent`, so that a process which dies in between has it asked about again,
and never sent again.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from consumers.answers import for_each
from consumers.clock import Clock
from consumers.confirmers import Confirmer, Confirmers, InvalidRecipient, OnInvalid, Ticket
from consumers.context import Surroundings
from consumers.errors import TransientError, UsageError
from consumers.events import ConfirmFailed, TicketsAsked, TicketSettled, Verdict
from consumers.handlers import EACH, Handlers
from consumers.inbox.calling import Calling
from consumers.inbox.outage import Outage
from consumers.inbox.tickets import Claimed, Said, Tickets
from consumers.inbox.verdicts import Judge, open_still
from consumers.sends import ConfirmContext
from consumers.threads import Threads
from idempotency import StoreUnavailableError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.observe import Observe

# Processes that ask at the same time drift apart. Never sooner: what was put off for as long would not be due yet.
_JITTER: Final = 0.1
# Beyond what its function and the deactivations may take, a claim has this time left to be settled in.
_MARGIN_SECONDS: Final = 15.0
# The end waits so long for a word that is under way.
_LAST_WORD_SECONDS: Final = 1.0
_DEACTIVATED_AT_ONCE: Final = 10


class Confirming:
    """Keeps what `sends.Sends` asks for."""

    def __init__(
        self, tickets: Tickets, confirmers: Confirmers, observe: Observe, clock: Clock, *, jitter: Jitter = uniform
    ) -> None:
        self._tickets = tickets
        self._confirmers = confirmers
        self._observe = observe
        self._clock = clock
        self._jitter = jitter

    async def run(self, around: Surroundings, threads: Threads, handlers: Handlers) -> None:
        """Ask until cancelled, of each event type one batch at a time."""
        judge = Judge(handlers, self._clock.wall, lambda: self._jitter(1.0))
        rounds = [self._round(confirmer, around, threads, judge) for confirmer in self._confirmers.all()]
        if not rounds:
            await asyncio.Event().wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in rounds:
                    tasks.create_task(each.run())
        except BaseExceptionGroup as ended:
            raise ended.exceptions[0] from None

    def _round(self, confirmer: Confirmer, around: Surroundings, threads: Threads, judge: Judge) -> "Round":
        return Round(
            confirmer,
            self._confirmers.on_invalid,
            tickets=self._tickets,
            around=around,
            threads=threads,
            judge=judge,
            observe=self._observe,
            clock=self._clock,
            jitter=self._jitter,
        )


class Round:
    """Asks about the sends of one event type, again and again."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        confirmer: Confirmer,
        on_invalid: OnInvalid | None,
        *,
        tickets: Tickets,
        around: Surroundings,
        threads: Threads,
        judge: Judge,
        observe: Observe,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._confirmer = confirmer
        self._on_invalid = on_invalid
        self._tickets = tickets
        self._around = around
        self._threads = threads
        self._judge = judge
        self._observe = observe
        self._clock = clock
        self._jitter = jitter
        self._outage = Outage(tickets.consumer, "confirm", observe, clock, jitter)
        self._never = asyncio.Event()
        self._every = confirmer.every.total_seconds()
        self._calling = Calling(clock, confirmer.timeout.total_seconds())
        self._faults = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                is_all = await self._turn()
            except StoreUnavailableError as error:
                await self._outage.wait(error)
                continue
            except Exception as error:  # noqa: BLE001 -- a bug of ours must not end the consumer, again at each start
                self._failed(0, error)
                is_all = True
            self._outage.over()
            if is_all:
                await self._clock.wait(self._never, self._every + self._jitter(_JITTER * self._every))

    async def _turn(self) -> bool:
        """Ask about one batch; whether that was all that is due."""
        confirmer = self._confirmer
        claimed = await self._tickets.claim(
            [confirmer.event_type, confirmer.event_type + EACH],
            confirmer.batch,
            2 * self._calling.seconds + _MARGIN_SECONDS,
        )
        if not claimed:
            return True
        self._faults = 0
        began = self._clock.monotonic()
        try:
            said = await self._deactivated(self._said(claimed, *await self._asked(claimed)))
        except asyncio.CancelledError:
            await self._give_back(claimed)
            raise
        counted = await self._settle(said)
        self._tell(said, counted, self._clock.monotonic() - began)
        return len(claimed) < confirmer.batch

    async def _asked(self, claimed: Sequence[Claimed]) -> tuple[list[Any], BaseException | None]:
        """An answer for each; or none, and why."""
        tickets = [each.ticket for each in claimed]
        context = ConfirmContext(self._confirmer.event_type, self._around)
        answer, error = await self._calling.answer(
            self._in_thread(tickets, context) if self._confirmer.in_thread else self._in_loop(tickets, context)
        )
        if error is not None:
            return [], error
        try:
            return for_each(answer, len(tickets), self._confirmer.name, silence_is_done=False), None
        except UsageError as misfit:
            return [], misfit

    def _said(self, claimed: Sequence[Claimed], answers: list[Any], error: BaseException | None) -> list[Said]:
        """A verdict on each; what nobody has answered for stays open."""
        said: list[Said] = []
        faults: list[BaseException] = [] if error is None else [error] * len(claimed)
        for place, each in enumerate(claimed):
            try:
                judged = None if error is not None else self._judge.said(self._confirmer, each, answers[place])
            except UsageError as fault:
                judged = None
                faults.append(fault)
            said.append(judged or open_still(self._confirmer, each, self._every))
        if faults:
            self._failed(len(faults), faults[0])
        return said

    async def _deactivated(self, said: list[Said]) -> list[Said]:
        """Have recipients that are none deactivated before that is written, or else asked about anew."""
        deactivate = self._on_invalid
        invalid = [place for place, each in enumerate(said) if each.verdict is Verdict.INVALID]
        context = ConfirmContext(self._confirmer.event_type, self._around)
        if deactivate is None or not invalid:
            return said
        turn = asyncio.Semaphore(_DEACTIVATED_AT_ONCE)
        done: set[int] = set()
        faults: list[BaseException] = []

        async def deactivated(place: int) -> None:
            async with turn:
                try:
                    await deactivate.call(_invalid(said[place]), context)
                except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
                    raise
                except BaseException as error:  # noqa: BLE001 -- whatever the user's own code raises concerns this one alone
                    faults.append(error)
                else:
                    done.add(place)

        async def all_of_them() -> None:
            await asyncio.gather(*[deactivated(place) for place in invalid])

        _, late = await self._calling.answer(self._calling.limited(all_of_them()))
        undone = [place for place in invalid if place not in done]
        for place in undone:
            said[place] = open_still(self._confirmer, said[place].claimed, self._every)
        if undone:
            self._failed(len(undone), next(iter(faults), late) or UsageError("a recipient was not deactivated"))
        return said

    async def _in_loop(self, tickets: list[Ticket], context: ConfirmContext) -> Any:
        return await self._calling.limited(self._confirmer.call(tickets, context))

    async def _in_thread(self, tickets: list[Ticket], context: ConfirmContext) -> Any:
        """Its time has no end: a thread cannot be cancelled, and there shall be no second one beside it."""
        late = TransientError(f"it runs in a thread, for longer than {self._calling.seconds:g} s", "OVERDUE")
        timer = self._clock.call_later(self._calling.seconds, self._failed, len(tickets), late)
        try:
            return await self._threads.run(lambda: self._confirmer.call(tickets, context))
        finally:
            timer.cancel()

    async def _settle(self, said: Sequence[Said]) -> list[bool]:
        """Write it; a word that is under way when we are cancelled is waited for."""
        settling = asyncio.ensure_future(self._tickets.settle(said))
        try:
            return await asyncio.shield(settling)
        except asyncio.CancelledError:
            await asyncio.wait([settling], timeout=_LAST_WORD_SECONDS)
            settling.cancel()
            raise

    async def _give_back(self, claimed: Sequence[Claimed]) -> None:
        """Whoever asks next need not wait until our claim is over; where nobody can be told, it does."""
        settling = asyncio.ensure_future(
            self._tickets.settle([Said(claimed=each, verdict=Verdict.OPEN) for each in claimed])
        )
        await asyncio.wait([settling], timeout=_LAST_WORD_SECONDS)
        if not settling.cancel():
            settling.exception()

    def _tell(self, said: Sequence[Said], counted: Sequence[bool], seconds: float) -> None:
        consumer, event_type = self._tickets.consumer, self._confirmer.event_type
        verdicts: Counter[str] = Counter()
        for each, counts in zip(said, counted, strict=True):
            verdict = each.verdict if counts else Verdict.LOST
            verdicts[verdict.value] += 1
            if verdict in (Verdict.OPEN, Verdict.LOST):
                continue
            ticket = each.claimed.ticket
            self._observe(
                TicketSettled(
                    consumer,
                    ticket.delivery_id,
                    str(ticket.event_id),
                    event_type,
                    ticket.recipient,
                    ticket.attempt,
                    verdict,
                    each.code,
                    each.error,
                    each.rest if verdict is Verdict.RETRIED else None,
                )
            )
        self._observe(TicketsAsked(consumer, event_type, len(said), dict(verdicts), seconds, self._faults))

    def _failed(self, tickets: int, error: BaseException) -> None:
        self._faults += tickets
        self._observe(ConfirmFailed(self._tickets.consumer, self._confirmer.event_type, tickets, error, self._every))


def _invalid(said: Said) -> InvalidRecipient:
    ticket = said.claimed.ticket
    return InvalidRecipient(
        event_id=ticket.event_id,
        event_type=ticket.event_type,
        recipient=ticket.recipient,
        ticket=ticket.ticket,
        code=said.code,
        reason=said.error,
    )
