"""What may be said of an error: what its kind makes safe to say, and of any other a text without what it quotes.

The errors of drivers, validators and clients are known by what they carry: the kernel imports none of them.
"""

import re
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any

from relay.kernel.redaction import CUT, MOST_READ, without_braces, without_data, without_quoted, without_values

_MOST_FAULTS = 5
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_BYTES = re.compile(r"\b0x[0-9a-fA-F]+\b")

# What stands before an identifier in the errors of anybody, and in those of Postgres, its driver and its pools.
_NAMED = re.compile(
    r"\b(?:schema|table|relation|column|constraint|database|topic|subscription|attribute|runner|setting|module|encoding"
    r"|relay|command) $",
    re.IGNORECASE,
)
_NAMED_BY_POSTGRES = re.compile(
    r"\b(?:schema|table|relation|column|constraint|database|index|view|sequence|function|procedure|type|domain|role|user"
    r"|extension|encoding|parameter|option|host|host name|address|server at|socket|tablespace|language|trigger|policy"
    r"|operator|publication|slot|(?<!\bunknown )setting) $",
    re.IGNORECASE,
)


def words_of(error: BaseException, depth: int = 3) -> str:
    """What the error says, without the data that it is about; empty where nothing is safe. May raise what it raises."""
    for describe in (_nothing, _program, _validation, _json, _unicode, _wrapped, _database, _call, _of_code, _repeated):
        words = describe(error)
        if words is not None:
            return words
    return _text(error, depth)


def code_of(error: BaseException) -> str:
    """The error's own name for its reason: a broker's code, an SQLSTATE, or else its kind. May raise what it raises."""
    for name in ("sqlstate", "code"):
        code = getattr(error, name, None)
        if isinstance(code, str) and _PLAIN.fullmatch(f"_{code}"):
            return code
    return _status(error) or kind_of(error)


def kind_of(error: BaseException) -> str:
    """The name of its class."""
    return type(error).__name__[:100]


def _nothing(error: BaseException) -> str | None:
    """A KeyError is its key, and a key may be anything."""
    return "" if isinstance(error, KeyError) else None


def _program(error: BaseException) -> str | None:
    """A fault of the code: it names code, not data."""
    match error:
        case AttributeError(name=str() as name):
            return f"{type(error.obj).__name__} has no attribute {_plain(name)}"
        case NameError(name=str() as name):
            return f"{_plain(name)} is not defined"
        case ImportError(name=str() as name):
            return f"no {'.'.join(map(_plain, name.split('.')))} to import"
        case _:
            return None


