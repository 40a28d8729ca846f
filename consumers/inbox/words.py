"""What a handler's answer comes to in the inbox."""

import re
from typing import Any, assert_never

from pydantic import TypeAdapter

from consumers.dedup.protocol import End, UnkeepableError
from consumers.inbox.rows import Owned, Word
from consumers.outcome import Dead, Defer, Done, Invalid, Retry, Sent, Skip
from relay.kernel.failure import redacted

_RESULT: TypeAdapter[Any] = TypeAdapter(Any)
_LONGEST = 1_024
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_LONGEST_CODE = 100


def end_of(owned: Owned, end: End, attempts: int, confirmed_in: float = 0.0) -> Word:
    """What is written of an end, after so many attempts; of a send when it is first asked about.

    Raises UnkeepableError where the result is nothing that the table can keep.
    """
    match end:
        case Done(result):
            return Word(
                owned=owned, state="done", what="done", outcome="ok", result=kept(result), version=owned.revision
            )
        case Skip(reason):
            told = text(reason)
            return Word(
                owned=owned,
                state="done",
                what="skipped",
                outcome="skipped",
                error=told,
                version=owned.revision,
                detail={"reason": told},
            )
        case Sent(ticket):
            return Word(
                owned=owned,
                state="sent",
                what="sent",
                rest=confirmed_in,
                ticket=ticket,
                version=owned.revision,
                detail={"ticket": ticket},
            )
        case Dead(reason, code):
            return _failed(owned, "dead", reason, code, attempts)
        case Invalid(reason, code):
            return _failed(owned, "invalid", reason, code, attempts)
        case _:
            assert_never(end)


def again(owned: Owned, why: Retry | Defer | None, *, counted: bool, rest: float) -> Word:
    """What is written of a row that is to be handled again."""
    match why:
        case Retry(reason, code):
            told, named = text(reason), code_of(code)
            return Word(
                owned=owned,
                state="pending",
                what="retry",
                rest=rest,
                refunded=not counted,
                code=named,
                error=told,
                detail={"code": named, "error": told, "again_in": round(rest, 3)},
            )
        case Defer():
            return Word(
                owned=owned,
                state="pending",
                what="deferred",
                rest=rest,
                refunded=True,
                deferred=True,
                detail={"again_in": round(rest, 3)},
            )
        case None if counted:
            fault = "the SDK itself failed"
            detail = {"code": "FAULT", "error": fault, "again_in": round(rest, 3)}
            return Word(owned=owned, state="pending", what="retry", rest=rest, code="FAULT", error=fault, detail=detail)
        case None:
            # It was cut short: whether it would have died with its process is as open as before.
            return Word(owned=owned, state="pending", what="aborted:shutdown", rest=rest, refunded=True, cleared=False)
        case _:
            assert_never(why)


def unbegun(owned: Owned, rest: float) -> Word:
    """What is written of a row that was claimed, and whose handler was not entered."""
    return Word(owned=owned, state="pending", what="released", rest=rest, refunded=True, cleared=False)


def kept(result: Any) -> str:
    """A result as JSON; empty for none."""
    if result is None:
        return ""
    try:
        written = _RESULT.dump_json(result).decode()
    except Exception as error:  # the value is the user's, and so may be how it is written
        raise UnkeepableError from error
    if _NUL.search(written):
        raise UnkeepableError from ValueError("the result has a NUL character, which Postgres does not keep in JSON")
    return written


def _failed(owned: Owned, outcome: str, reason: str, code: str, attempts: int) -> Word:
    told, named = text(reason), code_of(code)
    return Word(
        owned=owned,
        state="failed",
        what="failed",
        outcome=outcome,
        refunded=attempts < owned.attempt,
        code=named,
        error=told,
        version=owned.revision,
        detail={"code": named, "error": told},
    )


def text(reason: object) -> str:
    """What an operator may read: nobody knows what a handler's reason quotes."""
    return _storable(str(reason))[:_LONGEST]


def code_of(code: object) -> str:
    """A short name for it."""
    return _storable(str(code))[:_LONGEST_CODE]


def _storable(told: str) -> str:
    return redacted(told).replace("\0", "").encode(errors="replace").decode()
