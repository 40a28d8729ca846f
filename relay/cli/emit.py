"""`relay emit`: store events from the command line, in one transaction."""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import psycopg
from psycopg import errors as pg

from relay.cli.event_lines import STDIN, Line, chunks, event_of, events_of, json_of, opened, place, text_of
from relay.cli.parts import loaded
from relay.emit import Emitted, emit
from relay.errors import ConfigurationError, EmitError, InvalidEventError
from relay.kernel.progress import Progress
from relay.outbox.statements import statement
from relay.postgres.connect import connect
from relay.postgres.statements import search_path
from relay.settings import Settings

_FIELDS = {
    "aggregate_type": "to what kind of thing it happened",
    "aggregate_id": "to which one",
    "version": "of the event type; 1 by default",
    "occurred_at": "when, as 2024-01-31T12:00:00Z; now by default",
    "event_id": "a UUID; a time-ordered one by default",
    "dedup_key": "store it unless an event with this key is there",
    "topic": "by default that of its route, see docs/routing.md",
    "ordering_key": "first deliveries in order within the key",
    "available_at": "not before then, as 2024-01-31T12:00:00Z; not with an ordering key",
}
_OF_ONE = (*_FIELDS, "data", "attribute", "actor")
# How the write side begins, where it names an event by its place.
_PLACE = re.compile(r"(?:outbox_emit: )?event \d+\b")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "emit",
        help="store one event, or those of a file",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Stores one event, or one for each line of a file, in one transaction: all of
them or none. Prints the event_id, the sequence, and whether it was inserted; an
event whose dedup key is taken was not, and the event that took it is named.
Exits 2 when an event is refused, and names its line. What comes through a pipe
is read to its end first. A line of a file has the fields of Event:

  {"event_type": "a.b", "aggregate_type": "a", "aggregate_id": "1", "data": {}}""",
        epilog="""\
examples:
  python -m relay emit a.b --aggregate-type a --aggregate-id 1 --data '{"n": 1}'
  python -m relay emit a.b --aggregate-type a --aggregate-id 1 --data - --json
  python -m relay emit --file events.jsonl --json""",
    )
    command.add_argument("type", nargs="?", metavar="TYPE", help="the event type, such as order.paid")
    command.add_argument("--file", metavar="PATH", help="a JSON object a line, with the fields of Event; - for stdin")
    command.add_argument("--data", metavar="JSON", help="what happened; - for stdin")
    for name, words in _FIELDS.items():
        command.add_argument(f"--{name.replace('_', '-')}", metavar="TEXT", help=words)
    command.add_argument("--attribute", action="append", metavar="NAME=VALUE", help="one more attribute")
    command.add_argument("--actor", metavar="TYPE:ID", help="who caused it")
    command.add_argument("--json", action="store_true", help="print one JSON object an event, a line each")
    command.set_defaults(command=lambda options: _emit(options, loaded()))


def _emit(options: argparse.Namespace, settings: Settings) -> int:
    settings.require("database_url")
    if options.file is None:
        stored = _store(settings, [_of_call(options)])
    else:
        _refuse_options_of_one(options)
        with opened(options.file) as file:
            stored = _store(settings, events_of(file))
    for emitted in stored:
        fields = {"event_id": str(emitted.event_id), "sequence": emitted.sequence, "inserted": emitted.inserted}
        outcome = "inserted" if emitted.inserted else "exists already"
        print(json.dumps(fields) if options.json else f"{emitted.event_id} {emitted.sequence} {outcome}")
    return 0


def _store(settings: Settings, lines: Iterable[Line]) -> list[Emitted]:
    """Store the events with a statement for each bounded part of them, and one commit."""
    stored: list[Emitted] = []
    with closing(Progress()) as progress, connect(settings.require_database(), settings.relay_name) as connection:
        connection.execute(statement("emit_enter"), {"search_path": search_path(settings.relay_schema)})
        for chunk in chunks(lines):
            stored += _emit_chunk(connection, chunk)
            progress("events sent, none committed yet", len(stored))
    return stored


def _emit_chunk(connection: psycopg.Connection[Any], chunk: Sequence[Line]) -> list[Emitted]:
    try:
        return emit(connection, [line.event for line in chunk])
    except InvalidEventError as error:
        raise ConfigurationError(f"{_refusal(error, chunk)}; nothing was stored") from error
    except EmitError as error:  # there is no outbox, or none that the role may use
        raise ConfigurationError(f"{error}; nothing was stored") from error


def _refusal(error: InvalidEventError, chunk: Sequence[Line]) -> str:
    """What is wrong, with the line in the place of the event's number among those of one statement."""
    if error.position is None:
        first, last = chunk[0].number, chunk[-1].number
        return f"{place(first) if first == last else f'one of the lines {first} to {last}'}: {error}"
    line = chunk[error.position]
    if isinstance(error.__cause__, pg.UniqueViolation):
        others = "of the outbox or of an earlier line" if line.number else "of the outbox"
        return f"{place(line.number)}: the event_id {line.event.event_id} is taken by another event {others}"
    named = _PLACE.match(str(error))
    return place(line.number) + (str(error)[named.end() :] if named else f": {error}")


def _of_call(options: argparse.Namespace) -> Line:
    if options.type is None or options.data is None:
        raise ConfigurationError("emit takes an event type and --data, or --file; see: python -m relay emit --help")
    fields: dict[str, Any] = {name: value for name in _FIELDS if (value := getattr(options, name)) is not None}
    fields["event_type"] = options.type
    if options.actor is not None:
        fields["actor"] = _actor(options.actor)
    if options.attribute is not None:
        fields["attributes"] = _attributes(options.attribute)
    fields["data"] = json_of(_standard_input() if options.data == STDIN else options.data, "--data")
    return Line(0, event_of(fields, 0))


def _refuse_options_of_one(options: argparse.Namespace) -> None:
    if options.type is not None or any(getattr(options, name) is not None for name in _OF_ONE):
        raise ConfigurationError("--file has whole events; give it without an event type and the options of one event")


def _actor(text: str) -> dict[str, str]:
    kind, colon, identity = text.partition(":")
    if not colon:
        raise ConfigurationError(f"--actor {text[:64]!r} has no :; write it like --actor user:7")
    return {"type": kind, "id": identity}


def _attributes(given: Sequence[str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for attribute in given:
        name, equals, value = attribute.partition("=")
        if not equals:
            raise ConfigurationError(f"--attribute {name[:64]!r} has no =; write it like --attribute tenant=acme")
        if name in attributes:
            raise ConfigurationError(f"--attribute {name[:64]!r} is given twice; keep one")
        attributes[name] = value
    return attributes


def _standard_input() -> str:
    with opened(STDIN) as file:
        return text_of(file.read(), "--data")
