"""`relay run` and `relay tick`: the same runners, until told to stop or for one pass."""

import argparse
import asyncio
import json
import sys
from typing import Any

import psycopg

from relay.cli.parts import listening_opener, loaded, outbox_connector, pubsub_address, redaction, warned
from relay.cli.refusals import refusals
from relay.cli.runners import RUNNERS, unknown, workers
from relay.cli.serve import Site
from relay.errors import ConfigurationError
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.command import spare_the_collector
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
from relay.kernel.tick import tick
from relay.kernel.worker import Worker, close_all
from relay.operate import logs
from relay.operate.events import Reconnected, SchemaDiffers, Started
from relay.operate.stats import StatsRunner, Tally, short_look
from relay.outbox import schema
from relay.outbox.outbox import Connect
from relay.outbox.sleep import Sleeper
from relay.publisher.publisher import Publisher
from relay.setting_base import HARD_END
from relay.settings import Settings

HARD_END_SECONDS = HARD_END.total_seconds()

_RUN = """\
Publishes until SIGTERM or SIGINT, in the foreground; a second signal ends it at
once. Logs to stderr: `started` once it has reached its outbox, `batch` for each
batch that was published."""
_TICK = """\
Publishes what is due for up to RELAY_RUNNER_MAX_MS (60 s), prints a JSON report
and exits. It exits 0 also when the broker took nothing, for the rows wait: look
at `errors` in the report. It exits 1 when a runner failed, without its database
for example.

In the report, `processed` counts the rows that were claimed, `updated` those
that were published, and `errors` those that the broker did not take or never
will; `next` is "again" where more is due."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    lasting = commands.add_parser(
        "run",
        help="publish until told to stop",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_RUN,
        epilog="example:\n  python -m relay run",
    )
    lasting.set_defaults(command=lambda _: asyncio.run(_run(_warned(loaded()))))
    once = commands.add_parser(
        "tick",
        help="publish what is due, print a report, exit",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_TICK,
        epilog="""examples, the second for cron, in the folder of your checkout:
  python -m relay tick
  * * * * * cd /srv/outbox-relay && .venv/bin/python -m relay tick""",
    )
    once.set_defaults(command=lambda _: asyncio.run(_tick(_warned(loaded()))))


def _warned(settings: Settings) -> Settings:
    """Say once, before anything starts, which runners there are not."""
    for warning in unknown(settings, RUNNERS):
        print(f"relay: warning: {warning}", file=sys.stderr)
    return settings


async def _run(settings: Settings) -> int:
    if faults := refusals(settings):
        raise ConfigurationError("\n".join(faults))
    settings.require("database_url", "pubsub_project_id")
    shutdown, clock, tally = Shutdown(), SystemClock(), Tally()
    site = Site(settings, clock)
    observe = _SentencesAreEnough(to_all(_observe(settings), tally, *site.listeners))
    soft_timeout = settings.relay_shutdown_ms.total_seconds()
    spare_the_collector()
    with shutdown.listening(soft_timeout + HARD_END_SECONDS):
        connect = _announced(settings, observe)
        seconds = settings.relay_runner_max_ms.total_seconds()
        loops = [
            Loop(worker, clock, seconds, final=(ConfigurationError,), rest=_rest(worker, settings, observe))
            for worker in workers(settings, connect, clock, observe)
        ]
        telling = _stats_loop(settings, tally, clock, observe)
        # Before the first pass, and until the last word: probes are answered for as long as there is something to ask.
        async with site.open(observe):
            abandoned = await supervise([*loops, telling], shutdown, clock, soft_timeout, observe)
    return 1 if abandoned else 0


def _rest(worker: Worker, settings: Settings, observe: Observe) -> Rest | None:
    """The publisher sleeps until somebody stores an event; all others rest by the clock."""
    publisher = worker.runner
    if not (settings.relay_notify and isinstance(publisher, Publisher)):
        return None
    longest = settings.relay_idle_max_ms.total_seconds()
    return Sleeper(listening_opener(settings), publisher.floors, longest, observe, publisher.closed)


def _stats_loop(settings: Settings, tally: Tally, clock: Clock, observe: Observe) -> Loop:
    """Tell how the outbox and this process are; beside the publisher, over connections of its own."""
    look = short_look(outbox_connector(settings), settings.relay_schema)
    every = settings.relay_stats_ms.total_seconds()
    runner = StatsRunner(look, every, tally, observe, clock.monotonic)
    loop = Loop(Worker(runner, clock, observe), clock, settings.relay_runner_max_ms.total_seconds())
    tally.awake = loop.wake.set
    return loop


async def _tick(settings: Settings) -> int:
    shutdown, clock, observe = Shutdown(), SystemClock(), _but_failed_passes(_observe(settings))
    with shutdown.listening(settings.relay_shutdown_ms.total_seconds() + HARD_END_SECONDS):
        settings.require("database_url", "pubsub_project_id")
        runners = workers(settings, outbox_connector(settings, _Version(settings, observe)), clock, observe)
        try:
            report = await tick(
                runners,
                shutdown,
                clock,
                settings.relay_tick_max_ms.total_seconds(),
                settings.relay_runner_max_ms.total_seconds(),
            )
        finally:
            await close_all(runners, clock, CLOSE_SECONDS)
    print(json.dumps(report.as_json(warned(settings))), flush=True)
    if report.failures:
        raise report.failures[0]
    return 0


def _observe(settings: Settings) -> Observe:
    redact = redaction(settings)
    logs.adopt_libraries(sys.stderr, redact, settings.relay_name)
    log = logs.logger(settings.relay_log_level, sys.stderr, settings.relay_name)
    return to_all(logs.LogLines(log, events=settings.relay_log_events, redact=redact))


class _SentencesAreEnough:
    """Keeps the lines of a start that a wrong configuration ends out of the log: `main` says it in one sentence.

    Once a pass has ended well the same error ends nothing, and is a line as any other.
    """

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._works = False
        self._misconfigured = False

    def __call__(self, event: object) -> None:
        """Pass the event on, or keep it."""
        match event:
            case PassFinished(runner=Publisher.name):
                self._works = True
            case PassFailed(error=ConfigurationError()) | LoopDied(error=ConfigurationError()) if not self._works:
                self._misconfigured = True
                return
            case ShutdownBegan() | ShutdownEnded(abandoned=()) if self._misconfigured:
                return
        self._observe(event)


def _but_failed_passes(observe: Observe) -> Observe:
    """For a tick: what a pass raises the tick raises too, and its report has it."""
    return lambda event: None if isinstance(event, PassFailed) else observe(event)


class _Version:
    """The schema's version as it was last found; told of, once, where it is not this release's own."""

    def __init__(self, settings: Settings, observe: Observe) -> None:
        self.known = schema.newest()
        self._schema = settings.relay_schema
        self._observe = observe

    def __call__(self, version: int) -> None:
        """Take note of the version that a connection found."""
        if version not in {self.known, schema.newest()}:
            self._observe(SchemaDiffers(self._schema, version, schema.newest()))
        self.known = version


def _announced(settings: Settings, observe: Observe) -> Connect:
    """Tell of every connection: the first one says where the relay works, later ones that an outage is over."""
    version, again = _Version(settings, observe), False
    connect = outbox_connector(settings, version)

    async def announced() -> psycopg.AsyncConnection[Any]:
        nonlocal again
        connection = await connect()
        info = connection.info
        database = f"{info.host}:{info.port}/{info.dbname}"
        observe(Reconnected(database) if again else _started(database, version.known, settings))
        again = True
        return connection

    return announced


def _started(database: str, version: int, settings: Settings) -> Started:
    address = pubsub_address(settings)
    return Started(
        database=database,
        schema=settings.relay_schema,
        schema_version=version,
        project=address.project,
        broker=f"emulator {address.emulator}" if address.emulator else address.endpoint or "pubsub.googleapis.com",
        topic=settings.relay_topic,
        batch_size=settings.relay_batch_size,
    )
