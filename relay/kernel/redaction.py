"""What is taken out of a text before it is logged or stored: data that it quotes, secrets of known forms."""

import re
from collections.abc import Callable

CUT = "…"

# What is looked at of a text; the patterns below are tried on no more.
MOST_READ = 4_096

_TELLTALES = (
    "passw(?:or)?d|passwd|pwd|passphrase|passfile|secret|token|(?:api|access|private)[_ -]?key|credentials?"
    "|authorization|cookie|signature|assertion"
)
_VALUE = r""""(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[^\s,;&)}\]]+"""
_NAME_AND_SIGN = (
    rf"((?<![a-z])[\w.-]{{0,64}}(?:{_TELLTALES})[\w.-]{{0,64}}[\\\"']{{0,2}}\s{{0,8}}(?:=>|:=|=|:)\s{{0,8}})"
)
_SCHEME_AND_VALUE = rf"(?:(?:bearer|basic|digest|negotiate)\s+)?(?:{_VALUE})"
# In prose: what may follow `the token is`, and after a blank only what no word of a sentence looks like.
_STATES = (
    "(?i:not|no|too|an?|the|in|on|at|of|for|from|by|out|over|under|invalid|valid|wrong|missing|absent|empty|null|none"
    "|unset|incorrect|correct|bad|ok|fine|old|new|known|unknown|short|long|larger|greater|less|shorter|longer|outside|beyond"
    "|above|below|negative|only|never|already|still|also|now|given|set|shown|gone|needed|corrupt|stale|unreadable|different"
    r"|mandatory|optional|[a-z]+(?:ed|ing|able|ible|ly))\b(?![\w@.-]*[\w@])"
)
_NO_WORD = (
    r"(?!projects/|\w+://)(?!\w*(?:Error|Exception)\b)"
    r"(?=[^\s,;)]*(?:[a-zA-Z][^\s,;)]*[0-9]|[0-9]{4}|[0-9][^\s,;)]*[a-zA-Z]|[!@#$%^&*~])|\w*[a-z][A-Z]\w{4})"
    r"[^\s,;)]{4,}"
)
_IN_PROSE = (
    rf"(\b(?i:[\w.-]{{0,64}}(?:{_TELLTALES})s?)(?:\s+(?i:for|of)\s+\S{{1,64}})?\s+)"
    rf"(?:((?i:is|was)\s+)(?!{_STATES})[^\s,;)]+|{_NO_WORD})"
)
_DATABASES = "(?:postgres(?:ql)?|redis|rediss|valkey|amqps?|mysql|mariadb|mongodb|sqlserver|kafka)(?:\\+[a-z0-9]+)?"
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), becomes)
    for pattern, flags, becomes in (
        (r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL, CUT),
        # A password with blanks: in a database's url whatever stands before the last @, in others unless it is a port.
        (rf"(\b{_DATABASES}://)[^/:@\n]{{0,64}}:[^\n]{{0,256}}@", re.IGNORECASE, rf"\1{CUT}@"),
        (
            r"(\b[a-z][a-z0-9+.-]{0,40}://)[^\s/:@]{0,64}:(?![0-9]{1,5}(?:[/\s,;)]|$))[^/@\n]{0,256}@",
            re.IGNORECASE,
            rf"\1{CUT}@",
        ),
        # In the order of urls: who, and what was asked. A password may hold what should have been percent-encoded.
        (r"(\b[a-z][a-z0-9+.-]{0,40}://)\S*@", re.IGNORECASE, rf"\1{CUT}@"),
        (r"(\b[a-z][a-z0-9+.-]{0,40}://[^\s?#]*)[?#][^\s\"'<>)]*", re.IGNORECASE, rf"\1?{CUT}"),
        (r"\b(bearer|basic|digest|negotiate)(\s+)[\w.~+/=-]{4,}", re.IGNORECASE, rf"\1\2{CUT}"),
        (
            _NAME_AND_SIGN + _SCHEME_AND_VALUE,
            re.IGNORECASE,
            rf"\1{CUT}",
        ),
        (_IN_PROSE, 0, rf"\1\2{CUT}"),
        (r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?", 0, CUT),
        # Keys that are known by how they begin: Google's, Amazon's, GitHub's, Slack's, Stripe's.
        (r"\b(?:ya29\.[\w.-]{8,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[opusr]_\w{20,})", 0, CUT),
        (r"\b(?:xox[a-z]-[\w-]{8,}|[rs]k_(?:live|test)_\w{8,})", 0, CUT),
        # And of those who serve models.
        (r"\bsk-(?:(?:proj|ant|svcacct|live|test)-[\w-]{8,}|(?=[\w-]*[0-9])[\w-]{8,})", 0, CUT),
        # Anything long that mixes digits with letters of both cases is a key rather than a word.
        (r"\b(?=[\w+=-]*[0-9])(?=[\w+=-]*[a-z])(?=[\w+=-]*[A-Z])[\w+=-]{40,}", 0, CUT),
    )
)
_PERSONAL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"), CUT),
    # An address of mail; accounts of Google Cloud are no persons, and who may not do what has to be known.
    (
        re.compile(r"[\w.!#$%&*+/=?^~-]{1,64}@(?![\w.-]{1,253}\.gserviceaccount\.com\b)[\w-]{1,63}(?:\.[\w-]{1,63})+"),
        CUT,
    ),
    (
        re.compile(
            r"\b((?i:ssn|iban|cvv|cvc|passport|phone)(?:\s+(?i:is|was|number|no\.?))?\s+)(?=[\w-]*[0-9])[\w-]{3,}"
        ),
        rf"\1{CUT}",
    ),
    # Numbers of persons and telephones, in their groups; a date by its year is none.
    (re.compile(r"(?<![\w./:-])\+[0-9](?:[ ().-]{0,2}[0-9]){6,14}(?![\w:])"), CUT),
    (re.compile(r"(?<![\w./:-])(?:\([0-9]{3}\) ?|[0-9]{3}[ -])[0-9]{2,3}[ -][0-9]{4}(?![\w:-])"), CUT),
    (re.compile(r"(?<![\w./:-])(?!(?:19|20)[0-9]{2}-[0-9]{2}-)[0-9]{2,4}-[0-9]{2,4}-[0-9]{3,5}(?![\w:-])"), CUT),
)
_CARD = re.compile(r"(?<![\w.-])[0-9](?:[ -]?[0-9]){12,18}(?![\w.-])")
# Where the servers and drivers begin to quote rows and statements, whatever stands before it.
_DATA = re.compile(
    r"(?:\\n|\s|^)(?:DETAIL|CONTEXT|QUERY|STATEMENT|LINE [0-9]+):.*"
    r"|\[(?:SQL|parameters): .*|\bFailing row contains\b.*|\binput_value=.*|\bexception=.*",
    re.DOTALL,
)
_KEY_VALUES = re.compile(r"=\(.*\)", re.DOTALL)
# A broker's sentence announces a value by the word, or by what it should have been.
_NO_LIMIT = "".join(rf"(?<!{word} )" for word in ("maximum", "minimum", "max", "min", "default", "allowed", "key"))
_VALUE_PROSE = (
    r"(?:at|for|in|on|to|from|by|with|is|was|are|too|not|out|exceed(?:s|ed|ing)?|must|may|should|can|cannot|could|would|will"
    r"|does|did|has|have|had|that|which|and|or|of|types?|length|sizes?|schemas?|range|errors?|limits?|larger?|greater|less"
    r"|longer|shorter|outside|beyond|between|failed|fails|missing|required|expected|given|provided|supplied|invalid)\b"
)
_NOT_CUT = rf"(?!\W?{CUT})"
_TO_COMMA = r"[^,\s][^,]*"
_VALUES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            r"(\b(?:ha[sd]|have|with|having)\s+(?:the\s+|an?\s+)?(?:\w+\s+)?value\b\s*[:=]?\s*)"
            rf"(?:of\s+)?{_NOT_CUT}{_TO_COMMA}"
        ),
        rf"({_NO_LIMIT}\bvalue\s+of\s+){_NOT_CUT}(?!(?:an?\s+|the\s+)?(?:wrong|incorrect|invalid|type)\b){_TO_COMMA}",
        (
            rf"({_NO_LIMIT}\bvalue\s+(?:(?:for|at|in|on)\s+\S+\s+(?:\S+\s+){{0,2}}?)?(?:is|was)\s+)"
            rf"{_NOT_CUT}(?!{_STATES}){_TO_COMMA}"
        ),
        rf"({_NO_LIMIT}\bvalue(?:\s*[:=]\s*|\s+)){_NOT_CUT}(?!{_VALUE_PROSE}){_TO_COMMA}",
    )
)
_OF_A_KIND = re.compile(
    r"((?:^|:)\s*)([^:,]{1,200}?)(?=\s+(?:(?:is|was)\s+not\s+(?:(?:an?\s+)?(?:valid\s+)?(?:integer|int|long|float|double"
    r"|decimal|number|numeric|string|boolean|bool|bytes|array|list|object|map|record|enum|union|uuid|date|date-time|time"
    r"|timestamp|e-?mail|ur[il]|hostname|phone)\b|of\s+(?:the\s+)?type\b|one\s+of\b|valid\s+under\b|a\s+multiple\s+of\b)"
    r"|does\s+not\s+match\s+(?:the\s+)?(?:pattern|regex|format)\b))",
    re.IGNORECASE,
)
_NOUNS = frozenset(
    re.findall(
        r"\w+",
        "the a an it its this that value field topic subscription message messages request schema resource attribute"
        " data payload project body key name id type event record timestamp version ordering",
    )
)
_ELEMENT = re.compile(
    r"(<(?!(?:title|h[1-6]|p|b|a|ins|pre|code)\b)([\w:.-]{1,64})(?:\s[^<>]{0,200})?>)[^<>]+(?=</\2>)", re.IGNORECASE
)
_BRACES = re.compile(r"\{.*(?:\}|\Z)", re.DOTALL)
# An apostrophe inside a word opens nothing; the prefix of a bytes literal does not hide a quote.
_OPENING = re.compile(r"[\"“„«‘`]|(?:(?<!\w)|(?<=\bb))'")  # noqa: RUF001 -- the quotes of other languages
_CLOSING = re.compile(r"[\"”“»’`']")  # noqa: RUF001 -- the same
_IDENTIFIER = re.compile(r"([\"'“„«‘`])([\w.$:/-]{1,128})[\"'”“»’`]")  # noqa: RUF001 -- the same
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def without_secrets(text: str) -> str:
    """The text without passwords, keys, tokens, addresses and numbers of persons that can be told by their form."""
    for pattern, becomes in _SECRETS:
        text = pattern.sub(becomes, text)
    for pattern, becomes in _PERSONAL:
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


def without_values(text: str) -> str:
    """The text without values that are not quoted, where the words around them announce one."""
    text = _ELEMENT.sub(rf"\1{CUT}", text)
    for pattern in _VALUES:
        text = pattern.sub(rf"\1{CUT}", text)
    return _OF_A_KIND.sub(_unless_a_noun, text)


def storable(text: str) -> str:
    """The text as one line that every log, terminal and database takes: no control character, no lone surrogate."""
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(" ", text)).strip()


def _unless_a_noun(found: re.Match[str]) -> str:
    known = all(word in _NOUNS or CUT in word for word in found[2].lower().split())
    return found[0] if known else f"{found[1]}{CUT}"


def _unless_no_card(found: re.Match[str]) -> str:
    digits = [int(digit) for digit in found[0] if digit.isdigit()]
    doubled: Callable[[int], int] = lambda digit: sum(divmod(2 * digit, 10))  # noqa: E731 -- Luhn's step
    total = sum(digits[-1::-2]) + sum(map(doubled, digits[-2::-2]))
    return found[0] if total % 10 else CUT
