"""Filters: which messages a subscription is for, by their attributes.

    attributes:key                        the message has the attribute
    attributes.key = "value"              ... with this value
    attributes.key != "value"             ... with another one, or not at all
    hasPrefix(attributes.key, "prefix")   ... with a value that begins so
    NOT x, -x                             binds closest
    x AND y, x OR y                       both in one expression only with parentheses

A key of anything but letters, digits, `-` and `_` is quoted, as every value is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from relay.dev.pubsub.status import InvalidArgumentError

MAX_FILTER_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Has:
    """The message has the attribute."""

    key: str


@dataclass(frozen=True, slots=True)
class Equals:
    """The message has the attribute, with this value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class HasPrefix:
    """The message has the attribute, with a value that begins so."""

    key: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    """The message does not pass the filter."""

    term: "Filter"


@dataclass(frozen=True, slots=True)
class And:
    """The message passes all of these filters."""

    terms: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """The message passes one of these filters."""

    terms: "tuple[Filter, ...]"


Filter: TypeAlias = Has | Equals | HasPrefix | Not | And | Or


def passes(wanted: Filter, attributes: Mapping[str, str]) -> bool:
    """Whether a message with these attributes is one that the filter is for."""
    match wanted:
        case Has(key):
            return key in attributes
        case Equals(key, value):
            return attributes.get(key) == value
        case HasPrefix(key, prefix):
            return key in attributes and attributes[key].startswith(prefix)
        case Not(term):
            return not passes(term, attributes)
        case And(terms):
            return all(passes(term, attributes) for term in terms)
        case Or(terms):
            return any(passes(term, attributes) for term in terms)
        case _:
            assert_never(wanted)


def parse(text: str) -> Filter:
    """Read a filter, or refuse it with the place where it stops to make sense."""
    if (size := len(text.encode())) > MAX_FILTER_BYTES:
        raise InvalidArgumentError(f"the filter has {size} bytes; at most {MAX_FILTER_BYTES} are allowed")
    return _Parser(text).whole()


@dataclass(frozen=True, slots=True)
class _Token:
    text: str  # empty at the end
    start: int


_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_TOKEN = re.compile(_WORD.pattern + r'|"(?:[^"\\]|\\.)*"|!=|[-.:=(),]', re.DOTALL)
_BLANK = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "?": "?", "`": "`",
}  # fmt: skip
_LAST_CODE_POINT: Final = 0x10FFFF


class _Parser:
    """Reads a filter from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._next = self._token()

    def whole(self) -> Filter:
        found = self._expression()
        if self._next.text:
            raise self._refusal("AND, OR or the end")
        return found

    def _expression(self) -> Filter:
        """Read terms that are joined by AND, or by OR."""
        terms = [self._term()]
        joint = self._next.text
        if joint not in {"AND", "OR"}:
            return terms[0]
        while self._next.text in {"AND", "OR"}:
            if self._next.text != joint:
                raise self._refusal(f"{joint}, as AND and OR are not mixed without parentheses")
            self._take()
            terms.append(self._term())
        return And(tuple(terms)) if joint == "AND" else Or(tuple(terms))

    def _term(self) -> Filter:
        if self._next.text in {"NOT", "-"}:
            self._take()
            return Not(self._simple())
        return self._simple()

    def _simple(self) -> Filter:
        match self._next.text:
            case "(":
                self._take()
                found = self._expression()
                self._expect(")")
                return found
            case "hasPrefix":
                return self._prefix()
            case "attributes":
                return self._comparison()
            case _:
                raise self._refusal("attributes, hasPrefix, NOT or a parenthesis")

    def _prefix(self) -> Filter:
        self._take()
        self._expect("(")
        self._expect("attributes")
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._value()
        self._expect(")")
        return HasPrefix(key, prefix)

    def _comparison(self) -> Filter:
        self._take()
        if self._next.text == ":":
            self._take()
            return Has(self._key())
        self._expect(".", "'.' or ':'")
        key = self._key()
        match self._next.text:
            case "=":
                self._take()
                return Equals(key, self._value())
            case "!=":
                self._take()
                return Not(Equals(key, self._value()))
            case _:
                raise self._refusal("= or !=")

    def _key(self) -> str:
        if self._next.text.startswith('"'):
            return self._value()
        if not _WORD.fullmatch(self._next.text):
            raise self._refusal("a key, quoted if it has anything but letters, digits, - and _")
        return self._take().text

    def _value(self) -> str:
        if not self._next.text.startswith('"'):
            raise self._refusal("a string in double quotes")
        token = self._take()
        return _ESCAPE.sub(lambda escape: self._unescaped(escape, token), token.text[1:-1])

    def _unescaped(self, escape: re.Match[str], token: _Token) -> str:
        short, long, hexadecimal, octal, character = escape.groups()
        if character is not None:
            if character not in _ESCAPED:
                raise self._refusal(
                    "an escape such as \\n, \\x41 or \\u0041", _Token(escape.group(), self._inside(escape, token))
                )
            return _ESCAPED[character]
        code = int(octal, 8) if octal else int(short or long or hexadecimal, 16)
        if code > _LAST_CODE_POINT:
            raise self._refusal("a character of Unicode", _Token(escape.group(), self._inside(escape, token)))
        return chr(code)

    def _inside(self, escape: re.Match[str], token: _Token) -> int:
        return token.start + 1 + escape.start()  # behind the quote

    def _expect(self, text: str, wanted: str = "") -> None:
        if self._next.text != text:
            raise self._refusal(wanted or repr(text))
        self._take()

    def _take(self) -> _Token:
        taken, self._next = self._next, self._token()
        return taken

    def _token(self) -> _Token:
        blank = _BLANK.match(self._text, self._position)
        start = blank.end() if blank else self._position
        if start == len(self._text):
            return _Token("", start)
        found = _TOKEN.match(self._text, start)
        if found is None:
            raise self._refusal("something else", _Token(self._text[start], start))
        self._position = found.end()
        return _Token(found.group(), start)

    def _refusal(self, wanted: str, token: _Token | None = None) -> InvalidArgumentError:
        at = token or self._next
        before = self._text[: at.start]
        line = before.count("\n") + 1
        column = at.start - (before.rfind("\n") + 1) + 1
        found = f"token {at.text!r}" if at.text else "the end of the filter"
        return InvalidArgumentError(f"syntax error at line {line}, column {column}, {found}: expected {wanted}")
