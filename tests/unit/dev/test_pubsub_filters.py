"""The language of filters, as the service documents it."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.dev.pubsub.filters import And, Equals, Filter, Has, HasPrefix, Not, Or, parse, passes
from relay.dev.pubsub.status import InvalidArgumentError

ATTRIBUTES = {"domain": "com", "iana.org/language_tag": "en", "my-key_1": "x", "みな": "y", "empty": "", "AND": "z"}
# What the message above is, and what it is not.
FOR_IT = [
    "attributes:domain",
    "attributes : domain",
    'attributes.domain = "com"',
    'attributes.domain="com"',
    'attributes.domain != "org"',
    'attributes.missing != "com"',
    'attributes:"iana.org/language_tag"',
    'attributes."iana.org/language_tag" = "en"',
    "attributes:my-key_1",
    'attributes:"\\u307F\\u306A"',
    'attributes.empty = ""',
    "attributes:AND",
    'hasPrefix(attributes.domain, "co")',
    'hasPrefix(attributes.domain, "")',
    'hasPrefix(attributes."iana.org/language_tag","e")',
    "NOT attributes:missing",
    "-attributes:missing",
    'NOT hasPrefix(attributes.missing, "")',
    'attributes:domain AND attributes.domain = "com" AND -attributes:missing',
    "attributes:missing OR attributes:gone OR attributes:domain",
    "(attributes:missing OR attributes:domain) AND NOT (attributes:missing)",
    "attributes:domain\n  AND NOT attributes:missing",
    "((attributes:domain))",
    "NOT attributes:missing AND attributes:domain",
]
NOT_FOR_IT = [
    "attributes:missing",
    "attributes:Domain",
    'attributes.domain = "COM"',
    'attributes.domain != "com"',
    'attributes.missing = ""',
    'hasPrefix(attributes.domain, "com.")',
    'hasPrefix(attributes.missing, "")',
    "-attributes:domain",
    "attributes:domain AND attributes:missing",
    "NOT attributes:domain OR attributes:missing",
    "NOT (attributes:domain OR attributes:missing)",
]


@pytest.mark.parametrize("text", FOR_IT)
def test_a_filter_is_for_a_message(text: str) -> None:
    """By its attributes alone."""
    assert passes(parse(text), ATTRIBUTES)


@pytest.mark.parametrize("text", NOT_FOR_IT)
def test_a_filter_is_not_for_a_message(text: str) -> None:
    """Keys and values are compared as they are, and what is not there has no value."""
    assert not passes(parse(text), ATTRIBUTES)


WRONG = {
    "": "line 1, column 1, the end of the filter: expected attributes",
    "  ": "line 1, column 3, the end of the filter",
    "bogus": "line 1, column 1, token 'bogus'",
    "attributes": "line 1, column 11, the end of the filter: expected '.' or ':'",
    "attributes:": "line 1, column 12, the end of the filter: expected a key",
    "attributes:a b": "line 1, column 14, token 'b': expected AND, OR or the end",
    "attributes:a.b": "line 1, column 13, token '.'",
    "attributes:-a": "line 1, column 12, token '-': expected a key, quoted",
    "attributes.a": "line 1, column 13, the end of the filter: expected = or !=",
    "attributes.a = ": "line 1, column 16, the end of the filter: expected a string in double quotes",
    "attributes.a = b": "line 1, column 16, token 'b': expected a string in double quotes",
    "attributes.a = attributes.b": "line 1, column 16, token 'attributes'",
    "attributes.a = 'b'": 'line 1, column 16, token "\'"',
    'attributes.a = "b': "line 1, column 16, token '\"'",
    'attributes.a > "b"': "line 1, column 14, token '>'",
    '"b" = attributes.a': "line 1, column 1",
    'data = "x"': "line 1, column 1, token 'data'",
    "attributes:a AND attributes:b OR attributes:c": "line 1, column 31, token 'OR': expected AND, as AND and OR",
    "attributes:a OR attributes:b AND attributes:c": "line 1, column 30, token 'AND': expected OR, as AND and OR",
    "attributes:a and attributes:b": "line 1, column 14, token 'and'",
    "attributes:a AND": "line 1, column 17, the end of the filter",
    "NOT NOT attributes:a": "line 1, column 5, token 'NOT'",
    "not attributes:a": "line 1, column 1, token 'not'",
    "(attributes:a": "line 1, column 14, the end of the filter: expected ')'",
    "attributes:a)": "line 1, column 13, token ')'",
    "()": "line 1, column 2, token ')'",
    'hasPrefix(attributes.a "b")': "line 1, column 24, token '\"b\"': expected ','",
    'hasPrefix(attributes:a, "b")': "line 1, column 21, token ':': expected '.'",
    'hasSuffix(attributes.a, "b")': "line 1, column 1, token 'hasSuffix'",
    "attributes:a\n AND attributes;b": "line 2, column 16, token ';'",
    'attributes.a = "\\q"': "line 1, column 17, token '\\\\q': expected an escape",
    'attributes.a = "\\U00110000"': "line 1, column 17, token '\\\\U00110000': expected a character of Unicode",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_makes_no_sense_is_refused_with_its_place(text: str) -> None:
    """Line and column, both from one, what stands there, and what was expected."""
    with pytest.raises(InvalidArgumentError) as refused:
        parse(text)
    assert f"syntax error at {WRONG[text]}" in str(refused.value)


def test_a_filter_has_at_most_256_bytes() -> None:
    """Bytes, not characters."""
    longest = f'attributes:"{"é" * 121}x"'
    assert len(longest.encode()) == 256
    assert parse(longest) == Has("é" * 121 + "x")
    with pytest.raises(InvalidArgumentError, match="257 bytes; at most 256"):
        parse(longest.replace("x", "xx"))


def test_parentheses_may_be_as_deep_as_a_filter_is_long() -> None:
    """Depth is refused for what it lacks, and is no error of the emulator's own."""
    assert parse("(" * 122 + "attributes:a" + ")" * 122) == Has("a")
    with pytest.raises(InvalidArgumentError, match="column 257"):
        parse("(" * 256)


