"""`relay forget`: have the outbox forget what it keeps about a person, or about anything else."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO

from relay.cli.parts import loaded, outbox_connector
from relay.errors import ConfigurationError, OperateError
from relay.kernel.progress import Progress
from relay.operate import forget
from relay.outbox.actions import Operator
from relay.outbox.forget import Aggregate, Aggregates, Order, State, Way
from relay.postgres.operators import add_operator, judge_operator, named_operator
from relay.settings import Settings

MOST_AGGREGATES = 10_000
_MOST_TYPE, _MOST_ID = 255, 1_024  # bytes, as the table has it
# A shorter id may stand in a reason by chance.
_TELLING_ID = 6
_STDIN = "-"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "forget",
        help="remove or redact what the outbox keeps about an aggregate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Removes the published and discarded rows of aggregates, such as a user's, or
with --redact keeps the rows and empties what is personal in them. Refuses, and
changes nothing, while rows of theirs are pending or have failed. The table is
read once from its first row to its last: name all aggregates in one call.
What else there is to forget is in docs/forgetting.md.""",
        epilog="""\
examples:
  python -m relay forget --aggregate user 42 --plan
  python -m relay forget --aggregate user 42 --reason "ticket 815"
  python -m relay forget --aggregate user 42 --redact --reason "ticket 815"
  python -m relay forget --aggregate user - --reason "tickets of May" < ids.txt""",
    )
    command.allow_abbrev = False
    command.add_argument(
        "--aggregate",
        nargs="+",
        action="append",
        required=True,
        metavar=("TYPE", "ID"),
        help="its aggregate_type and ids, exact in every byte; - reads ids from stdin, one a line. May be repeated",
    )
    command.add_argument("--redact", action="store_true", help="keep the rows, and empty what is personal")
    command.add_argument(
        "--pending",
        action="store_true",
        help="also rows that are pending or have failed: their events are then never published",
    )
    command.add_argument(
        "--plan", "--dry-run", dest="plan", action="store_true", help="count the rows by state, and change none"
    )
    add_operator(command, ", and nothing personal. Needed, except for --plan")
    command.add_argument("--json", action="store_true", help="the counts as JSON")
    command.set_defaults(command=lambda options: asyncio.run(_run(options, loaded())))


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    judge_operator(options)
    if options.why is None and not options.plan:
        raise ConfigurationError("--reason is missing: say why you do it, it is recorded; only --plan needs none")
    meant = _aggregates(options.aggregate, sys.stdin.buffer)
    _judge_record(options, meant)
    async with await outbox_connector(settings)() as connection:
        return await _forget(options, Aggregates(connection, settings.relay_schema, meant))


async def _forget(options: argparse.Namespace, aggregates: Aggregates) -> int:
    way = Way.REDACT if options.redact else Way.REMOVE
    started = await aggregates.start()
    with closing(Progress()) as progress:
        walk = await forget.find(aggregates, progress)
        refused = bool(walk.undecided) and not options.pending
        done = None
        if not (refused or options.plan):
            operator = Operator(options.by or await named_operator(aggregates.start), options.why)
            order = Order(way, operator, started.action_id, undecided=options.pending)
            done = await forget.forget(aggregates, walk, order, progress)
    if options.json:
        print(json.dumps(_document(way, walk, done, plan=options.plan, refused=refused)))
    else:
        print("\n".join(_said(way, walk, done, refused=refused)))
    if refused and not options.plan:
        raise OperateError(f"nothing was changed: {_in_the_way(walk)}")
    return 1 if done and done.left else 0


def _aggregates(given: list[list[str]], stdin: BinaryIO) -> list[Aggregate]:
    """Whom the command line and stdin name. Raises ConfigurationError for what no row can be about."""
    meant: dict[Aggregate, None] = {}
    asked = False
    for type_, *ids in given:
        if not ids:
            raise ConfigurationError(f"--aggregate {type_!r} names no id: write --aggregate TYPE ID, or - for stdin")
        _judge("--aggregate TYPE", type_, _MOST_TYPE)
        for number, id_ in enumerate(ids, start=1):
            if id_ != _STDIN:
                _judge(f"--aggregate, id {number}", id_, _MOST_ID)
                meant[Aggregate(type_, id_)] = None
                continue
            if asked:
                raise ConfigurationError("--aggregate asks for stdin twice; it can be read once")
            asked = True
            meant |= dict.fromkeys(Aggregate(type_, line) for line in _lines(stdin))
        if len(meant) > MOST_AGGREGATES:
            raise ConfigurationError(
                f"more than {MOST_AGGREGATES:,} aggregates are named; cut the list, and call again"
            )
    if not meant:
        raise ConfigurationError("stdin had no id; nothing was done")
    return list(meant)


