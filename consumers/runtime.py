"""One consumer at work in this process, from its first look at the subscription to its last word."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from consumers.context import Surroundings
from consumers.crew import Crew
from consumers.decode import decode, undecodable
from consumers.dedup.protocol import Begun
from consumers.delivery import Delivery
from consumers.events import (
    ConsumerStarted,
    ConsumerStats,
    ConsumerStopped,
    DeliverySettled,
    PipelineFault,
    StartWarning,
    Throttled,
)
from consumers.flow import Flow, Line
from consumers.gate import Gate
from consumers.handlers import Handler, Meant, TooNew, TooOld, Unhandled
from consumers.handling import Handling
from consumers.job import Cancelled, Job
from consumers.notes import Aborted
from consumers.outside import Outside
from consumers.parts import Parts
from consumers.patience import Patience
from consumers.permits import Permits
from consumers.pipeline import Pipeline
from consumers.received import Subject, Undecodable
from consumers.scratch import Scratches
from consumers.sources.source import Facts
from consumers.tell import Tell
from consumers.threads import Threads
from consumers.workbench import Workshop
from relay.errors import BrokerError
from relay.kernel.failure import sentence

if TYPE_CHECKING:
    from consumers.app import Consumer

# How long what follows the soft timeout may take: cancelled handlers release, those that stay are cancelled once more,
# then leases and acknowledgements end.
CANCEL_SECONDS = 2.0
# Of these, how long is left to those who wait for a store that does not answer.
GIVE_UP_SECONDS = 0.5
# And of these, for a word in the history of what is left behind.
_NOTE_SECONDS = 0.2
DISMISS_SECONDS = 0.5
CLOSE_SECONDS = 2.0
_FAULT_PAUSE = 5.0
_LOOK_SECONDS = 1.0
_RETENTION_UNKNOWN = (
    "nobody knows how long subscription {} keeps its messages: what rests for longer is dropped by the broker, and "
    "becomes no dead letter; grant pubsub.subscriptions.get (roles/pubsub.viewer)"
)


class Runtime:
    """Receives, works, and ends in order: nothing new, what waits goes back, what runs finishes, leases, answers."""

    def __init__(self, consumer: "Consumer", outside: Outside) -> None:
        self._consumer = consumer
        self._outside = outside
        self._jobs: dict[Begun, Job] = {}
        self._fates: Counter[str] = Counter()
        self._released = 0
        self._receiving = False
        self._stopping = False
        self._hurry = asyncio.Event()
        self._impatient = False
        self._crew: Crew
        self._flow: Flow
        self._gate: Gate
        self._pipeline: Pipeline
        self._around: Surroundings
        self._threads: Threads
        self._lines: dict[Handler | None, Line]
        defaults = outside.defaults
        self._handlers = consumer.handlers if defaults is None else consumer.handlers.under(defaults)
        self._concurrency = consumer.concurrency if defaults is None else consumer.concurrency_under(defaults)

    @property
    def receiving(self) -> bool:
        """Whether deliveries come in: what a readiness probe wants to know."""
        backlog = self._outside.backlog
        return self._receiving and self._gate.open and (backlog is None or backlog.available)

    async def run(self, stopping: asyncio.Event, soft_timeout: float) -> tuple[str, ...]:
        """Work until `stopping` is set, and name the handlers that had to be abandoned.

        Raises ConfigurationError where the consumer cannot work, BrokerError or StoreUnavailableError where it cannot
        begin. When cancelled, it ends as soon as it can: handlers are cancelled and released.
        """
        # On a task of its own: on one that is cancelled, Python 3.11 takes each timeout for one more cancellation.
        life = asyncio.create_task(self._live(stopping, soft_timeout))
        try:
            await asyncio.wait([life])
        except asyncio.CancelledError:
            if not self._receiving and not self._stopping:
                life.cancel()  # it has not begun
            self._hurry.set()
            while not life.done():
                try:
                    await asyncio.wait([life])
                except asyncio.CancelledError:
                    # What is left takes seconds, and gives back what is held; only threads are waited for no longer.
                    self._impatient = True
            raise
        return life.result()

    async def _live(self, stopping: asyncio.Event, soft_timeout: float) -> tuple[str, ...]:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            permits = Permits(self._flow, self._lines_of, self._concurrency)
            intake = asyncio.create_task(self._outside.source.run(self._take, permits))
            asking = asyncio.create_task(self._ask())
            wishes = [asyncio.create_task(stopping.wait()), asyncio.create_task(self._hurry.wait())]
            self._receiving = True
            try:
                await asyncio.wait([intake, asking, *wishes], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wish in wishes:
                    wish.cancel()
            ended_by_itself = not stopping.is_set() and not self._hurry.is_set()
            abandoned = await self._end([intake, asking], soft_timeout)
            if ended_by_itself:
                if asking.done() and not asking.cancelled():
                    asking.result()
                intake.result()
                raise RuntimeError(f"the source of {self._consumer.name} ended by itself")
            return abandoned

    async def look(self) -> None:
        """See what waits in the inbox, where there is one, for the next `stats`."""
        if self._receiving and self._outside.backlog is not None:
            await self._outside.backlog.look()

    def stats(self, seconds: float) -> ConsumerStats:
        """How the consumer is, and what it did since the last look."""
        flow, source = self._flow, self._outside.source
        now = self._outside.clock.monotonic()
        running = flow.running
        fates, self._fates = dict(self._fates), Counter()
        return ConsumerStats(
            consumer=self._consumer.name,
            subscription=source.name,
            outcomes=fates,
            running=len(running),
            waiting=flow.waiting,
            resting=flow.resting,
            held_messages=source.held_messages,
            held_bytes=source.held_bytes,
            oldest_running_seconds=max((now - job.since for job in running if job.since), default=0.0),
            receiving=self._receiving,
            store_available=self._gate.open,
            seconds=seconds,
            inbox=None if self._outside.backlog is None else self._outside.backlog.stats(),
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        consumer, outside = self._consumer, self._outside
        self._handlers.check()
        stack.push_async_callback(outside.dead_letters.close)
        facts = await outside.source.open()
        stack.push_async_callback(outside.source.close, CLOSE_SECONDS)
        try:
            await outside.dead_letters.open()
        except BrokerError as error:
            outside.observe(StartWarning(consumer.name, f"the dead-letter topic cannot be asked now: {error}"))
        if facts.retention is None and not outside.dedup.durable:
            outside.observe(StartWarning(consumer.name, _RETENTION_UNKNOWN.format(facts.name)))
        stack.push_async_callback(outside.dedup.close)
        for warning in await outside.dedup.open(self._lost, facts.retention):
            outside.observe(StartWarning(consumer.name, warning))
        state = await stack.enter_async_context(consumer.lifespan()) if consumer.lifespan else None
        self._build(facts, state, stack)
        stack.push_async_callback(self._crew.dismiss, DISMISS_SECONDS)
        outside.observe(
            ConsumerStarted(
                consumer=consumer.name,
                subscription=facts.name,
                dedup=outside.dedup.mode.value,
                dead_letter_topic=outside.dead_letters.topic,
                event_types=self._handlers.patterns(),
                concurrency=self._concurrency,
            )
        )

    def _build(self, facts: Facts, state: Any, stack: AsyncExitStack) -> None:
        consumer, outside = self._consumer, self._outside
        clock = outside.clock
        self._lines = {handler: Line(handler, handler.most) for handler in self._handlers.all()}
        self._lines[None] = Line(None, self._concurrency)
        self._flow = Flow(clock, self._lines.values(), self._wake, self._give_back, self._concurrency)
        most = self._concurrency + sum(line.limit for line in self._lines.values() if line.in_batches)
        self._crew = Crew(most, self._flow.take, self._work, clock)
        self._gate = Gate(
            consumer=consumer.name,
            pause=self._flow.pause,
            resume=self._flow.resume,
            observe=outside.observe,
            clock=clock,
            jitter=outside.jitter,
        )
        threads = self._threads = Threads(f"{consumer.name}-handler")
        stack.callback(threads.close)
        around = self._around = Surroundings(
            consumer=consumer.name,
            loop=asyncio.get_running_loop(),
            throttle=self._throttle,
            stopping=lambda: self._stopping,
            workshop=self._workshop(threads, stack),
            locks=outside.locks,
            effects=outside.effects,
            state=state,
            wall=lambda: datetime.fromtimestamp(clock.wall(), UTC),
        )
        parts = Parts(
            consumer=consumer.name,
            source=outside.source,
            dedup=outside.dedup,
            effects=outside.effects,
            dead_letters=outside.dead_letters,
            flow=self._flow,
            gate=self._gate,
            handling=Handling(self._handlers, around, threads, outside.observe, clock),
            patience=Patience(facts.retention, clock, outside.jitter, most_deferrals=outside.most_deferrals),
            confirmers=consumer.confirmers,
            observe=self._observe,
            tell=Tell(consumer.name, self._observe, clock),
            begun=self._jobs,
            clock=clock,
        )
        self._pipeline = Pipeline(parts, outside.most_resting)

    def _workshop(self, threads: Threads, stack: AsyncExitStack) -> Workshop:
        outside = self._outside
        scratches = Scratches(outside.scratch_root)
        stack.callback(scratches.close)
        if outside.sweeps:
            threads.run(scratches.sweep).add_done_callback(self._swept)
        return Workshop(
            consumer=self._consumer.name,
            loop=asyncio.get_running_loop(),
            clock=outside.clock,
            observe=outside.observe,
            run=threads.run,
            scratches=scratches,
        )

    def _swept(self, sweep: "asyncio.Future[None]") -> None:
        if not sweep.cancelled() and (error := sweep.exception()) is not None:
            told = f"what dead processes have left in the scratch directory cannot be removed: {sentence(error)}"
            self._outside.observe(StartWarning(self._consumer.name, told))

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            try:
                subject = decode(delivery)
                job = Job(
                    delivery,
                    subject,
                    self._line_of(subject),
                    first_attempt_at=delivery.first_attempt_at,
                    seen_at=self._outside.clock.wall(),
                )
            except Exception as error:  # noqa: BLE001 -- a bug of ours must not end the consumer, again at each start
                unread = undecodable(delivery, "it was not read")
                self._outside.observe(PipelineFault(self._consumer.name, unread, error, _FAULT_PAUSE))
                self._outside.source.give_back(delivery, _FAULT_PAUSE)
            else:
                self._flow.offer(job)
                if self._outside.dedup.durable and subject.event_type in job.line.paused:
                    self._flow.hand_back(subject.event_type)  # it was on its way as its type was paused

    def _line_of(self, subject: Subject) -> Line:
        if isinstance(subject, Undecodable):
            return self._lines[None]
        match self._handlers.resolve(subject.event_type, subject.version, subject.recipient):
            case Meant(handler) | TooNew(handler) | TooOld(handler):
                return self._lines[handler]
            case Unhandled():
                return self._lines[None]

    def _lines_of(self, event_type: str) -> list[Line]:
        return [self._lines[handler] for handler in self._handlers.of_type(event_type)] or [self._lines[None]]

    async def _work(self, job: Job) -> None:
        try:
            await self._pipeline.run(job)
        except (Exception, asyncio.CancelledError) as error:  # a bug must not take the worker, and with it the message
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError):
                if self._stopping or task is None:
                    raise
                while task.cancelling():  # something that a handler has left behind cancels whatever comes after it
                    task.uncancel()
            outside = self._outside
            outside.observe(PipelineFault(self._consumer.name, job.subject, error, _FAULT_PAUSE))
            await self._pipeline.let_go(job, _FAULT_PAUSE)

    def _wake(self) -> None:
        self._crew.wake()

    def _observe(self, event: object) -> None:
        if isinstance(event, DeliverySettled):
            self._fates[event.fate.value] += 1
        self._outside.observe(event)

    def _lost(self, begun: Begun) -> None:
        job = self._jobs.get(begun)
        if job is not None:
            job.cancel(Cancelled.LEASE_LOST)

    def _throttle(self, event_type: str, seconds: float) -> None:
        self._flow.throttle(event_type, seconds)
        if self._outside.dedup.durable:
            self._flow.hand_back(event_type)
        self._outside.observe(Throttled(self._consumer.name, event_type, seconds))

    def _give_back(self, job: Job, rest: float) -> None:
        self._released += self._stopping
        self._outside.source.give_back(job.delivery, rest)

    async def _ask(self) -> None:
        """Ask what became of what was sent, where anything can be, until cancelled."""
        if self._outside.sends is None:
            await asyncio.Event().wait()
        else:
            await self._outside.sends.run(self._around, self._threads, self._handlers)

    async def _end(self, incoming: "Sequence[asyncio.Task[None]]", soft_timeout: float) -> tuple[str, ...]:
        """The order of an end: nothing new, what waits goes back, what runs may finish, what is late is cut short."""
        began = self._outside.clock.monotonic()
        self._receiving, self._stopping = False, True
        for each in incoming:
            each.cancel()
        await asyncio.wait(incoming)
        self._flow.close()
        if not await self._calm(soft_timeout):
            self._pipeline.give_up()
            for job in self._flow.running:
                job.cancel(Cancelled.SHUTDOWN)
            if not await self._crew.calm(CANCEL_SECONDS - GIVE_UP_SECONDS):
                self._outside.dedup.give_up()
                if not await self._crew.calm(GIVE_UP_SECONDS - _NOTE_SECONDS) and not self._outside.outlived:
                    await self._note_what_is_left()
        abandoned = tuple(sorted({_name(job) for job in self._flow.running}))
        ended = self._outside.clock.monotonic() - began
        self._outside.observe(ConsumerStopped(self._consumer.name, ended, self._released, abandoned))
        while self._outside.outlived and self._flow.in_threads and not self._impatient:
            # A thread goes on in a process that does: so do its lease, and what it works with.
            await self._crew.calm(_LOOK_SECONDS)
        return abandoned

    async def _note_what_is_left(self) -> None:
        """Nobody releases it: its lease ends by itself. Where the history cannot be written, nothing depends on it."""
        begun = [job.begun for job in self._flow.running if job.begun is not None]
        notes = [asyncio.ensure_future(each.notebook.note(Aborted())) for each in begun if each.notebook is not None]
        if not notes:
            return
        timer = self._outside.clock.call_later(_NOTE_SECONDS, lambda: [note.cancel() for note in notes])
        await asyncio.gather(*notes, return_exceptions=True)
        timer.cancel()

    async def _calm(self, soft_timeout: float) -> bool:
        """Wait for what runs, as long as it may take, and nobody is in a hurry."""
        calm = asyncio.create_task(self._crew.calm(soft_timeout))
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait([calm, hurry], return_when=asyncio.FIRST_COMPLETED)
            return calm.done() and calm.result()
        finally:
            calm.cancel()
            hurry.cancel()


def _name(job: Job) -> str:
    return f"{job.line.handler.name if job.line.handler else job.subject.event_type} of {job.subject.event_id}"
