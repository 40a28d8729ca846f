"""What `consumers dead-letters` says, without saying it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, assert_never

from consumers.cli.columns import aligned
from consumers.dead_letter import DeadLetter
from consumers.replay import End, Failed, HeldBack, Replayed, Tally
from consumers.sources.pubsub_dead_letter_topic import Ensured
from relay.errors import BrokerError
from relay.kernel.duration import written
from relay.kernel.failure import code, told
from relay.kernel.line_redaction import Redaction
from relay.kernel.redaction import storable

_MOST_REASON = 80
_RIGHTS = (
    "a replay takes roles/pubsub.publisher on the topic, roles/pubsub.subscriber on the subscription with the dead "
    "letters, and roles/pubsub.viewer on the one where they failed, unless --to names the topic"
)
_COLUMNS = ("EVENT_ID", "EVENT_TYPE", "CONSUMER", "CODE", "ATTEMPTS", "AT", "REASON")


def table(letters: Sequence[DeadLetter]) -> Iterator[str]:
    """A line for each, under a line with what is in it; nothing where there is none."""
    return aligned([_COLUMNS, *map(_row, letters)])


def redacted(letter: DeadLetter, redaction: Redaction) -> DeadLetter:
    """What may be shown of it: anybody may have sent it, or sent it before there was a hook."""
    known = {name: getattr(letter, name) for name in ("event_id", "event_type", "consumer", "subscription", "code")}
    texts = {"reason": letter.reason, "ordering_key": letter.ordering_key}
    left = redaction.fields("dead_letter", {**known, **texts}, {"reason": "error"})
    return replace(letter, **{name: left[name] for name, text in texts.items() if text})


def listed(count: int, read: int, limit: int | None, *, narrowed: bool) -> str:
    """How many, and whether that is all."""
    if count and count == limit:
        return f"{count:,} dead letter(s), and perhaps more: raise --limit"
    if not read:
        return "no dead letter, or somebody else reads the subscription now"
    return f"{count:,} dead letter(s)" + (f" of {read:,} match" if narrowed else "")


def replayed(tally: Tally) -> Iterator[str]:
    """How it went, in numbers."""
    where = f" to {', '.join(sorted(tally.topics))}" if tally.topics else ""
    yield f"{tally.replayed:,} dead letter(s) replayed{where}"
    if tally.failed:
        yield f"{tally.failed:,} failed"
    if tally.held_back:
        yield f"{tally.held_back:,} stay with those that failed: run it again when the cause is gone"
    if tally.beyond_limit:
        yield f"{tally.beyond_limit:,} stay beyond --limit"
    if tally.passed_over:
        yield f"{tally.passed_over:,} stay that do not match, or are replayed only by their --code"


def end(how: End, redaction: Redaction) -> str | None:
    """What an operator has to know of one message, or None."""
    match how:
        case Replayed(letter, _, _):
            if not letter.left_out:
                return None
            return f"{_name(letter)} was replayed without {letter.left_out} attribute(s) that its dead letter lacks"
        case Failed(letter, error, ""):
            return f"{_name(letter)} stays: {_why(error, redaction)}"
        case Failed(letter, error, topic):
            return (
                f"{_name(letter)} was published to {topic}, and could not be taken off: {_why(error, redaction)}; "
                "the next replay repeats it, and the consumer recognises it"
            )
        case HeldBack(letter, behind):
            if behind is None:
                return f"{_name(letter)} was not tried: all before it had failed"
            return f"{_name(letter)} stays behind {behind.event_id} of its key"
        case _:
            assert_never(how)


def end_as_json(how: End, redaction: Redaction) -> dict[str, Any]:
    """The same for a script."""
    said = {**redacted(how.letter, redaction).as_json(), "outcome": "held_back", "topic": None, "error": None}
    match how:
        case Replayed(_, topic, message_id):
            return {**said, "outcome": "replayed", "topic": topic, "message_id": message_id}
        case Failed(_, error, topic):
            return {**said, "outcome": "failed", "topic": topic or None, "error": _why(error, redaction)}
        case HeldBack():
            return said
        case _:
            assert_never(how)


def ensured(consumer: str, done: Ensured) -> Iterator[str]:
    """What is there now."""
    found = done.subscription
    yield f"{consumer}: topic {done.topic} {'created' if done.topic_created else 'exists'}"
    yield (
        f"{consumer}: subscription {found.name} {'created' if found.created else 'exists'}, "
        f"keeps messages {written(found.retention)}"
    )


def ensured_as_json(consumer: str, done: Ensured) -> dict[str, Any]:
    """The same for a script."""
    found = done.subscription
    return {
        "consumer": consumer,
        "topic": done.topic,
        "topic_created": done.topic_created,
        "subscription": found.name,
        "subscription_created": found.created,
        "retention": written(found.retention),
        "fault": done.fault,
    }


def _row(letter: DeadLetter) -> tuple[str, ...]:
    reason = letter.reason if len(letter.reason) <= _MOST_REASON else f"{letter.reason[:_MOST_REASON]}…"
    attempts = "" if letter.attempts is None else str(letter.attempts)
    cells = (letter.event_id, letter.event_type, letter.consumer, letter.code, attempts, letter.at, reason)
    # Anybody may have sent it: what a terminal would obey is not shown.
    return tuple(storable(cell) or "-" for cell in cells)


def _name(letter: DeadLetter) -> str:
    whose = f" for {letter.consumer}" if letter.consumer else ""
    return storable(f"{letter.event_type or 'a message'} {letter.event_id or letter.message_id}{whose}")


def _why(error: Exception, redaction: Redaction) -> str:
    said = redaction.words("command_failed", code=code(error), error=told(error)).error
    return f"{said}; {_RIGHTS}" if _is_refusal(error) else said


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == "PERMISSION_DENIED"