def test_the_escapes_of_a_string() -> None:
    """Quotes, backslashes, and characters by their numbers."""
    assert parse(r'attributes:"\"\\\n\t\x41\101\u00e9\U0001F389"') == Has('"\\\n\tAAé🎉')


_texts = st.text(max_size=4)
_leaves = st.one_of(st.builds(Has, _texts), st.builds(Equals, _texts, _texts), st.builds(HasPrefix, _texts, _texts))


def _joined(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, several), st.builds(Or, several))


_filters: st.SearchStrategy[Filter] = st.recursive(_leaves, _joined, max_leaves=4)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _written(wanted: Filter) -> str:
    """Write a filter with more parentheses than it needs."""
    match wanted:
        case Has(key):
            return f"attributes:{_quoted(key)}"
        case Equals(key, value):
            return f"attributes.{_quoted(key)}={_quoted(value)}"
        case HasPrefix(key, prefix):
            return f"hasPrefix(attributes.{_quoted(key)},{_quoted(prefix)})"
        case Not(term):
            return f"-({_written(term)})"
        case And(terms):
            return " AND ".join(f"({_written(term)})" for term in terms)
        case Or(terms):
            return " OR ".join(f"({_written(term)})" for term in terms)


@given(wanted=_filters)
def test_what_is_written_is_what_is_read(wanted: Filter) -> None:
    """Whatever the keys and values are made of."""
    text = _written(wanted)
    if len(text.encode()) <= 256:
        assert parse(text) == wanted


@given(text=st.text(alphabet='attributes:."=!(),- ANDORNOT\\hasPrefix\n', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a filter or an error in words comes of it."""
    with suppress(InvalidArgumentError):
        passes(parse(text), ATTRIBUTES)
