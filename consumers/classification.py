"""Whether a failure may pass: what an error that came out of a handler means for its event.

The first of these that has an answer decides:

1. the error itself, where it has an attribute `retryable` that is True or False (TransientError and FatalError have);
2. its code, where `retry_codes` or `fatal_codes` has it;
3. its class, where `retry_on` or `fatal` has it or a base class of it; of several, the nearest to the error's own;
4. otherwise: where the consumer has said what is retried, by `retry_on` or `retry_codes`, everything else is fatal;
   where it has not, everything is transient.

    Classification()                                              every error is transient
    Classification(fatal=(ValueError,))                           all but these
    Classification(retry_codes={"RATE_LIMITED", 503})             these alone
    Classification(fatal=(OSError,), retry_on=(ConnectionError, Exception))    all but OSError, with an exception to it

A group of errors is as bad as the worst in it: fatal where one of them is.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TypeVar

from consumers.errors import ConfigurationError, ErrorCode, TransientError
from relay.kernel import failure
from relay.kernel.code_duration import shown

# What is longer, or looks otherwise, is no name for a reason but data.
_CODE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:/-]{0,63}")
# Postgres' drivers, then SQLAlchemy around them (whose own `code` is a page of its manual), then HTTP's clients.
_WHERE_CODES_ARE = (
    "sqlstate",
    "orig.sqlstate",
    "orig.pgcode",
    "code",
    "error_code",
    "status_code",
    "response.status_code",
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Transient:
    """It may work another time; `delay` is how long the handler asked to wait, where it did."""

    code: str
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Fatal:
    """It will never work."""

    code: str


Verdict = Transient | Fatal


def code_of(error: BaseException) -> str:
    """A short name for the reason: its code, or else its class. At most 64 plain characters, never data.

    A code is an attribute `code` or `error_code` (a text, a number or a member of an enum), an SQLSTATE, the status of
    an HTTP response, or gRPC's. Never raises, whatever the error does when it is asked.
    """
    for path in _WHERE_CODES_ARE:
        if code := _plain(_attribute(error, path)):
            return code
    return _plain(failure.code(error)) or _plain(type(error).__name__[:64]) or "Exception"


@dataclass(frozen=True, init=False)
class Classification:
    """Which errors of a handler are transient, and which are fatal; see the module for how they are looked up."""

    retry_on: tuple[type[Exception], ...] | None
    fatal: tuple[type[Exception], ...]
    retry_codes: frozenset[str] | None
    fatal_codes: frozenset[str]

    def __init__(
        self,
        *,
        retry_on: Collection[type[Exception]] | None = None,
        fatal: Collection[type[Exception]] = (),
        retry_codes: Collection[ErrorCode] | None = None,
        fatal_codes: Collection[ErrorCode] = (),
    ) -> None:
        values = {
            "retry_on": None if retry_on is None else _classes("retry_on", retry_on, retried=True),
            "fatal": _classes("fatal", fatal, retried=False),
            "retry_codes": None if retry_codes is None else _codes("retry_codes", retry_codes),
            "fatal_codes": _codes("fatal_codes", fatal_codes),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _in_one_alone("retry_on", self.retry_on, "fatal", self.fatal)
        _in_one_alone("retry_codes", self.retry_codes, "fatal_codes", self.fatal_codes)

    def verdict(self, error: Exception) -> Verdict:
        """What the error means for its event. Never raises, whatever the error does when it is asked."""
        verdicts = [self._of_one(leaf) for leaf in _leaves(error)]
        for verdict in verdicts:
            if isinstance(verdict, Fatal):
                return verdict
        asked = [verdict.delay for verdict in verdicts if isinstance(verdict, Transient) and verdict.delay is not None]
        return Transient(verdicts[0].code, max(asked, default=None))

    def _of_one(self, error: BaseException) -> Verdict:
        code = code_of(error)
        if self._may_pass(error, code):
            asked = _attribute(error, "delay") if isinstance(error, TransientError) else None
            return Transient(code, asked if isinstance(asked, timedelta) else None)
        return Fatal(code)

    def _may_pass(self, error: BaseException, code: str) -> bool:
        own_word = _attribute(error, "retryable")
        if isinstance(own_word, bool):
            return own_word
        if code in (self.retry_codes or ()):
            return True
        if code in self.fatal_codes:
            return False
        for known in type(error).__mro__:
            if known in (self.retry_on or ()):
                return True
            if known in self.fatal:
                return False
        return self.retry_on is None and self.retry_codes is None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, and of the groups in it, however deep; of any other error, itself."""
    waiting = [error]
    while waiting:
        first = waiting.pop()
        if isinstance(first, BaseExceptionGroup):
            waiting.extend(reversed(first.exceptions))
        else:
            yield first


def _attribute(error: BaseException, path: str) -> object:
    value: object = error
    try:
        for name in path.split("."):
            value = getattr(value, name, None)
    except Exception:  # noqa: BLE001 -- an error may do anything when it is asked
        return None
    return value


def _plain(code: object) -> str | None:
    """The code as a text; None where it is none."""
    if isinstance(code, Enum):
        code = code.value if isinstance(code.value, str | int) else code.name
    if isinstance(code, bool) or not isinstance(code, str | int):
        return None
    try:
        text = str(code)
    except Exception:  # noqa: BLE001 -- as in _attribute; and a number may have too many digits
        return None
    return text if _CODE.fullmatch(text) else None


def _classes(name: str, given: object, *, retried: bool) -> tuple[type[Exception], ...]:
    return tuple(
        dict.fromkeys(_class(name, each, retried=retried) for each in _several(name, given, "(TimeoutError,)"))
    )


def _class(name: str, given: object, *, retried: bool) -> type[Exception]:
    if not (isinstance(given, type) and issubclass(given, Exception)):
        raise ConfigurationError(
            f"{name} has {shown(given)}, which is no class of exceptions; a handler fails by those"
        )
    if issubclass(given, BaseExceptionGroup):
        raise ConfigurationError(f"{name} has {given.__name__}; a group is judged by the errors in it, so name those")
    if getattr(given, "retryable", retried) is (not retried):
        raise ConfigurationError(
            f"{name} has {given.__name__}, whose own `retryable` is {not retried} and decides first; leave it out"
        )
    return given


def _codes(name: str, given: object) -> frozenset[str]:
    return frozenset(_code(name, each) for each in _several(name, given, '{"RATE_LIMITED", 503}'))


def _code(name: str, given: object) -> str:
    code = _plain(given)
    if code is None:
        raise ConfigurationError(
            f"{name} has {shown(given)}, which no error has for its code; "
            "a code has up to 64 letters, digits and _ . : / -"
        )
    return code


def _several(name: str, given: object, example: str) -> Collection[object]:
    if isinstance(given, str | type) or not isinstance(given, Collection):
        raise ConfigurationError(f"{name} is {shown(given)}; give several, like {example}")
    return given


def _in_one_alone(retried: str, some: Collection[_T] | None, fatal: str, others: Collection[_T]) -> None:
    if both := sorted(getattr(each, "__name__", str(each)) for each in set(some or ()) & set(others)):
        raise ConfigurationError(f"{', '.join(both)} stands in {retried} and in {fatal}; keep one")