def _lines(stdin: BinaryIO) -> Iterator[str]:
    """The ids, as they are: nothing is trimmed."""
    for number, line in enumerate(stdin, start=1):
        place, id_ = f"line {number} of stdin", line.removesuffix(b"\n")
        try:
            text = id_.decode()
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{place} is not UTF-8; nothing was done") from error
        if text.endswith("\r") or (number == 1 and text.startswith("\ufeff")):
            raise ConfigurationError(
                f"{place} has a carriage return or a byte order mark, which no id of that file is meant to have; "
                "write it as plain UTF-8 with the line ends of Unix. Nothing was done"
            )
        _judge(place, text, _MOST_ID)
        yield text


def _judge(what: str, text: str, most: int) -> None:
    size = len(text.encode())
    if not 1 <= size <= most or "\0" in text:
        raise ConfigurationError(
            f"{what} has {size} bytes{', a NUL among them' if chr(0) in text else ''}; "
            f"a row has 1 to {most:,} without a NUL. Nothing was done"
        )


def _judge_record(options: argparse.Namespace, meant: list[Aggregate]) -> None:
    """The record outlives what is forgotten."""
    for name, text in (("--reason", options.why), ("--by", options.by)):
        if text and any(len(each.id) >= _TELLING_ID and each.id in text for each in meant):
            raise ConfigurationError(
                f"{name} has the id of an aggregate, and is kept for good; write what tells nothing, such as a ticket's"
            )


def _document(
    way: Way, walk: forget.Walk, done: forget.Forgotten | None, *, plan: bool, refused: bool
) -> dict[str, object]:
    return {
        "action": way.value,
        "plan": plan,
        "refused": refused,
        "rows": {state.value: count for state, count in walk.counts.items()},
        "settled": walk.settled,
        "action_id": done.action_id if done else None,
        "done": {state.value: count for state, count in done.rows.items()} if done else None,
        "left": done.left if done else None,
        "stored_since": done.since if done else None,
    }


def _said(way: Way, walk: forget.Walk, done: forget.Forgotten | None, *, refused: bool) -> list[str]:
    verb = {Way.REMOVE: "removed", Way.REDACT: "redacted"}[way]
    by_state = ", ".join(f"{count:,} {state.value}" for state, count in walk.counts.items() if count)
    total = sum(walk.counts.values())
    said = [f"{total:,} row(s){f': {by_state}' if by_state else ': the outbox keeps nothing about it'}"]
    if done is None:
        said.append(f"would be refused: {_in_the_way(walk)}" if refused else f"{total:,} would be {verb}")
    else:
        said.append(f"{done.done:,} {verb}{f', recorded as {done.action_id}' if done.done else ''}")
        if never := done.rows[State.PENDING] + done.rows[State.FAILED]:
            said.append(f"{never:,} of them had not been published, and never will be")
        if done.left:
            said.append(
                f"{done.left:,} changed meanwhile and were left: gone by another hand, or pending by now; "
                "run the command again"
            )
        if done.since:
            said.append(
                f"{done.since:,} stored since the command began were left: run it again once they are published"
            )
    if not walk.settled:
        said.append(
            "a transaction from before the command is still open, and may store rows that were not seen: "
            "find it in pg_stat_activity by its xact_start, let it end, and run the command again"
        )
    return said


def _in_the_way(walk: forget.Walk) -> str:
    ways = {
        State.PENDING: "wait to be published: wait for the relay (python -m relay status)",
        State.FAILED: "failed, and nobody has decided: python -m relay failed retry ID, or discard ID",
    }
    parts = [
        f"{len(walk.ids[state]):,} row(s) {what}, {_first(walk, state)}"
        for state, what in ways.items()
        if walk.ids[state]
    ]
    return "; ".join([*parts, "or forget them as well with --pending: their events are then never published"])


def _first(walk: forget.Walk, state: State) -> str:
    return f"the first of them with id {walk.ids[state][0]}"
