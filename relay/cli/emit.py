"""`relay emit`: store events from the command line, in one transaction."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relay.emit import Emitted, emit
from relay.errors import ConfigurationError, InvalidEventError
from relay.event import Event
from relay.outbox.connect import connect
from relay.outbox.statements import search_path, statement
from relay.settings import Settings, load

_FIELDS = (
    "aggregate_type",
    "aggregate_id",
    "dedup_key",
    "topic",
    "ordering_key",
    "available_at",
    "version",
    "event_id",
)
_OF_ONE = (*_FIELDS, "data", "attribute", "actor")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "emit",
        help="store one event, or those of a file",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Stores one event, or one for each line of a file, in one transaction: all of
them or none. Prints the event_id, the sequence, and whether it was inserted; an
event whose dedup key is taken was not. Exits 2 when an event is refused.""",
        epilog="""\
examples:
  python -m relay emit a.b --aggregate-type a --aggregate-id 1 --data '{"n": 1}'
  python -m relay emit --file events.jsonl --json""",
    )
    command.add_argument("type", nargs="?", metavar="TYPE", help="the event type, such as order.paid")
    command.add_argument("--file", metavar="PATH", help="a JSON object a line, with the fields of Event; - for stdin")
    command.add_argument("--data", metavar="JSON", help="what happened; - for stdin")
    for name in _FIELDS:
        command.add_argument(f"--{name.replace('_', '-')}", metavar="TEXT", help=f"its {name}")
    command.add_argument("--attribute", action="append", metavar="NAME=VALUE", help="one more attribute")
    command.add_argument("--actor", metavar="TYPE:ID", help="who caused it")
    command.add_argument("--json", action="store_true", help="print one JSON object an event")
    command.set_defaults(command=lambda options: _emit(options, load()))


def _emit(options: argparse.Namespace, settings: Settings) -> int:
    settings.require("database_url")
    numbered = list(_of_file(options) if options.file is not None else _of_call(options))
    for emitted in _store(settings, numbered):
        fields = {"event_id": str(emitted.event_id), "sequence": emitted.sequence, "inserted": emitted.inserted}
        print(json.dumps(fields) if options.json else " ".join(map(str, fields.values())))
    return 0


def _store(settings: Settings, numbered: list[tuple[int, Event]]) -> list[Emitted]:
    with connect(settings.require_database(), settings.relay_app) as connection:
        connection.execute(statement("audit_enter"), {"search_path": search_path(settings.relay_schema)})
        try:
            return emit(connection, [event for _, event in numbered])
        except InvalidEventError as error:
            words = re.sub(r"\bevent (\d+)", lambda found: _place(numbered[int(found[1])][0]), str(error), count=1)
            raise ConfigurationError(f"{words}; nothing was stored") from error


def _of_call(options: argparse.Namespace) -> Iterator[tuple[int, Event]]:
    if options.type is None or options.data is None:
        raise ConfigurationError("emit takes an event type and --data, or --file; see: python -m relay emit --help")
    fields: dict[str, Any] = {name: value for name in _FIELDS if (value := getattr(options, name)) is not None}
    fields["event_type"] = options.type
    fields["data"] = _json(_read("-") if options.data == "-" else options.data, "--data")
    if options.actor is not None:
        kind, _, identity = options.actor.partition(":")
        fields["actor"] = {"type": kind, "id": identity}
    for attribute in options.attribute or ():
        name, equals, value = attribute.partition("=")
        if not equals:
            raise ConfigurationError(f"--attribute {name[:64]!r} has no =; write it like --attribute tenant=acme")
        fields.setdefault("attributes", {})[name] = value
    yield 0, _event(fields, 0)


def _of_file(options: argparse.Namespace) -> Iterator[tuple[int, Event]]:
    if options.type is not None or any(getattr(options, name) is not None for name in _OF_ONE):
        raise ConfigurationError("--file has whole events; give it without an event type and the options of one event")
    for number, line in enumerate(_read(options.file).split("\n"), start=1):
        if line.strip():
            yield number, _event(_json(line, _place(number)), number)


def _event(fields: object, number: int) -> Event:
    if not isinstance(fields, dict):
        raise ConfigurationError(
            f"{_place(number)} is a JSON {type(fields).__name__}, not an object; nothing was stored"
        )
    try:
        return Event.model_validate(fields)
    except InvalidEventError as error:
        raise ConfigurationError(f"{_place(number)}: {error}; nothing was stored") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # Not the parser's whole error, which keeps the text.
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "too deep"
        raise ConfigurationError(f"{where} is not JSON: {reason}; nothing was stored") from None


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}; nothing was stored") from None


def _place(number: int) -> str:
    return f"line {number}" if number else "the event"
