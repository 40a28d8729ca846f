"""Consumers at work: one inside of a service, or several as a process of their own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from consumers import app_jobs
from consumers.backstage import Backstage, missing, redaction, refusals
from consumers.company import Company
from consumers.errors import ConfigurationError
from consumers.events import JobsStarted
from consumers.logs import LogLines
from consumers.settings import Settings, load
from relay import errors as relay_errors
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.loop import Loop
from relay.kernel.observe import LoopDied, Observe, ShutdownBegan, ShutdownEnded, to_all
from relay.kernel.shutdown import Shutdown

if TYPE_CHECKING:
    from consumers.app import Consumer


async def run_one(
    consumer: "Consumer", settings: Settings | None, stopping: asyncio.Event, observe: Observe | None = None
) -> None:
    """Run a consumer inside of somebody else's process, until `stopping` is set.

    Lines go where that process has structlog write; nothing of its logging is changed, and no signal is listened for.
    `observe` gets every event too. Raises ConfigurationError where the consumer cannot work.
    """
    settings = settings or load()
    lines = LogLines(
        structlog.get_logger("consumers"), events=settings.consumers_log_events, redact=redaction(settings)
    )
    told = to_all(lines, observe) if observe else to_all(lines)
    try:
        async with backstage([consumer], settings, outlived=True) as supplies:
            company = Company(
                [consumer],
                supplies,
                told,
                SystemClock(),
                soft_timeout=settings.consumers_shutdown_ms.total_seconds(),
                stats_seconds=settings.consumers_stats_ms.total_seconds(),
            )
            await company.work(stopping)
    except ConfigurationError as error:
        # The service may not look at what it raises before its own end.
        told(LoopDied(consumer.name, error))
        raise


async def run_all(
    consumers: "Sequence[Consumer]",
    settings: Settings,
    shutdown: Shutdown,
    observe: Observe,
    faults: Sequence[str] = (),
) -> tuple[str, ...]:
    """Run consumers side by side until shutdown, over one store, and name the handlers that had to be abandoned.

    One that cannot start, or dies, ends all of them in order; what it died of is raised then. The jobs of RELAY_APP run
    beside them, or alone; those that had to be abandoned are named, too. Where it is known already what is wrong with
    them, `faults` has it, and is raised with all else that is.
    """
    async with backstage(consumers, settings, outlived=False, more=faults) as supplies:
        clock, soft_timeout = SystemClock(), settings.consumers_shutdown_ms.total_seconds()
        jobs = app_jobs.loops(settings, clock, observe)
        if jobs:
            observe(JobsStarted(tuple(loop.worker.runner.name for loop in jobs), settings.inbox_schema))
        company = Company(
            consumers,
            supplies,
            observe,
            clock,
            soft_timeout=soft_timeout,
            stats_seconds=settings.consumers_stats_ms.total_seconds(),
            end=shutdown.request,
        )
        return await supervise(company, shutdown, clock, soft_timeout, observe, jobs=jobs)


async def supervise(  # noqa: PLR0913 -- most have no jobs
    company: Company,
    shutdown: Shutdown,
    clock: Clock,
    soft_timeout: float,
    observe: Observe,
    *,
    jobs: Sequence[Loop] = (),
) -> tuple[str, ...]:
    """Have them work until shutdown, and tell of it; a start that a wrong configuration ends has its sentence."""
    beginning = asyncio.create_task(_tell_of_the_end(company, shutdown, clock, soft_timeout, observe))
    beside = asyncio.create_task(app_jobs.run(jobs, shutdown, clock, soft_timeout, observe))
    abandoned: tuple[str, ...] = ()
    try:
        abandoned = await company.work(shutdown.stopping)
    finally:
        shutdown.request("cancelled")
        began = await beginning
        # Their end is as bounded as that of the consumers, and has begun with it.
        await asyncio.wait({beside})
        abandoned += () if beside.cancelled() or beside.exception() else beside.result()
        if not company.misconfigured:
            observe(ShutdownEnded(abandoned, clock.monotonic() - began))
    beside.result()
    return abandoned


async def _tell_of_the_end(
    company: Company, shutdown: Shutdown, clock: Clock, soft_timeout: float, observe: Observe
) -> float:
    await shutdown.stopping.wait()
    if not company.misconfigured:
        observe(ShutdownBegan(shutdown.reason, soft_timeout))
    return clock.monotonic()


@asynccontextmanager
async def backstage(
    consumers: "Sequence[Consumer]", settings: Settings, *, outlived: bool, more: Sequence[str] = ()
) -> AsyncIterator[Backstage]:
    """What they share, while the block runs. Raises ConfigurationError for all that is wrong before it begins.

    `more` is what else is.
    """
    lacking = missing(settings, consumers) if consumers else []
    if faults := [*refusals(settings), *lacking, *_namesakes(consumers), *more]:
        raise ConfigurationError("\n".join(faults))
    try:
        supplies = Backstage(settings, outlived=outlived)
        try:
            yield supplies
        finally:
            await supplies.close()
    except relay_errors.ConfigurationError as error:
        raise ConfigurationError(str(error)) from error


def _namesakes(consumers: "Sequence[Consumer]") -> list[str]:
    names = Counter(consumer.name for consumer in consumers)
    return [
        f"{times} consumers are named {name!r}, and each would take the others' events for processed; "
        "give each a name of its own, and name none twice"
        for name, times in names.items()
        if times > 1
    ]
