"""`relay failed list | show | retry | discard`: what to do about events that could not be published."""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from relay.cli.parts import loaded, outbox_connector, routes, warned
from relay.errors import ConfigurationError
from relay.kernel import moment
from relay.kernel.progress import Progress
from relay.operate import failed
from relay.operate.status import key_shown
from relay.outbox.actions import Operator
from relay.outbox.failed import START, Action, FailedRows, Filter, Named, Row
from relay.postgres.operators import add_operator, judge_operator, named_operator
from relay.settings import Settings

REASONS = ("max_attempts", "non_retryable", "discarded")
MOST_LISTED = 10_000
_SHOWN_ERROR = 80

_Work = Callable[[argparse.Namespace, FailedRows], Awaitable[int]]
# What the hook knows by the names that it has in log lines.
_IN_LINES = {"last_error": "error", "last_error_code": "code"}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "failed",
        help="list, show, retry or discard events that failed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
What to do about events that could not be published. Retry sends them again with
all their attempts; discard keeps them and counts them no more. A key that waits
behind one of them goes on in order after a retry, and without it after a
discard. Both record who did it, and work beside running relays and other
operators.""",
        epilog="""\
examples:
  python -m relay failed list
  python -m relay failed show 4711
  python -m relay failed retry --code INTERNAL --since 2h --dry-run
  python -m relay failed discard 4711 --reason "a test order"
  python -m relay failed retry --all""",
    )
    kinds = command.add_subparsers(title="what to do", metavar="ACTION", required=True)

    listed = _kind(kinds, "list", "failed rows, in the order in which they failed", _list, "--code INTERNAL --since 2h")
    _add_filter(listed, "--reason")
    listed.add_argument(
        "--limit", type=int, default=50, metavar="N", help=f"at most so many, up to {MOST_LISTED:,}. 50"
    )
    listed.add_argument("--after", metavar="CURSOR", help="go on after a page, with what its end says")
    listed.add_argument("--json", action="store_true", help="a JSON document with rows and the cursor, next")

    shown = _kind(kinds, "show", "all that is known of a row, with its payload", _show, "4711")
    shown.add_argument("names", nargs="+", metavar="ID", help="the id of a row, or an event_id")
    shown.add_argument("--json", action="store_true", help="one JSON object a line")

    for action, does, example in (
        (Action.RETRY, "publish rows again", "--code INTERNAL --since 2h --dry-run"),
        (Action.DISCARD, "give rows up, and keep them", '4711 --reason "a test order"'),
    ):
        kind = _kind(kinds, action.value, does, _acting(action), example)
        kind.add_argument("names", nargs="*", metavar="ID", help="ids of rows, or event_ids")
        _add_filter(kind)
        kind.add_argument("--all", action="store_true", help="every failed row that is not discarded")
        needed = action is Action.DISCARD
        kind.set_defaults(reason_needed=needed)
        add_operator(kind, ". Needed, except for a dry run" if needed else "")
        kind.add_argument("--dry-run", action="store_true", help="say how many rows it would be, and change none")
        kind.add_argument("--json", action="store_true", help="the counts as JSON")


def _kind(kinds: Any, name: str, does: str, work: _Work, example: str) -> argparse.ArgumentParser:
    kind: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=does,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"example:\n  python -m relay failed {name} {example}",
    )
    kind.allow_abbrev = False
    kind.set_defaults(command=lambda options: asyncio.run(_run(options, loaded(), work)))
    return kind


def _add_filter(kind: argparse.ArgumentParser, *more: str) -> None:
    group = kind.add_argument_group("which rows, all of these together")
    group.add_argument("--type", metavar="EVENT_TYPE")
    group.add_argument("--topic", metavar="TOPIC", help="where they go, by name or by route")
    group.add_argument("--aggregate-type", metavar="TYPE")
    group.add_argument("--aggregate-id", metavar="ID")
    group.add_argument("--ordering-key", metavar="KEY")
    group.add_argument(
        "--failure-reason",
        *more,
        choices=REASONS,
        metavar="WHY",
        help=f"{', '.join(REASONS[:-1])} or {REASONS[-1]}; discarded ones are meant only by this",
    )
    group.add_argument("--code", metavar="CODE", help="of their last error")
    group.add_argument("--since", type=_moment, metavar="TIME", help="failed since then: 2h, or 2024-01-31T12:00:00Z")
    group.add_argument("--until", type=_moment, metavar="TIME", help="failed before then, written like --since")


async def _run(options: argparse.Namespace, settings: Settings, work: _Work) -> int:
    _judge(options)
    async with await outbox_connector(settings)() as connection:
        options.redaction = warned(settings)
        return await work(options, FailedRows(connection, settings.relay_schema, routes(settings).as_parameters))


def _judge(options: argparse.Namespace) -> None:
    """Refuse what cannot be meant, before the database is asked."""
    if "why" not in options:
        if "limit" in options and not 1 <= options.limit <= MOST_LISTED:
            raise ConfigurationError(f"--limit is {options.limit}; it is from 1 to {MOST_LISTED:,}")
        return
    filtered = any(value is not None for value in _filter_options(options).values())
    if options.names and (filtered or options.all):
        raise ConfigurationError("name rows, or choose them by filter or --all; not both")
    if not (options.names or filtered or options.all):
        raise ConfigurationError("no row is chosen: name ids, a filter such as --code INTERNAL, or --all")
    if options.why is None and options.reason_needed and not options.dry_run:
        raise ConfigurationError("--reason is missing: say why you do it, it is recorded; only --dry-run needs none")
    if options.why in REASONS:
        raise ConfigurationError(
            f"--reason says why you do it; to choose rows that are {options.why} write --failure-reason {options.why}"
        )
    judge_operator(options)


async def _list(options: argparse.Namespace, rows: FailedRows) -> int:
    after = failed.cursor_read(options.after) if options.after else START
    found = await rows.page(await _filter(options, rows), options.limit + 1, after)
    page, more = found[: options.limit], len(found) > options.limit
    cursor = failed.cursor_written(page[-1]) if more else None
    page = [Row(**options.redaction.fields("failed_row", row._asdict(), _IN_LINES)) for row in page]
    if options.json:
        print(json.dumps({"rows": [failed.with_times(row._asdict()) for row in page], "next": cursor}))
        return 0
    for row in page:
        print(_line(row))
    if cursor:
        print(f"more: --after {cursor}", file=sys.stderr)
    elif not page:
        narrowed = options.after or any(value is not None for value in _filter_options(options).values())
        print("no failed row matches" if narrowed else "no row has failed", file=sys.stderr)
    return 0


async def _show(options: argparse.Namespace, rows: FailedRows) -> int:
    for row in await failed.named(rows, failed.names_of(options.names)):
        known = options.redaction.fields("failed_row", await failed.shown(rows, row), _IN_LINES)
        known["history"] = [options.redaction.fields("failed_row", entry, _IN_LINES) for entry in known["history"]]
        if options.json:
            print(json.dumps({**known, "payload": _read(known["payload"])}))
            continue
        history = known.pop("history")
        for name, value in known.items():
            print(f"{name:16} {value if value is not None else '-'}")
        for entry in history:
            print(f"{'history':16} {_entry(entry)}")
        print()
    return 0


def _read(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload  # what the hook made of it


def _acting(action: Action) -> _Work:
    async def work(options: argparse.Namespace, rows: FailedRows) -> int:
        wanted: Filter | Named = failed.names_of(options.names) if options.names else await _filter(options, rows)
        with closing(Progress()) as progress:
            if options.dry_run:
                done = await failed.choose(rows, action, wanted, progress)
            else:
                operator = Operator(options.by or await named_operator(rows.start), options.why)
                done = await failed.act(rows, action, wanted, operator, progress)
        if options.json:
            print(json.dumps({"action": action.value, "dry_run": options.dry_run, **asdict(done)}))
            return 0
        print("\n".join(_said(action, done, dry_run=options.dry_run)))
        return 0

    return work


def _said(action: Action, done: failed.Done, *, dry_run: bool) -> list[str]:
    verb = {Action.RETRY: "retried", Action.DISCARD: "discarded"}[action]
    count = done.chosen if dry_run else done.acted
    said = [f"{count:,} row(s) {'would be ' if dry_run else ''}{verb}"]
    if done.skipped:
        would = "would be " if dry_run else ""
        said.append(f"{done.skipped:,} {would}skipped: not failed, changed meanwhile, or discarded already")
    said += _said_of_keys(action, done, dry_run=dry_run)
    if done.non_retryable and action is Action.RETRY:
        said.append(
            f"{done.non_retryable:,} of them are non_retryable and {'would' if dry_run else 'will'} fail again unless "
            "they were changed: see docs/operate.md"
        )
    if done.discarded and action is Action.RETRY:
        said.append(
            f"{done.discarded:,} of them had been discarded and may fail again unless they were changed; one with an "
            "ordering key would then hold up its key, though later events of it went out: see docs/operate.md"
        )
    return said


def _said_of_keys(action: Action, done: failed.Done, *, dry_run: bool) -> list[str]:
    passed_over, said = done.ordered - done.blocking, []
    if done.blocking:
        how = {Action.RETRY: "with them, in order", Action.DISCARD: "without them"}[action]
        said.append(
            f"{done.blocking:,} of them hold up their key, which would go on {how}"
            if dry_run
            else f"{done.blocking:,} of them held up their key, which goes on {how}"
        )
    if passed_over and action is Action.RETRY:
        said.append(
            f"{passed_over:,} of them have an ordering key that went on without them: if later events of the key went "
            f"out, they {'would go' if dry_run else 'go'} out of order"
        )
    return said


def _filter_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "type": options.type,
        "topic": options.topic,
        "aggregate_type": options.aggregate_type,
        "aggregate_id": options.aggregate_id,
        "ordering_key": options.ordering_key,
        "reason": options.failure_reason,
        "code": options.code,
        "since": options.since,
        "until": options.until,
    }


async def _filter(options: argparse.Namespace, rows: FailedRows) -> Filter:
    values = _filter_options(options)
    if isinstance(values["since"], timedelta) or isinstance(values["until"], timedelta):
        now, _, _ = await rows.start()
        values |= {name: moment.before(now, values[name]) for name in ("since", "until")}
    return Filter(**values)


def _line(row: Row) -> str:
    failed_at = failed.with_times({"failed_at": row.failed_at})["failed_at"]
    error = (row.last_error or "").partition("\n")[0]
    error = error if len(error) <= _SHOWN_ERROR else f"{error[:_SHOWN_ERROR]}…"
    key = (
        f"key {key_shown(row.ordering_key)}{' waits behind it' if row.blocks_key else ''}  " if row.ordering_key else ""
    )
    return (
        f"{row.id}  {failed_at}  {row.failure_reason}  {row.last_error_code or '-'}  attempts={row.attempt_count}  "
        f"{row.event_type}  {row.aggregate_type}/{row.aggregate_id}  {row.topic}  {row.event_id}  {key}{error}"
    )


def _entry(entry: dict[str, Any]) -> str:
    attempts = f"after {entry['attempt_count']} attempt(s)"
    if entry["failed_at"]:
        code = entry["last_error_code"] or "no code"
        before = f"it had failed at {entry['failed_at']} ({entry['failure_reason']}, {code}), {attempts}"
    elif entry["published_at"]:
        before = f"it had been published at {entry['published_at']}"
    else:
        before = f"it was pending, {attempts}, and was never published"
    return (
        f"{entry['acted_at']} {entry['action']} by {entry['acted_by']} (role {entry['acted_as']}): "
        f"{entry['why'] or 'no reason given'}; {before}"
    )


def _moment(text: str) -> datetime | timedelta:
    try:
        return moment.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
