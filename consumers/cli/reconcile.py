"""`consumers reconcile`: rebuild the deliveries that are missing in a consumer's inbox."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from consumers.app import Consumer
from consumers.cli.loading import load_consumers
from consumers.cli.parts import loaded_settings, warned
from consumers.dedup.protocol import Mode
from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.settings import Settings
from relay.kernel.progress import Progress
from relay.setting_base import text_of

if TYPE_CHECKING:
    from consumers.inbox.reconciling import Tally

MOST_A_PAGE = 5_000
_OUTBOX, _OWN = "outbox", "own"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "reconcile",
        help="rebuild the deliveries that are missing in an inbox",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Compares a consumer's inbox with the events that there should be, and stores
those that are missing: running consumers handle them. What is there is left as
it is. Goes over all events in pages; killed halfway, the next call goes on from
there. Events from before the INBOX_RETENTION, whose deliveries may have been
cleaned away, are left out. Needs DATABASE_URL, and neither Pub/Sub nor Redis.""",
        epilog="""\
examples, of which the first stores nothing:
  python -m consumers reconcile shop.billing:consumer --plan
  python -m consumers reconcile shop.billing:consumer
  python -m consumers reconcile shop.billing:consumer --from outbox --restart""",
    )
    command.allow_abbrev = False
    command.add_argument("name", metavar="MODULE:NAME", help="the consumer, as it is named for `run`")
    command.add_argument(
        "--from",
        dest="origin",
        choices=(_OUTBOX, _OWN),
        help="who tells the events: the outbox in the same database (RELAY_SCHEMA), or the consumer's own function, "
        "registered with @consumer.reconcile. own, where there is one",
    )
    command.add_argument("--restart", action="store_true", help="begin at the first event, not where a call was killed")
    command.add_argument("--plan", "--dry-run", dest="plan", action="store_true", help="count, and store nothing")
    command.add_argument(
        "--page", type=_page, default=500, metavar="N", help=f"events at a time, 1 to {MOST_A_PAGE}. 500"
    )
    command.add_argument("--json", action="store_true", help="the counts as JSON")
    command.set_defaults(command=lambda options: asyncio.run(_run(options, loaded_settings())))


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    from consumers.inbox.rebuilding import Books, Whose, reconciliation  # noqa: PLC0415 -- loads libpq

    consumer = _consumer(options.name)
    origin = _origin(options.origin, consumer)
    if options.plan and options.restart:
        raise ConfigurationError("--restart goes without --plan, which always begins at the first event")
    settings.require("database_url")
    books = Books(
        url=checked(text_of(settings.database_url)),
        app=settings.consumers_name,
        schema=settings.inbox_schema,
        outbox_schema=settings.relay_schema,
        retention=settings.inbox_retention or None,
    )
    whose = Whose(
        consumer=consumer.name,
        handlers=consumer.handlers,
        shard_key=consumer.shard_by,
        tell=consumer.tell_missing if origin == _OWN else None,
    )
    redaction = warned(settings)

    def complain(sentence: str) -> None:
        told = redaction.words("reconcile", code="RECONCILE", error=sentence).error
        print(f"consumers: {told}", file=sys.stderr)

    with closing(Progress()) as progress:
        async with reconciliation(books, whose, page=options.page, progress=progress, complain=complain) as reconciling:
            tally = await (reconciling.plan() if options.plan else reconciling.run(restart=options.restart))
    if options.json:
        print(json.dumps(_document(consumer.name, origin, tally, plan=options.plan)))
    else:
        print("\n".join(_said(tally, plan=options.plan)))
    return 1 if tally.refused else 0


def _consumer(name: str) -> Consumer:
    found = load_consumers([name])
    if len(found) > 1:
        raise ConfigurationError(f"{name!r} has {len(found)} consumers, and one is reconciled at a time; name one")
    (consumer,) = found
    if consumer.dedup is not Mode.INBOX:
        raise ConfigurationError(
            f"consumer {consumer.name!r} has dedup={consumer.dedup.value!r}, and keeps no deliveries to rebuild; only "
            "dedup='inbox' does"
        )
    consumer.handlers.check()
    return consumer


def _origin(asked: str | None, consumer: Consumer) -> str:
    if asked == _OWN and consumer.tell_missing is None:
        raise ConfigurationError(
            f"consumer {consumer.name!r} has no function of its own that tells its events; register one with "
            "@consumer.reconcile, or use --from outbox"
        )
    return asked or (_OUTBOX if consumer.tell_missing is None else _OWN)


def _page(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_A_PAGE):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_A_PAGE}")
    return int(text)


def _document(consumer: str, origin: str, tally: "Tally", *, plan: bool) -> dict[str, object]:
    return {
        "consumer": consumer,
        "from": origin,
        "plan": plan,
        "resumed": tally.resumed,
        "seen": tally.seen,
        "missing": tally.missing,
        "stored": tally.stored,
        "refused": tally.refused,
        "left_out": tally.passed,
    }


def _said(tally: "Tally", *, plan: bool) -> Iterator[str]:
    if tally.resumed:
        yield "went on from where an earlier call had ended; the counts are of both"
    missing = f"{tally.missing:,} missing in the inbox"
    yield f"{tally.seen:,} event(s) seen, {missing}, " + (
        "none stored: this was a plan" if plan else f"{tally.stored:,} stored"
    )
    if tally.refused:
        yield f"{tally.refused:,} of them cannot be stored; each is told above"
    for why, count in tally.passed.items():
        yield f"{count:,} left out: {_WHY[why]}"


_WHY = {
    "given up": "discarded, or forgotten, in the outbox",
    "too old": "their deliveries may have been cleaned away since they were handled",
    "not due": "scheduled for later; the relay publishes them then",
    "not handled": "no handler is for events of their type",
}
