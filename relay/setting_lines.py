"""Every setting of a program as a line: for its `config` command, and for the page of its documentation."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from pydantic import SecretStr

from relay.kernel.duration import parse, written
from relay.setting_base import SettingBase

MASK = "***"
# Set by the platform, not by its user.
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_PLATFORM = {"PORT", "DYNO", _PROJECT}


@dataclass(frozen=True, slots=True)
class Line:
    """One setting as it is."""

    name: str
    value: str
    source: str  # environment, .env, platform, default, or the name of another setting
    default: str
    consequence: str
    meaning: str = ""  # of a list, what each of its parts says


def table(settings: type[SettingBase]) -> str:
    """The reference of all settings, as Markdown."""
    rows = ["| name | type | default | what it does |", "|---|---|---|---|"]
    for name, field in settings.model_fields.items():
        default = _text(field.default)
        rows.append(
            f"| `{name.upper()}` | {_kind(field.default)} | {f'`{default}`' if default else ''} "
            f"| {_said(settings, name)} |"
        )
    return "\n".join(rows)


def lines(
    settings: type[SettingBase],
    masks: Mapping[str, Callable[[str], str]],
    meanings: Mapping[str, Callable[[str], str]] | None = None,
) -> Iterator[Line]:
    """Each setting with its value and where that comes from.

    A secret is shown as `masks` has it, by the name of its field, or not at all.
    """
    environment, file = settings.sources()
    for field_name, field in settings.model_fields.items():
        name, default = field_name.upper(), _text(field.default)
        if given := environment.get(name):
            source = "platform" if name in _PLATFORM else "environment"
        elif given := file.get(name):
            source = ".env"
        elif name == "PUBSUB_PROJECT_ID" and (project := environment.get(_PROJECT) or file.get(_PROJECT)):
            given, source = project, _PROJECT
        else:
            given, source = default, "default"
        shown = _shown(field.default, given, masks.get(field_name, _mask))
        meaning = meanings.get(field_name) if meanings else None
        yield Line(name, shown, source, default, _said(settings, field_name), meaning=meaning(given) if meaning else "")


def show(program: str, shown: Sequence[Line], warnings: Sequence[str], faults: Sequence[str], *, as_json: bool) -> int:
    """Print what `config` prints, and answer with its exit code."""
    if as_json:
        print(json.dumps({"settings": [asdict(line) for line in shown], "warnings": warnings, "faults": faults}))
        return 2 if faults else 0
    for line in shown:
        default = f", default {line.default}" if line.default and line.source != "default" else ""
        print(f"{line.name}={line.value}\n    {line.source}{default}. {line.consequence}")
        if line.meaning:
            print(f"    it says: {line.meaning}")
    for warning in warnings:
        print(f"{program}: warning: {warning}", file=sys.stderr)
    for fault in faults:
        print(f"{program}: {fault}", file=sys.stderr)
    return 2 if faults else 0


def _said(settings: type[SettingBase], name: str) -> str:
    """The setting's text without the default at its end."""
    field = settings.model_fields[name]
    default = _text(field.default)
    return (field.description or "").removesuffix(f" {default}" if default else "")


def _shown(default: Any, given: str, mask: Callable[[str], str]) -> str:
    match default:
        case SecretStr() if given:
            return mask(given)
        case timedelta():
            with suppress(ValueError):  # what is no duration is a fault, and shown as it is
                return written(parse(given))
    return given


def _mask(_: str) -> str:
    return MASK


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
