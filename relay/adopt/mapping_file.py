"""A mapping in a file, to be kept beside the code whose events it is about."""

import tomllib
from collections.abc import Mapping as Pairs
from typing import Any

from relay.adopt.mapping import Delete, Mapping, mapping
from relay.errors import ConfigurationError

_KEYS = ("table", "id", "pending", "mark", "map")


def mapping_of(text: str, name: str) -> Mapping:
    """Read a mapping in TOML; `name` is what errors call it. Raises ConfigurationError where it is none."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name} is not TOML: {error}") from error
    unknown, missing = [key for key in given if key not in _KEYS], [key for key in _KEYS if key not in given]
    if unknown or missing:
        wrong = f"has the unknown key {unknown[0][:64]!r}" if unknown else f"lacks {', '.join(missing)}"
        raise ConfigurationError(f"{name} {wrong}; its keys are {', '.join(_KEYS)}")
    ids = given["id"] if isinstance(given["id"], list) else [given["id"]]
    return mapping(
        _text(name, "table", given["table"]),
        [_text(name, "id", each) for each in ids],
        _text(name, "pending", given["pending"]),
        [given["mark"]] if isinstance(given["mark"], str) else _pairs(name, "mark", given["mark"]),
        _pairs(name, "map", given["map"]),
    )


def _pairs(name: str, key: str, value: Any) -> list[str]:
    """As they are written on the command line."""
    if not isinstance(value, Pairs) or not value:
        example = f', or "{Delete.__name__.lower()}"' if key == "mark" else ""
        raise ConfigurationError(f"{name}: {key} is no table of names and expressions{example}")
    for column in value:
        if "=" in column:
            raise ConfigurationError(f"{name}: {key} has the name {column[:64]!r}, and none has an = in it")
    return [f"{column}={_text(name, f'{key}.{column}', expression)}" for column, expression in value.items()]


def _text(name: str, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}: {key[:64]} is no text; put it in quotes")
    return value
