"""`consumers run`: consumers as a process of their own."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from consumers import app_jobs
from consumers.app import Consumer
from consumers.backstage import redaction
from consumers.cli.loading import load_consumers
from consumers.cli.parts import loaded_settings
from consumers.errors import ConfigurationError
from consumers.logs import LogLines
from consumers.settings import Settings
from consumers.wiring import run_all
from relay.kernel import log_output
from relay.kernel.command import spare_the_collector
from relay.kernel.observe import Observe, to_all
from relay.kernel.shutdown import Shutdown
from relay.setting_base import HARD_END

_DESCRIPTION = """\
Receives and handles until SIGTERM or SIGINT, in the foreground; a second signal
ends it at once. Several consumers share the process, and end together. Modules
are looked for in the working directory first. Logs to stderr: consumer_started
once a consumer has reached what it needs, consumer_stats every minute.
The jobs of RELAY_APP run beside the consumers, or alone where none are named;
their slots and history are in INBOX_SCHEMA, so that DATABASE_URL is needed."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "run",
        help="receive and handle until told to stop",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_DESCRIPTION,
        epilog="""examples:
  python -m consumers run billing.events:consumer
  python -m consumers run billing.events:consumer shipping.events:consumers""",
    )
    command.add_argument(
        "targets", nargs="*", metavar="module:name", help="a Consumer, or a list of them, and the module that has it"
    )
    command.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    settings = loaded_settings()
    if not (options.targets or settings.relay_app):
        raise ConfigurationError(
            "there is nothing to run: name consumers, like shop.billing:consumer, or jobs in RELAY_APP=module:name"
        )
    return asyncio.run(_work(load_consumers(options.targets), settings, app_jobs.faults(settings)))


async def _work(consumers: Sequence[Consumer], settings: Settings, faults: Sequence[str]) -> int:
    shutdown, observe = Shutdown(), _observe(settings)
    spare_the_collector()
    with shutdown.listening((settings.consumers_shutdown_ms + HARD_END).total_seconds()):
        abandoned = await run_all(consumers, settings, shutdown, observe, faults)
    return 1 if abandoned else 0


def _observe(settings: Settings) -> Observe:
    redact = redaction(settings)
    level, app = settings.consumers_log_level, settings.consumers_name
    log_output.adopt_libraries(sys.stderr, redact, app)
    log_output.adopt_structlog(level, sys.stderr, redact, app)
    return to_all(
        LogLines(log_output.logger(level, sys.stderr, app), events=settings.consumers_log_events, redact=redact)
    )
