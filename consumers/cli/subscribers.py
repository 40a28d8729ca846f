"""`consumers subscribers list | remove`: who receives straight from the outbox of this database."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from consumers.cli.columns import aligned
from consumers.cli.parts import loaded_settings
from consumers.inbox.address import checked
from consumers.settings import Settings
from relay.setting_base import text_of

# No more than so many of either kind are counted, of each consumer.
_MOST_COUNTED: Final = 1_000
_COLUMNS: Final = ("CONSUMER", "WAITING", "SINCE", "EVENT TYPES")


class _Subscriber(NamedTuple):
    consumer: str
    patterns: Sequence[str]
    since: str
    waiting: int

    @property
    def counted(self) -> str:
        return f"{self.waiting:,} or more" if self.waiting >= _MOST_COUNTED else f"{self.waiting:,}"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "subscribers",
        help="list and remove consumers that receive from the outbox itself",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Consumers with source='outbox' subscribe when they start, and stay subscribed:
each event that is moved from the outbox is stored for every subscriber that it
is for, whether somebody runs it or not. One that nobody runs any more gathers
rows until it is removed.""",
        epilog="""\
examples:
  python -m consumers subscribers list
  python -m consumers subscribers remove billing""",
    )
    kinds = command.add_subparsers(title="what to do", metavar="ACTION", required=True)
    listing = kinds.add_parser(
        "list",
        help="who subscribes, since when, to what, and how much waits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  python -m consumers subscribers list\n  python -m consumers subscribers list --json",
    )
    listing.add_argument("--json", action="store_true", help="print one JSON object a line")
    listing.set_defaults(command=lambda options: asyncio.run(_list(options, loaded_settings())))
    removal = kinds.add_parser(
        "remove",
        help="store nothing more for a consumer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Events that are moved from here on are not stored for this consumer, and do not
come to it later by themselves. What is in the inbox stays, and is handled if
somebody runs it. End its processes first: one that runs subscribes again.""",
        epilog="example:\n  python -m consumers subscribers remove billing",
    )
    removal.add_argument("name", metavar="NAME", help="the consumer")
    removal.set_defaults(command=lambda options: asyncio.run(_remove(options.name, loaded_settings())))


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    found = await _subscribers(settings)
    if options.json:
        for each in found:
            print(json.dumps(each._asdict()))
        return 0
    for line in _table(found):
        print(line)
    if not found:
        print("no consumer receives from this outbox", file=sys.stderr)
    return 0


async def _remove(name: str, settings: Settings) -> int:
    known = {each.consumer: each for each in await _subscribers(settings)}
    removed = await _ask(settings, "unsubscribe", {"consumer": name})
    if not removed:
        there = f"there are: {', '.join(known)}" if known else "there is none"
        print(f"consumers: {name[:100]!r} is no subscriber; {there}", file=sys.stderr)
        return 1
    print(f"{name}: removed")
    waiting = known[name].counted if name in known else "no"
    print(
        f"consumers: warning: events from here on are not stored for {name}, unless a process of it runs: that "
        f"subscribes again. {waiting} deliveries of it wait in the inbox, and stay",
        file=sys.stderr,
    )
    return 0


def _table(found: Sequence[_Subscriber]) -> Iterator[str]:
    rows = [(each.consumer, each.counted, each.since, ", ".join(each.patterns)) for each in found]
    return aligned([_COLUMNS, *rows])


async def _subscribers(settings: Settings) -> list[_Subscriber]:
    rows = await _ask(settings, "subscribers", {"most": _MOST_COUNTED})
    return [_Subscriber(name, json.loads(patterns), since, int(waiting)) for name, patterns, since, waiting in rows]


async def _ask(settings: Settings, name: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
    settings.require("database_url")
    url = checked(text_of(settings.database_url))
    from consumers.inbox.building import asked  # noqa: PLC0415 -- loads libpq, which other commands do without

    return await asked(url, settings.inbox_schema, settings.consumers_name, name, values)
