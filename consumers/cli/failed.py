"""`consumers failed`: the deliveries that failed and about which nobody has decided, for people and for an alert."""

import argparse
import asyncio
from contextlib import closing

from consumers.cli import delivery_words as words
from consumers.cli.delivery_choice import add_filter, add_page, choice_of, count_or_none, inbox, judge_page
from consumers.cli.delivery_pages import print_page
from consumers.cli.parts import loaded_settings, warned
from consumers.inbox.operate.choice import State
from consumers.settings import Settings
from relay.kernel.progress import Progress

_FAILED = frozenset({State.FAILED})


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "failed",
        help="what failed for good in an inbox, and exit 1 for an alert",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Shows the deliveries that failed and were not discarded, the newest first: what
`deliveries list --state failed` shows. Discarded ones are no failures any more.
With --alert-above it prints nothing and exits 0 until there are more.""",
        epilog="""\
examples, the second for cron, which mails what is printed:
  python -m consumers failed --consumer billing --since 2h
  python -m consumers failed --alert-above 0
  python -m consumers failed --code TIMEOUT --json""",
    )
    command.allow_abbrev = False
    add_filter(command, states=False)
    add_page(command)
    command.add_argument("--alert-above", type=count_or_none, metavar="N", help="exit 1 where there are more")
    command.set_defaults(command=lambda options: asyncio.run(_failed(options, loaded_settings())))


async def _failed(options: argparse.Namespace, settings: Settings) -> int:
    judge_page(options)
    async with inbox(settings) as deliveries:
        choice = await choice_of(options, deliveries, otherwise=_FAILED)
        if options.alert_above is not None:
            with closing(Progress()) as progress:
                count = sum((await deliveries.counts(choice, progress)).values())
            if count <= options.alert_above:
                return 0
            if not options.json:
                print(
                    f"{words.many(count)} failed, more than {options.alert_above:,}; look at one with: "
                    "python -m consumers deliveries show ID"
                )
        await print_page(deliveries, choice, options, warned(settings), narrowed=True)
    return 0 if options.alert_above is None else 1
