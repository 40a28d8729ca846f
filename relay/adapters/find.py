"""Finds the adapter of a connection by its type, without loading any library that the service does not use."""

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from relay.adapters.adapter import Adapter, AsyncAdapter, Library, SyncAdapter
from relay.event import Event

_SYNC = "a connection or session of psycopg, psycopg2, SQLAlchemy or Django"
_ASYNC = "an asynchronous connection or session of psycopg, asyncpg or SQLAlchemy"
# By the package that defines a type: where there is a value, its library is loaded.
_MODULES = {
    "psycopg": "psycopg",
    "psycopg_pool": "psycopg",
    "psycopg2": "psycopg2",
    "asyncpg": "asyncpg",
    "sqlalchemy": "sqlalchemy",
    "django": "django",
}


def sync_adapter(given: object) -> SyncAdapter:
    """Return the adapter of a synchronous connection; TypeError for anything else."""
    match adapter_of(given):
        case SyncAdapter() as adapter:
            return adapter
        case AsyncAdapter():
            remedy: str | None = "call emit_async"
        case None:
            remedy = remedy_of(given)
    raise refused(f"emit takes {_SYNC}", given, remedy)


def async_adapter(given: object) -> AsyncAdapter:
    """Return the adapter of an asynchronous connection; TypeError for anything else."""
    match adapter_of(given):
        case AsyncAdapter() as adapter:
            return adapter
        case SyncAdapter(awaited=way):
            remedy: str | None = way
        case None:
            remedy = remedy_of(given)
    raise refused(f"emit_async takes {_ASYNC}", given, remedy)


def adapter_of(given: object) -> Adapter | None:
    """Return the adapter of either kind of connection; None for anything else."""
    kind: type = type(given)
    # What is put around a connection to watch it names that one's class.
    claimed: type = given.__class__
    return _adapter_of(kind) or _adapter_of(claimed) or (None if remedy_of(given) else _stood_for(given))


@lru_cache(maxsize=128)
def _adapter_of(kind: type) -> Adapter | None:
    return next((adapter for library in _libraries(kind) if (adapter := library.adapter_of(kind))), None)


def _libraries(kind: type) -> Iterator[Library]:
    packages = (str(base.__module__).partition(".")[0] for base in kind.__mro__)
    modules = dict.fromkeys(_MODULES[package] for package in packages if package in _MODULES)
    for module in modules:
        library: Library = import_module(f"relay.adapters.{module}").LIBRARY
        yield library


def _stood_for(given: Any) -> Adapter | None:
    """What stands for a psycopg connection, as a pool's proxy may, has its info."""
    info = getattr(given, "info", None)
    if f"{type(info).__module__}.{type(info).__name__}" != "psycopg.ConnectionInfo":
        return None
    module = import_module("psycopg")
    awaited = iscoroutinefunction(getattr(given, "commit", None))
    return _adapter_of(module.AsyncConnection if awaited else module.Connection)


def remedy_of(given: object) -> str | None:
    """Return what to pass in place of something that is easily taken for a connection."""
    if isinstance(given, Event | list | tuple):
        return "the connection comes first, then the events"
    return next((remedy for library in _libraries(type(given)) if (remedy := library.remedy(given))), None)


def refused(takes: str, given: object, remedy: str | None) -> TypeError:
    """Say what is taken, what was given in its place, and what to do."""
    kind = type(given)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return TypeError(f"{takes}, not a value of type {name}" + (f"; {remedy}" if remedy else ""))
