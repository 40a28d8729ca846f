"""`relay run` and `relay tick`: the same runners, until told to stop or for one pass."""

import argparse
import asyncio
import json
import sys
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from relay.cli.announcing import Announced, Version
from relay.cli.parts import listening_opener, loaded, outbox_connector, redaction, warned
from relay.cli.refusals import refusals
from relay.cli.runners import RUNNERS, job_at_once, job_named, jobs_of, publishes, unknown, without_jobs, workers
from relay.cli.serve import Site
from relay.errors import ConfigurationError, SchemaError
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.command import FAILED, spare_the_collector
from relay.kernel.loop import Loop
from relay.kernel.observe import (
    LoopDied,
    Observe,
    PassFailed,
    PassFinished,
    ShutdownBegan,
    ShutdownEnded,
    to_all,
)
from relay.kernel.rest import Rest
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import CLOSE_SECONDS, supervise
from relay.kernel.tick import TickReport, tick
from relay.kernel.worker import Worker, close_all
from relay.operate import logs
from relay.operate.stats import StatsRunner, Tally, short_look
from relay.outbox.sleep import Sleeper
from relay.publisher.publisher import Publisher
from relay.setting_base import HARD_END
from relay.settings import Settings
from relay.upkeep.jobs import Job
from relay.upkeep.runner import JobRunner

HARD_END_SECONDS = HARD_END.total_seconds()

