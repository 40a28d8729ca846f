"""`relay audit`: was everything published that should have been, once and in order?"""

import argparse
import asyncio
import json
from contextlib import closing
from datetime import timedelta

from relay.brokers.pubsub_reader import PubSubReader
from relay.cli.parts import duration, loaded, outbox_connector, pubsub_address, routes
from relay.kernel.progress import Progress
from relay.operate.audit import AuditedOutbox, audit
from relay.operate.audit_words import verdict
from relay.settings import Settings


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "audit",
        help="compare what a subscription received with the outbox",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Reads a subscription to its end and compares it with the outbox: what was lost,
what nobody emitted, what came twice or out of order. Exits 0 when nothing is
wrong; duplicates, rows that failed and rows that were discarded are reported
and are not wrong. A row that its key went on without, skipped or discarded, and
that was retried later counts as an inversion, by definition: on a subscription
that is ordered, it exits 1.

It empties the subscription, so give it one of its own that was there before the
first event: a second run, or a subscription younger than the events, reports
them as lost.""",
        epilog="example:\n  python -m relay audit --subscription orders-audit --quiet 30s",
    )
    command.add_argument("--subscription", required=True, metavar="NAME", help="the one to read, and to empty")
    command.add_argument(
        "--quiet",
        type=duration,
        default=timedelta(seconds=10),
        metavar="TIME",
        help="it is at its end after so long without a message; longer than its ack deadline, if another consumer "
        "was reading it. 10s",
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.set_defaults(command=lambda options: asyncio.run(_audit(options, loaded())))


async def _audit(options: argparse.Namespace, settings: Settings) -> int:
    address, connect = pubsub_address(settings), outbox_connector(settings)
    async with await connect() as connection, PubSubReader(address, options.subscription) as reader:
        outbox = AuditedOutbox(connection, settings.relay_schema, address.project, routes(settings))
        with closing(Progress()) as progress:
            report = await audit(reader, outbox, options.quiet.total_seconds(), progress)
    print(json.dumps(report.as_json()) if options.json else verdict(report))
    return 0 if report.passed else 1
