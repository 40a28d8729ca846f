"""What the words of a script mean for each event that it was asked about."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from idempotency.answers import ClaimAnswer, Claimed, Done, InProgress, Locked, MarkAnswer, Marked
from idempotency.call import Reader
from idempotency.errors import FingerprintConflictError, IdempotencyError, InProgressError, LeaseLostError

# What is known of an event that is asked about: its id, the token, the mark's key, the fingerprint.
Asked: TypeAlias = tuple[UUID, str, str, str | None]


def checks(consumer: str) -> Reader:
    """Whether events were marked before; an error for those that somebody holds."""

    def read(items: Sequence[Asked], words: list[str], _: Iterator[bytes], __: float) -> list[bool | InProgressError]:
        return [
            in_progress(consumer, item[0], _left(word)) if word[0] == "P" else word != "M"
            for item, word in zip(items, words, strict=True)
        ]

    return read


def marks(consumer: str) -> Reader:
    """What became of marks."""

    def read(items: Sequence[Asked], words: list[str], results: Iterator[bytes], _: float) -> list[MarkAnswer]:
        return [
            Marked(consumer, item[0], item[1], item[2]) if word == "M" else occupied(word, results)
            for item, word in zip(items, words, strict=True)
        ]

    return read


def claims(consumer: str, lease: timedelta, lease_ms: int) -> Reader:
    """What became of claims, each with the deadline of its lease."""

    def read(
        items: Sequence[Asked], words: list[str], results: Iterator[bytes], sent_at: float
    ) -> list[ClaimAnswer | IdempotencyError]:
        deadline = sent_at + lease_ms / 1_000
        return [
            Claimed(consumer, item[0], item[1], int(word[1:]), deadline, lease, item[3], item[2])
            if word[0] == "C"
            else _conflict(consumer, item)
            if word == "F"
            else occupied(word, results)
            for item, word in zip(items, words, strict=True)
        ]

    return read


def renewals(
    items: Sequence[tuple[Claimed, timedelta, int]], words: list[str], _: Iterator[bytes], sent_at: float
) -> list[Claimed | LeaseLostError]:
    """Claims with their new deadlines."""
    return [
        Claimed(
            old.consumer, old.event_id, old.token, old.attempt, sent_at + ms / 1_000, lease, old.fingerprint, old.key
        )
        if word == "K"
        else _lost(old, "renewed")
        for (old, lease, ms), word in zip(items, words, strict=True)
    ]


def kept(done: str) -> Reader:
    """Nothing for claims that could be `done` with, an error for those that were lost."""

    def read(items: Sequence[Claimed], words: list[str], _: Iterator[bytes], __: float) -> list[LeaseLostError | None]:
        return [None if word == "K" else _lost(claim, done) for claim, word in zip(items, words, strict=True)]

    return read


def truths(_: Sequence[Any], words: list[str], __: Iterator[bytes], ___: float) -> list[bool]:
    """Whether it was so, for each."""
    return [word == "K" for word in words]


def locks(
    items: Sequence[tuple[str, str, timedelta, int, str]], words: list[str], _: Iterator[bytes], sent_at: float
) -> list[Locked | InProgress | LeaseLostError]:
    """What became of locks, taken or renewed."""
    return [
        InProgress(_left(word))
        if word[0] == "P"
        else _lost_lock(name)
        if word == "L"
        else Locked(name, token, sent_at + ms / 1_000, lease, key)
        for (name, token, lease, ms, key), word in zip(items, words, strict=True)
    ]


def occupied(word: str, results: Iterator[bytes]) -> InProgress | Done:
    """Why an event was not to be had."""
    if word[0] == "P":
        return InProgress(_left(word))
    match word[1:]:
        case "b":
            return Done(next(results))
        case "s":
            return Done(next(results).decode())
        case _:
            return Done()


def in_progress(consumer: str, event_id: UUID | str, retry_after: timedelta) -> InProgressError:
    """The answer as an error, for calls that have no other way to give it."""
    return InProgressError(
        f"event {event_id} is in progress elsewhere for {consumer!r}, or rests; come again in"
        f" {retry_after.total_seconds():.3f} s",
        retry_after,
    )


def _left(word: str) -> timedelta:
    return timedelta(milliseconds=int(word[1:]))


def _lost(claim: Claimed, done: str) -> LeaseLostError:
    return LeaseLostError(
        f"the claim of event {claim.event_id} for {claim.consumer!r} cannot be {done}: its lease ran out, or somebody"
        " else holds or has completed the event"
    )


def _lost_lock(name: str) -> LeaseLostError:
    return LeaseLostError(f"the lock {name!r} is no longer ours: its lease ran out unrenewed")


def _conflict(consumer: str, item: Asked) -> FingerprintConflictError:
    return FingerprintConflictError(
        f"event {item[0]} came to {consumer!r} with the fingerprint {item[3]!r}, and is known with another one: two"
        " different things bear one identity; give one of them a new id"
    )