def _validation(error: BaseException) -> str | None:
    """Pydantic's: where the faults are and of which type. Its messages and inputs hold the values."""
    if not (callable(getattr(error, "errors", None)) and callable(getattr(error, "error_count", None))):
        return None
    faults = error.errors(include_input=False, include_context=False, include_url=False)  # type: ignore[attr-defined]
    told = [_fault(fault) for fault in faults[:_MOST_FAULTS]]
    more = [f"{len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
    return ", ".join(told + more)


def _fault(fault: dict[str, Any]) -> str:
    kind = _plain(fault.get("type"))
    place = [_plain(part) for part in fault.get("loc", ())]
    # The name of a field that no model knows, or of a key that is wrong itself, is data.
    unknown = 2 if place[-1:] == ["[key]"] else 1 if kind == "extra_forbidden" else 0
    if unknown:
        place[-unknown:] = [CUT]
    return f"{'.'.join(place) or '(the whole)'} ({kind})"


def _plain(part: object) -> str:
    """A name as models have them, or a position; a key of the data may look otherwise."""
    text = part if isinstance(part, str) else str(part) if isinstance(part, int) else ""
    return text if _PLAIN.fullmatch(text) or text == "[key]" or (text.isdecimal() and len(text) <= 4) else CUT  # noqa: PLR2004


def _json(error: BaseException) -> str | None:
    if not isinstance(error, JSONDecodeError):
        return None
    return f"not JSON at line {error.lineno} column {error.colno}"


def _unicode(error: BaseException) -> str | None:
    if not isinstance(error, UnicodeDecodeError | UnicodeEncodeError | UnicodeTranslateError):
        return None
    reason = without_quoted(error.reason[:100], _NAMED)
    return f"{_plain(getattr(error, 'encoding', 'text').replace('-', '_'))} at position {error.start}: {reason}"


def _wrapped(error: BaseException) -> str | None:
    """SQLAlchemy's: what the driver said, without the statement and its parameters."""
    original = getattr(error, "orig", None)
    if not isinstance(original, BaseException) or original is error or not hasattr(error, "statement"):
        return None
    return f"{kind_of(original)}: {_database(original) or _line(str(original), _NAMED_BY_POSTGRES)}"


def _database(error: BaseException) -> str | None:
    """Postgres': the state and the primary message. Details and context quote rows; the message quotes values.

    What a function raises on its own may say anything, and is left out.
    """
    state, diag = getattr(error, "sqlstate", None), getattr(error, "diag", None)
    if diag is None and not (isinstance(state, str) and _SQLSTATE.fullmatch(state)):
        return None
    primary = getattr(diag, "message_primary", None)
    text = str(error) if primary is None else str(primary)
    shown = f"{state}: " if state else ""
    if _raised_by_a_function(str(state or ""), diag):
        return shown + "raised by a function of the database; the server's log has its text"
    return shown + _BYTES.sub(f"0x{CUT}", _line(text, _NAMED_BY_POSTGRES))


def _of_code(error: BaseException) -> str | None:
    """One of ours about code and settings: what it quotes is its author's, but for what a database said.

    An error of somebody else's is theirs to know, also where it is derived from one of these.
    """
    if not getattr(error, "quotes_no_data", False) or _package(type(error).__module__) != _package(__name__):
        return None
    text = str(error)[:MOST_READ]
    if (cause := error.__cause__) is not None and (words := _database(cause)) is not None:
        words = words.removeprefix(f"{getattr(cause, 'sqlstate', None)}: ")
        primary = getattr(getattr(cause, "diag", None), "message_primary", None)
        for said in filter(None, (str(cause).strip(), str(primary or "").strip())):
            text = text.replace(said, words)
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _package(module: str) -> str:
    return module.partition(".")[0]


def _repeated(error: BaseException) -> str | None:
    """One of ours that ends with what a database said: its own words, and those of the database by their rules."""
    cause = error.__cause__
    said, text = str(cause or "").strip(), str(error)
    if cause is None or not said or not text.endswith(said) or (words := _database(cause)) is None:
        return None
    return f"{_free(text.removesuffix(said))} {words}".strip()


def _raised_by_a_function(state: str, diag: object) -> bool:
    if diag is None:
        return state.startswith("P0")
    place = getattr(diag, "source_function", None) or ""
    return state.startswith("P0") or "raise" in place.lower() or place.startswith(("PLy_", "plperl", "pltcl"))


def _call(error: BaseException) -> str | None:
    """A call's that failed, of gRPC, Google's clients or our brokers: the status, and the service's sentence."""
    status = _status(error)
    if status is None:
        return None
    for name in ("detail", "message", "details"):
        said = getattr(error, name, None)
        said = said() if callable(said) else said
        if isinstance(said, str):
            return f"{status}: {_free(said)}"
    return status


def _status(error: BaseException) -> str | None:
    code = getattr(error, "code", None)
    if isinstance(code, str) and isinstance(getattr(error, "detail", None), str):
        return code
    if callable(code) and callable(getattr(error, "details", None)):
        code = code()
        return str(getattr(code, "name", code))
    name = getattr(getattr(error, "grpc_status_code", None), "name", None)
    return name if isinstance(name, str) else None


def _text(error: BaseException, depth: int) -> str:
    """Any other error's. Arguments that are no text are data, or errors of which the same holds."""
    says_its_arguments = type(error).__str__ in (BaseException.__str__, Exception.__str__)
    if not says_its_arguments or isinstance(error, OSError):
        return _free(str(error))
    match error.args:
        case (str() as text, *_):
            return _free(text)
        case (BaseException() as inner, *_) if depth:
            return f"{kind_of(inner)}: {words_of(inner, depth - 1)}"
        case (value, *_):
            return f"(a value of type {type(value).__name__})"
        case _:
            return ""


def _free(text: str) -> str:
    return without_values(without_braces(_line(text, _NAMED)))


def _line(text: str, named: re.Pattern[str], clean: Callable[[str], str] = without_data) -> str:
    """The first line of the text, without what it quotes, even where a quote ends on a later line."""
    text = text.strip()
    read = text[:MOST_READ]
    line = read.splitlines()[0] if read else ""
    return clean(without_quoted(line, named, whole=len(line) == len(text)))
