"""What is taken out of a text before it is logged or stored: data that it quotes, secrets of known forms."""

import re
from collections.abc import Callable

CUT = "…"

# What is looked at of a text; the patterns below are tried on no more.
MOST_READ = 4_096

_TELLTALES = (
    "passw(?:or)?d|passwd|pwd|passphrase|passfile|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    "|authorization|cookie|signature|assertion"
)
_VALUE = r""""(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[^\s,;&)}\]]+"""
_NAME_AND_SIGN = (
    rf"((?<![a-z])[\w.-]{{0,64}}(?:{_TELLTALES})[\w.-]{{0,64}}[\\\"']{{0,2}}\s{{0,8}}(?:=>|:=|=|:)\s{{0,8}})"
)
_SCHEME_AND_VALUE = rf"(?:(?:bearer|basic|digest|negotiate)\s+)?(?:{_VALUE})"
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), becomes)
    for pattern, flags, becomes in (
        (r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL, CUT),
        # In the order of urls: who, and what was asked. A password may hold what should have been percent-encoded.
        (r"(\b[a-z][a-z0-9+.-]{0,40}://)\S*@", re.IGNORECASE, rf"\1{CUT}@"),
        (r"(\b[a-z][a-z0-9+.-]{0,40}://[^\s?#]*)[?#][^\s\"'<>)]*", re.IGNORECASE, rf"\1?{CUT}"),
        (r"\b(bearer|basic|digest|negotiate)(\s+)[\w.~+/=-]{4,}", re.IGNORECASE, rf"\1\2{CUT}"),
        (
            _NAME_AND_SIGN + _SCHEME_AND_VALUE,
            re.IGNORECASE,
            rf"\1{CUT}",
        ),
        (r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?", 0, CUT),
        # Keys that are known by how they begin: Google's, Amazon's, GitHub's, Slack's, Stripe's.
        (r"\b(?:ya29\.[\w.-]{8,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[opusr]_\w{20,})", 0, CUT),
        (r"\b(?:xox[a-z]-[\w-]{8,}|[rs]k_(?:live|test)_\w{8,})", 0, CUT),
        # Anything long that mixes digits with letters of both cases is a key rather than a word.
        (r"\b(?=[\w+=-]*[0-9])(?=[\w+=-]*[a-z])(?=[\w+=-]*[A-Z])[\w+=-]{40,}", 0, CUT),
    )
)
_CARD = re.compile(r"(?<![\w.-])[0-9](?:[ -]?[0-9]){12,18}(?![\w.-])")
# Where the servers and drivers begin to quote rows and statements, whatever stands before it.
_DATA = re.compile(
    r"(?:\\n|\s|^)(?:DETAIL|CONTEXT|QUERY|STATEMENT|LINE [0-9]+):.*"
    r"|\[(?:SQL|parameters): .*|\bFailing row contains\b.*|\binput_value=.*|\bexception=.*",
    re.DOTALL,
)
_KEY_VALUES = re.compile(r"=\(.*\)", re.DOTALL)
_BRACES = re.compile(r"\{.*(?:\}|\Z)", re.DOTALL)
# An apostrophe inside a word opens nothing; the prefix of a bytes literal does not hide a quote.
_OPENING = re.compile(r"[\"“„«‘`]|(?:(?<!\w)|(?<=\bb))'")  # noqa: RUF001 -- the quotes of other languages
_CLOSING = re.compile(r"[\"”“»’`']")  # noqa: RUF001 -- the same
_IDENTIFIER = re.compile(r"([\"'“„«‘`])([\w.$:/-]{1,128})[\"'”“»’`]")  # noqa: RUF001 -- the same
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def without_secrets(text: str) -> str:
    """The text without passwords, keys, tokens and card numbers that can be told by their form."""
    for pattern, becomes in _SECRETS:
        text = pattern.sub(becomes, text)
    return _CARD.sub(_unless_no_card, text)


def without_data(text: str) -> str:
    """The text without what servers, drivers and validators add about the row, the statement or the input."""
    return _DATA.sub(f" {CUT}", _KEY_VALUES.sub(f"=({CUT})", text))


def without_quoted(text: str, named: re.Pattern[str], *, whole: bool = True) -> str:
    """The text without what it quotes; a quoted identifier stays where a word that `named` matches stands before it.

    Nobody escapes quotes within quotes. So everything goes from the first quote that has to go to the last one; of a
    text that is not `whole`, to its end.
    """
    position = 0
    while opening := _OPENING.search(text, position):
        begin = opening.start()
        kept = _IDENTIFIER.match(text, begin)
        if kept and named.search(text, max(0, begin - 40), begin):
            position = kept.end()
            continue
        last = max((quote.start() for quote in _CLOSING.finditer(text, begin + 1)), default=begin)
        rest = text[last + 1 :] if whole and last > begin else ""
        return f"{text[:begin]}{text[begin]}{CUT}{text[last] if last > begin else text[begin]}{rest}"
    return text


def without_braces(text: str) -> str:
    """The text without objects and dicts."""
    return _BRACES.sub(f"{{{CUT}}}", text)


def storable(text: str) -> str:
    """The text as one line that every log, terminal and database takes: no control character, no lone surrogate."""
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(" ", text)).strip()


def _unless_no_card(found: re.Match[str]) -> str:
    digits = [int(digit) for digit in found[0] if digit.isdigit()]
    doubled: Callable[[int], int] = lambda digit: sum(divmod(2 * digit, 10))  # noqa: E731 -- Luhn's step
    total = sum(digits[-1::-2]) + sum(map(doubled, digits[-2::-2]))
    return found[0] if total % 10 else CUT
