"""`consumers deliveries list | count | show | retry | discard`: what is in an inbox, and what to do about it."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing
from typing import Any

from consumers.cli import delivery_words as words
from consumers.cli.delivery_choice import (
    add_filter,
    add_page,
    choice_of,
    count_or_none,
    inbox,
    judge_page,
    narrows,
)
from consumers.cli.delivery_pages import print_page
from consumers.cli.parts import loaded_settings, warned
from consumers.errors import ConfigurationError
from consumers.inbox.operate.choice import Choice, State, names_of
from consumers.inbox.operate.rows import Action, Group, Operator, Tally
from consumers.settings import Settings
from relay.kernel.progress import Progress
from relay.postgres.operators import add_operator, judge_operator, named_operator

# More than so many are acted on only when that was said.
MOST_UNASKED = 1_000
_BY = {"consumer": "consumer", "type": "event_type", "state": "state", "code": "code"}
_BY_DEFAULT = ("consumer", "type", "state")
_FAILED = frozenset({State.FAILED})

_Work = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "deliveries",
        help="list, count, show, retry or discard what is in an inbox",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
What consumers with dedup="inbox" keep in Postgres: an event for a consumer is a
delivery. Works beside running consumers and other operators, as the role that
the consumers connect as; looking changes nothing. Needs DATABASE_URL, and
neither Pub/Sub nor Redis.""",
        epilog="""\
examples:
  python -m consumers deliveries list --consumer billing --state pending
  python -m consumers deliveries count --by type,state
  python -m consumers deliveries show 4711
  python -m consumers deliveries retry --code TIMEOUT --since 2h --dry-run
  python -m consumers deliveries discard 4711 --reason "a test order\"""",
    )
    kinds = command.add_subparsers(title="what to do", metavar="ACTION", required=True)

    listed = _kind(kinds, "list", _LIST, _list, "--state pending --type 'order.*'")
    add_filter(listed)
    add_page(listed)

    counted = _kind(kinds, "count", _COUNT, _count, "--state failed --by consumer,code")
    add_filter(counted)
    counted.add_argument(
        "--by",
        type=_fields,
        default=_BY_DEFAULT,
        metavar="FIELDS",
        help=f"some of {', '.join(_BY)}, with commas. {','.join(_BY_DEFAULT)}",
    )
    counted.add_argument(
        "--alert-above",
        type=count_or_none,
        metavar="N",
        help="for cron: exit 1 where there are more, else print nothing and exit 0",
    )
    counted.add_argument("--json", action="store_true", help="one JSON object a line, for each group")

    shown = _kind(kinds, "show", _SHOW, _show, "4711 --envelope")
    shown.add_argument("names", nargs="+", metavar="ID", help="the id of a delivery, or an event_id")
    shown.add_argument("--consumer", metavar="NAME", help="of an event's deliveries the one of this consumer")
    shown.add_argument("--envelope", action="store_true", help="the event itself, too")
    shown.add_argument("--json", action="store_true", help="one JSON object a line")

    for action, does, example in (
        (Action.RETRY, _RETRY, "--code TIMEOUT --since 2h --dry-run"),
        (Action.DISCARD, _DISCARD, '4711 --reason "a test order"'),
    ):
        kind = _kind(kinds, action.value, does, _acting(action), example)
        kind.add_argument("names", nargs="*", metavar="ID", help="ids of deliveries, or event_ids")
        add_filter(kind, events=False)
        kind.add_argument(
            "--all-failed", action="store_true", help="every failed delivery; those that were discarded are none"
        )
        if action is Action.RETRY:
            kind.add_argument("--done", action="store_true", help="also what is done: it is done once more")
        needed = "Needed with --done" if action is Action.RETRY else "Needed, except for a dry run"
        add_operator(kind, f". {needed}")
        kind.add_argument("--dry-run", action="store_true", help="say how many it would be, and change none")
        kind.add_argument("--yes", action="store_true", help=f"also where it is more than {MOST_UNASKED:,}")
        kind.add_argument("--json", action="store_true", help="the counts as JSON")


_LIST = """\
show deliveries, the newest first

Each with its age, how often it was tried, when it is due, and what it failed
of last. Where there are more, the end of the page says how to go on."""

_COUNT = """\
count deliveries by consumer, type and state

The count is exact. Without --state, or with --state done, all that the inbox
keeps is read for it; other states have indexes."""

_SHOW = """\
show all that is known of deliveries, and their history

An event_id shows those of all consumers, and of all recipients."""

_RETRY = """\
handle deliveries again, at once and with all their attempts

Failed ones, unless their ids or --state say otherwise: discarded, sent, or with
--done what is done. One that is being processed is left alone, and told of."""

_DISCARD = """\
give deliveries up, and keep them

Failed ones, unless their ids or --state say otherwise: pending. They count as
failed no more; their key goes on without them. `retry` takes them back."""


def _kind(kinds: Any, name: str, does: str, work: _Work, example: str) -> argparse.ArgumentParser:
    line, _, more = does.partition("\n\n")
    kind: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=line,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{line[0].upper()}{line[1:]}.\n\n{more}",
        epilog=f"example:\n  python -m consumers deliveries {name} {example}",
    )
    kind.allow_abbrev = False
    kind.set_defaults(command=lambda options: asyncio.run(work(options, loaded_settings())))
    return kind


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    judge_page(options)
    async with inbox(settings) as deliveries:
        choice = await choice_of(options, deliveries)
        await print_page(deliveries, choice, options, warned(settings), narrowed=narrows(options))
    return 0