_RUN = """\
Publishes, and runs the jobs of RELAY_APP when they are due, until SIGTERM or
SIGINT, in the foreground; a second signal ends it at once. RELAY_RUNNERS says
which of these it does. Logs to stderr: `started` once it has reached its
outbox, `batch` for each batch that was published, `run_ended` for each run of
a job."""
_TICK = """\
Publishes what is due for up to RELAY_RUNNER_MAX_MS (60 s), runs each job of
RELAY_APP that is due, one after the other, prints a JSON report and exits. It
exits 0 also when the broker took nothing, for the rows wait, and when a job
failed, which its history has: look at `errors` in the report. It exits 1 when a
runner failed, without its database for example.

In the report, `processed` counts the rows that were claimed, `updated` those
that were published, and `errors` those that the broker did not take or never
will; `next` is "again" where more is due. Of a job, `processed` is 1 where it
ran, `skipped` is 1 where the run before is still at work, and `errors` counts
what went wrong; `due` is false where its slot has not come.

With --job, that job runs now, whether it is due or not, and nothing else does:
with its lock, and its history. Slots up to now are done with. It exits 1 where
the job had errors, or did not run."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    lasting = commands.add_parser(
        "run",
        help="publish and run jobs until told to stop",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_RUN,
        epilog="example:\n  python -m relay run",
    )
    lasting.set_defaults(command=lambda _: asyncio.run(_run(_warned(loaded()))))
    once = commands.add_parser(
        "tick",
        help="publish and run what is due, print a report, exit",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_TICK,
        epilog="""examples, the second for cron, in the folder of your checkout:
  python -m relay tick
  * * * * * cd /srv/outbox-relay && .venv/bin/python -m relay tick
  python -m relay tick --job clean_up""",
    )
    once.add_argument("--job", metavar="NAME", help="run this job now, whether it is due or not, and nothing else")
    once.set_defaults(command=_tick_command)


def _tick_command(options: argparse.Namespace) -> int:
    settings = loaded()
    if options.job is None:
        return asyncio.run(_tick(_warned(settings)))
    return asyncio.run(_tick(settings, job_named(options.job, settings)))


def _warned(settings: Settings) -> Settings:
    """Say once, before anything starts, which runners there are not.

    What RELAY_APP names is imported here, for some modules do not bear to be imported where an event loop runs; what is
    wrong with it is said by whoever asks for it.
    """
    with suppress(ConfigurationError):
        jobs_of(settings)
    _warn(unknown(settings, RUNNERS))
    return settings


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"relay: warning: {warning}", file=sys.stderr)


async def _run(settings: Settings) -> int:
    if faults := refusals(settings):
        raise ConfigurationError("\n".join(faults))
    _require(settings)
    _warn(without_jobs(settings))
    shutdown, clock, tally = Shutdown(), SystemClock(), Tally(publishing=publishes(settings))
    site = Site(settings, clock)
    observe = _SentencesAreEnough(to_all(_observe(settings), tally, *site.listeners), publishes=publishes(settings))
    soft_timeout = settings.relay_shutdown_ms.total_seconds()
    spare_the_collector()
    with shutdown.listening(soft_timeout + HARD_END_SECONDS):
        connect = Announced(settings, observe)
        running = workers(settings, connect, clock, observe)
        connect.runners = tuple(worker.runner.name for worker in running)
        loops = [_loop(worker, settings, clock, observe) for worker in running]
        telling = _stats_loop(settings, connect, tally, clock, observe)
        # Before the first pass, and until the last word: probes are answered for as long as there is something to ask.
        async with site.open(observe):
            abandoned = await supervise([*loops, telling], shutdown, clock, soft_timeout, observe)
    return 1 if abandoned else 0


def _require(settings: Settings) -> None:
    settings.require("database_url", *(["pubsub_project_id"] if publishes(settings) else []))


def _loop(worker: Worker, settings: Settings, clock: Clock, observe: Observe) -> Loop:
    """A job sleeps from slot to slot; that it cannot run, as on an older schema, ends nothing else."""
    if isinstance(runner := worker.runner, JobRunner):
        return Loop(worker, clock, runner.seconds, rest=runner)
    seconds = settings.relay_runner_max_ms.total_seconds()
    return Loop(worker, clock, seconds, final=(ConfigurationError,), rest=_rest(worker, settings, observe))


def _rest(worker: Worker, settings: Settings, observe: Observe) -> Rest | None:
    """The publisher sleeps until somebody stores an event; all others rest by the clock."""
    publisher = worker.runner
    if not (settings.relay_notify and isinstance(publisher, Publisher)):
        return None
    longest = settings.relay_idle_max_ms.total_seconds()
    return Sleeper(listening_opener(settings), publisher.floors, longest, observe, publisher.closed)


def _stats_loop(settings: Settings, connect: Announced, tally: Tally, clock: Clock, observe: Observe) -> Loop:
    """Tell how the outbox and this process are; beside the publisher, over connections of its own.

    Without a publisher, its first look is the one that reaches the outbox for the first time.
    """
    look = short_look(outbox_connector(settings) if publishes(settings) else connect.first, settings.relay_schema)
    every = settings.relay_stats_ms.total_seconds()
    runner = StatsRunner(look, every, tally, observe, clock.monotonic)
    loop = Loop(Worker(runner, clock, observe), clock, settings.relay_runner_max_ms.total_seconds())
    tally.awake = loop.wake.set
    return loop


async def _tick(settings: Settings, job: Job | None = None) -> int:
    shutdown, clock, observe = Shutdown(), SystemClock(), _but_failed_passes(_observe(settings))
    with shutdown.listening(settings.relay_shutdown_ms.total_seconds() + HARD_END_SECONDS):
        runners = _ticking(settings, clock, observe) if job is None else [job_at_once(job, settings, clock, observe)]
        try:
            report = await _in_time(
                tick(
                    runners,
                    shutdown,
                    clock,
                    settings.relay_tick_max_ms.total_seconds(),
                    settings.relay_runner_max_ms.total_seconds(),
                ),
                shutdown,
                settings.relay_shutdown_ms.total_seconds(),
            )
        finally:
            await close_all(runners, clock, CLOSE_SECONDS)
    if report is None:
        print(f"relay: stopped by {shutdown.reason} in the middle of a pass, which was cancelled", file=sys.stderr)
        return FAILED
    print(json.dumps(report.as_json(warned(settings))), flush=True)
    if report.failures:
        raise report.failures[0]
    return 0 if job is None else _judged(job, report)


def _ticking(settings: Settings, clock: Clock, observe: Observe) -> list[Worker]:
    _require(settings)
    runners = workers(settings, outbox_connector(settings, Version(settings, observe)), clock, observe)
    _warn(without_jobs(settings))
    return runners


def _judged(job: Job, ticked: TickReport) -> int:
    """Whoever runs one job waits for what becomes of it."""
    (outcome,) = ticked.outcomes.values()
    if outcome and outcome.report.processed:
        return FAILED if outcome.report.errors else 0
    reason = (
        "its run before is at work still, here or elsewhere" if outcome and outcome.report.skipped else "call again"
    )
    print(f"relay: job {job.name!r} did not run: {reason}", file=sys.stderr)
    return FAILED


async def _in_time(
    ticking: Coroutine[Any, Any, TickReport], shutdown: Shutdown, soft_timeout: float
) -> TickReport | None:
    """The report; None where the process was asked to stop, and a pass did not end within the soft timeout."""
    task, stopping = asyncio.create_task(ticking), asyncio.create_task(shutdown.stopping.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({task}, timeout=soft_timeout)
        if task.done():
            return task.result()
        return None
    finally:
        for each in (task, stopping):
            each.cancel()
        await asyncio.wait({task, stopping})


def _observe(settings: Settings) -> Observe:
    redact = redaction(settings)
    logs.adopt_libraries(sys.stderr, redact, settings.relay_name)
    log = logs.logger(settings.relay_log_level, sys.stderr, settings.relay_name)
    return to_all(logs.LogLines(log, events=settings.relay_log_events, redact=redact))


class _SentencesAreEnough:
    """Keeps the lines of a start that a wrong configuration ends out of the log: `main` says it in one sentence.

    Once a pass has ended well the same error ends nothing, and is a line as any other. Until then it is not known
    whether what a job lacks of the schema is all that lacks.
    """

    def __init__(self, observe: Observe, *, publishes: bool) -> None:
        self._observe = observe
        self._works = not publishes
        self._misconfigured = False
        self._held: list[object] = []

    def __call__(self, event: object) -> None:
        """Pass the event on, or keep it."""
        match event:
            case PassFinished(runner=Publisher.name):
                self._works = True
                held, self._held = self._held, []
                for each in held:
                    self._observe(each)
            case (
                PassFailed(runner=Publisher.name, error=ConfigurationError())
                | LoopDied(runner=Publisher.name, error=ConfigurationError())
            ) if not self._works:
                self._misconfigured = True
                return
            case PassFailed(error=SchemaError()) if not self._works:
                self._held.append(event)
                return
            case ShutdownBegan() | ShutdownEnded(abandoned=()) if self._misconfigured:
                return
        self._observe(event)


def _but_failed_passes(observe: Observe) -> Observe:
    """For a tick: what a pass raises the tick raises too, and its report has it."""
    return lambda event: None if isinstance(event, PassFailed) else observe(event)
