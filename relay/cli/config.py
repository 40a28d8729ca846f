"""`relay config`: every setting, where its value comes from, and what is wrong with it."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from relay.cli.refusals import refusals
from relay.cli.runners import RUNNERS, unknown
from relay.errors import ConfigurationError
from relay.failed_head import FailedHead
from relay.kernel.duration import parse, written
from relay.settings import Settings, load, sources, strangers

MASK = "***"
# Set by the platform, not by its user.
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_PLATFORM = {"PORT", "DYNO", _PROJECT}
_URLS = {"DATABASE_URL", "RELAY_LISTEN_URL"}
# The parts of a connection string that are no secret; all others are masked.
_SHOWN = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout"}


@dataclass(frozen=True, slots=True)
class Line:
    """One setting as it is."""

    name: str
    value: str
    source: str  # environment, .env, platform, default, or the name of another setting
    default: str
    consequence: str
    meaning: str = ""  # of a list, what each of its parts says


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "config",
        help="show every setting, its source, and what is wrong",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Prints each setting with its value, where that comes from, its default and what
it does. Secrets are masked. Exits 2 when something is wrong, and says what; a
setting that is only missing is named and exits 0. Nothing is connected to.""",
        epilog="examples:\n  python -m relay config\n  python -m relay config --json",
    )
    command.add_argument("--json", action="store_true", help="print settings, warnings and faults as JSON")
    command.set_defaults(command=_config)


def table() -> str:
    """The reference of all settings, as Markdown."""
    rows = ["| name | type | default | what it does |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = _text(field.default)
        rows.append(
            f"| `{name.upper()}` | {_kind(field.default)} | {f'`{default}`' if default else ''} | {_said(name)} |"
        )
    return "\n".join(rows)


def _config(options: argparse.Namespace) -> int:
    faults, warnings = _judged()
    lines = list(_lines())
    if options.json:
        print(json.dumps({"settings": [asdict(line) for line in lines], "warnings": warnings, "faults": faults}))
    else:
        for line in lines:
            default = f", default {line.default}" if line.default and line.source != "default" else ""
            print(f"{line.name}={line.value}\n    {line.source}{default}. {line.consequence}")
            if line.meaning:
                print(f"    it says: {line.meaning}")
        for warning in warnings:
            print(f"relay: warning: {warning}", file=sys.stderr)
        for fault in faults:
            print(f"relay: {fault}", file=sys.stderr)
    return 2 if faults else 0


def _judged() -> tuple[list[str], list[str]]:
    """What is wrong, and what may be."""
    warnings = strangers()
    try:
        settings = load()
    except ConfigurationError as error:
        return str(error).splitlines(), warnings
    warnings += unknown(settings, RUNNERS)
    for name in ("database_url", "pubsub_project_id"):
        try:
            settings.require(name)
        except ConfigurationError as error:
            warnings.append(str(error))
    return refusals(settings), warnings


def _lines() -> Iterator[Line]:
    environment, file = sources()
    for field_name, field in Settings.model_fields.items():
        name, default = field_name.upper(), _text(field.default)
        if given := environment.get(name):
            source = "platform" if name in _PLATFORM else "environment"
        elif given := file.get(name):
            source = ".env"
        elif name == "PUBSUB_PROJECT_ID" and (project := environment.get(_PROJECT) or file.get(_PROJECT)):
            given, source = project, _PROJECT
        else:
            given, source = default, "default"
        meaning = _meaning(given) if field_name == "relay_on_failed_head" else ""
        yield Line(name, _shown(name, field.default, given), source, default, _said(field_name), meaning)


def _meaning(given: str) -> str:
    with suppress(ValueError):  # what cannot be read is a fault, and means nothing
        return FailedHead.parse(given).meaning
    return ""


def _said(name: str) -> str:
    """The setting's text without the default at its end."""
    field = Settings.model_fields[name]
    default = _text(field.default)
    return (field.description or "").removesuffix(f" {default}" if default else "")


def _shown(name: str, default: Any, given: str) -> str:
    match default:
        case SecretStr() if given:
            return _masked_url(given) if name in _URLS else MASK
        case timedelta():
            with suppress(ValueError):  # what is no duration is a fault, and shown as it is
                return written(parse(given))
    return given


def _masked_url(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return MASK
    # A password with a special character in it is cut there, and its rest is taken for a host, a port or a name.
    cut = "@" in f"{parts.get('host')}{parts.get('dbname')}" or not str(parts.get("port") or 0).isdecimal()
    if cut:
        return MASK
    return make_conninfo("", **{name: value if name in _SHOWN else MASK for name, value in parts.items()})


def _kind(default: Any) -> str:
    match default:
        case bool():
            return "on or off"
        case timedelta():
            return "duration"
        case int():
            return "number"
        case SecretStr():
            return "secret"
        case _:
            return "text"


def _text(default: Any) -> str:
    match default:
        case bool():
            return "on" if default else "off"
        case timedelta():
            return written(default)
        case SecretStr():
            return default.get_secret_value()
        case _:
            return str(default)