async def _count(options: argparse.Namespace, settings: Settings) -> int:
    redaction = warned(settings)
    async with inbox(settings) as deliveries:
        choice = await choice_of(options, deliveries)
        with closing(Progress()) as progress:
            groups = await deliveries.counts(choice, progress)
    total = sum(groups.values())
    alerted = options.alert_above is not None and total > options.alert_above
    if options.alert_above is None or alerted or options.json:
        _print_counts(groups, options, redaction)
    if alerted:
        # Where a script reads JSON, it has the exit code.
        print(
            f"{words.many(total)}, more than {options.alert_above:,}; look at them with: "
            "python -m consumers deliveries list",
            file=sys.stderr if options.json else sys.stdout,
        )
    return int(alerted)


def _print_counts(groups: dict[Group, int], options: argparse.Namespace, redaction: Any) -> None:
    counts = words.count_redacted(words.counted(groups, [_BY[name] for name in options.by]), redaction)
    _print(map(json.dumps, counts) if options.json else words.count_table(counts))
    if not counts:
        print("no delivery matches" if narrows(options) else "the inbox has no delivery", file=sys.stderr)


async def _show(options: argparse.Namespace, settings: Settings) -> int:
    from consumers.inbox.operate.acting import named  # noqa: PLC0415 -- loads libpq, which other commands do without

    ids, event_ids = names_of(options.names)
    redaction = warned(settings)
    async with inbox(settings) as deliveries:
        for row in await named(deliveries, Choice(ids=ids, event_ids=event_ids, consumer=options.consumer)):
            found = await deliveries.shown(row.id, envelope=options.envelope)
            if found is None:
                print(f"consumers: delivery {row.id} was deleted a moment ago", file=sys.stderr)
                continue
            known = words.known_redacted(*found, redaction)
            if options.json:
                print(json.dumps(words.known_as_json(known)))
            else:
                _print([*words.known_lines(known), ""])
    return 0


def _acting(action: Action) -> _Work:
    async def work(options: argparse.Namespace, settings: Settings) -> int:
        _judge(action, options)
        async with inbox(settings) as deliveries:
            tally = await _act(action, options, deliveries)
        if options.json:
            print(json.dumps(words.acted_as_json(action, tally, dry_run=options.dry_run)))
        else:
            _print(words.acted(action, tally, dry_run=options.dry_run))
        return 1 if options.names and tally.left and not options.dry_run else 0

    return work


async def _act(action: Action, options: argparse.Namespace, deliveries: Any) -> Tally:
    from consumers.inbox.operate.acting import Acting, named  # noqa: PLC0415 -- loads libpq, which other commands do without

    done = action is Action.RETRY and options.done
    choice = await choice_of(options, deliveries, otherwise=_FAILED)
    acting = Acting(deliveries, action, done=done)
    with closing(Progress()) as progress:
        if choice.named:
            await named(deliveries, choice)
        if options.dry_run:
            return await acting.choose(choice, progress)
        if not options.yes:
            would = await acting.choose(choice, progress, MOST_UNASKED)
            if would.acted > MOST_UNASKED:
                raise ConfigurationError(
                    f"these are more than {MOST_UNASKED:,} deliveries, and none was changed: look at what it would be "
                    "with --dry-run, and say --yes"
                )
        operator = Operator(options.by or await named_operator(deliveries.start), options.why)
        return await acting.act(choice, operator, progress)


def _judge(action: Action, options: argparse.Namespace) -> None:
    """Refuse what cannot be meant, before the database is asked."""
    names_of(options.names)
    alone = argparse.Namespace(**{**vars(options), "consumer": None})
    if options.names and (narrows(alone) or options.all_failed):
        raise ConfigurationError(
            "name deliveries, or choose them by a filter or --all-failed; only --consumer goes with names"
        )
    if not (options.names or narrows(options) or options.all_failed):
        raise ConfigurationError("no delivery is chosen: name ids, a filter such as --code TIMEOUT, or --all-failed")
    if options.all_failed and options.state:
        raise ConfigurationError("--all-failed and --state are about the same: give one of them")
    if action is Action.RETRY:
        _judge_retry(options)
    elif options.why is None and not options.dry_run:
        raise ConfigurationError("--reason is missing: say why you do it, it is recorded; only --dry-run needs none")
    judge_operator(options)


def _judge_retry(options: argparse.Namespace) -> None:
    if options.state and State.DONE in options.state and not options.done:
        raise ConfigurationError("what is done is retried only with --done, and --reason to say why")
    if options.done and options.why is None and not options.dry_run:
        raise ConfigurationError("--reason is missing: with --done say why it has to be done once more")
    if options.done and not (options.names or options.state):
        raise ConfigurationError("--done goes with ids, or with --state done")


def _fields(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if strange := [name for name in names if name not in _BY]:
        raise argparse.ArgumentTypeError(f"{strange[0][:100]!r} is none of {', '.join(_BY)}")
    return names


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
