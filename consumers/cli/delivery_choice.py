"""The options that choose deliveries, and the inbox that a command works on."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.inbox.operate.choice import Choice, State, names_of
from consumers.settings import Settings
from relay.kernel import moment
from relay.patterns import pattern_fault
from relay.setting_base import text_of

if TYPE_CHECKING:
    from consumers.inbox.operate.deliveries import Deliveries

MOST_LISTED = 10_000
_NO_NAMES: tuple[str, ...] = ()


def add_filter(command: argparse.ArgumentParser, *, states: bool = True, events: bool = True) -> None:
    """Add what narrows a choice down."""
    group = command.add_argument_group("which deliveries, all of these together")
    group.add_argument("--consumer", metavar="NAME", help="whose")
    if states:
        group.add_argument(
            "--state",
            action="append",
            type=_state,
            metavar="STATE",
            help=f"{', '.join(state.value for state in State)}; repeatable",
        )
    group.add_argument(
        "--type", action="append", type=_pattern, metavar="PATTERN", help="order.paid, or order.*; repeatable"
    )
    group.add_argument("--key", metavar="KEY", help="their ordering key")
    if events:
        group.add_argument("--event-id", action="append", type=_event_id, metavar="ID", help="repeatable")
    group.add_argument("--code", action="append", metavar="CODE", help="of their last error; repeatable")
    group.add_argument("--error", metavar="TEXT", help="a part of their last error, in upper or lower case")
    group.add_argument("--recipient", metavar="WHO", help="of an event with several")
    group.add_argument(
        "--since", type=_moment, metavar="TIME", help="ended or, if not ended, came since: 2h, or 2024-01-31T12:00:00Z"
    )
    group.add_argument("--until", type=_moment, metavar="TIME", help="ended or came before then, written like --since")


def add_page(command: argparse.ArgumentParser) -> None:
    """Add what cuts a list into pages."""
    command.add_argument("--oldest", action="store_true", help="the oldest first. The newest")
    command.add_argument(
        "--limit", type=_count, default=50, metavar="N", help=f"at most so many, up to {MOST_LISTED:,}. 50"
    )
    command.add_argument("--after", type=_id, metavar="ID", help="go on after a page, with what its end says")
    command.add_argument("--json", action="store_true", help="one JSON object a line")


def narrows(options: argparse.Namespace) -> bool:
    """Whether anything was given that chooses."""
    given = vars(options)
    names = ("consumer", "state", "type", "key", "event_id", "code", "error", "recipient", "since", "until")
    return any(given.get(name) is not None for name in names)


async def choice_of(
    options: argparse.Namespace, deliveries: "Deliveries", *, otherwise: frozenset[State] = frozenset()
) -> Choice:
    """What the options choose; where they name no state, it is one of `otherwise`."""
    given: dict[str, Any] = vars(options)
    ids, event_ids = names_of(given.get("names") or _NO_NAMES)
    times = {"since": options.since, "until": options.until}
    if any(isinstance(each, timedelta) for each in times.values()):
        now = (await deliveries.start()).now
        times = {name: moment.before(now, each) for name, each in times.items()}
    states = given.get("state") or (() if ids or event_ids else otherwise)
    return Choice(
        ids=ids,
        event_ids=[*event_ids, *(given.get("event_id") or ())],
        consumer=options.consumer,
        states=frozenset(states),
        event_types=options.type or (),
        ordering_key=options.key,
        recipient=options.recipient,
        codes=options.code or (),
        error=options.error,
        **times,
    )


@asynccontextmanager
async def inbox(settings: Settings) -> AsyncIterator["Deliveries"]:
    """The deliveries of the inbox that the settings name."""
    settings.require("database_url")
    url = checked(text_of(settings.database_url))
    from consumers.inbox.operate.deliveries import opened  # noqa: PLC0415 -- loads libpq, which other commands do without

    async with opened(url, settings.inbox_schema, settings.consumers_name) as deliveries:
        yield deliveries


def judge_page(options: argparse.Namespace) -> None:
    """Refuse a page that is none."""
    if options.limit > MOST_LISTED:
        raise ConfigurationError(f"--limit is {options.limit:,}; it is from 1 to {MOST_LISTED:,}")


def count_or_none(text: str) -> int:
    """A number of deliveries, 0 among them."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of deliveries, 0 or more")
    return int(text)


def _count(text: str) -> int:
    found = count_or_none(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return found


def _id(text: str) -> int:
    ids, _ = names_of([text]) if text.isdecimal() else ([], None)
    if not ids:
        raise argparse.ArgumentTypeError(f"{text!r} is no id; copy it from the end of the page before")
    return ids[0]


def _event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no event_id, which is a UUID") from None


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        known = ", ".join(state.value for state in State)
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is no state; there are {known}") from None


def _pattern(text: str) -> str:
    if fault := pattern_fault(text, "leave --type out"):
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: {fault}")
    return text


def _moment(text: str) -> datetime | timedelta:
    try:
        return moment.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
