"""Every question to the store: what is asked for each event, and what the answers mean."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from idempotency import script
from idempotency.answers import ClaimAnswer, Claimed, Done, InProgress, Locked, MarkAnswer, Marked, Result
from idempotency.call import Call
from idempotency.errors import (
    FingerprintConflictError,
    IdempotencyError,
    InProgressError,
    InvalidKeyError,
    LeaseLostError,
)
from idempotency.keys import Keys, fingerprint_text, identity
from idempotency.settings import Settings, milliseconds

_NONE = timedelta(0)


class Calls:
    """The questions of a store with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self._life = milliseconds("ttl", settings.ttl)

    def marks(self, consumer: str, event_ids: Iterable[UUID | str], *, telling: bool) -> Call[MarkAnswer]:
        """Mark the events, each by a token of its own; `telling` whether results of earlier ones are wanted."""
        base, stem, claim = secrets.token_hex(16), self.keys.stem(consumer), self.keys.claim
        items: list[tuple[UUID, str, str]] = []
        keys: list[str] = []
        refused: dict[int, IdempotencyError] = {}
        for position, each in enumerate(event_ids):
            try:
                event_id = identity(each)
            except InvalidKeyError as error:
                refused[position] = error
                continue
            mark = f"{stem}{event_id}"
            items.append((event_id, _token(base, position), mark))
            keys += (mark, claim(mark))

        def read(
            items: Sequence[tuple[UUID, str, str]], words: list[str], results: list[bytes], _: float
        ) -> list[MarkAnswer]:
            rest = iter(results)
            return [
                Marked(consumer, item[0], item[1], item[2]) if word == "M" else _occupied(word, rest)
                for item, word in zip(items, words, strict=True)
            ]

        tokens = [item[1] for item in items]
        return Call(script.MARK, items, keys, (self._life, int(telling)), tokens, read, refused)

    def claims(
        self,
        consumer: str,
        event_ids: Iterable[UUID | str],
        lease: timedelta | None,
        fingerprints: Sequence[str | None] | None,
    ) -> Call[ClaimAnswer]:
        """Claim the events, each by a token of its own."""
        lease = self.settings.lease if lease is None else lease
        lease_ms = milliseconds("lease", lease)
        base, stem = secrets.token_hex(16), self.keys.stem(consumer)
        claim, attempts = self.keys.claim, self.keys.attempts
        event_ids = list(event_ids)
        prints = [None] * len(event_ids) if fingerprints is None else fingerprints
        items: list[tuple[UUID, str, str, str | None]] = []
        keys: list[str] = []
        args: list[str] = []
        refused: dict[int, IdempotencyError] = {}
        for position, (each, fingerprint) in enumerate(zip(event_ids, prints, strict=True)):
            try:
                event_id, text = identity(each), fingerprint_text(fingerprint)
            except InvalidKeyError as error:
                refused[position] = error
                continue
            mark, token = f"{stem}{event_id}", _token(base, position)
            items.append((event_id, token, mark, fingerprint))
            keys += (mark, claim(mark), attempts(mark))
            args += (token, text)

        def read(
            items: Sequence[tuple[UUID, str, str, str | None]], words: list[str], results: list[bytes], sent_at: float
        ) -> list[ClaimAnswer | IdempotencyError]:
            rest, deadline = iter(results), sent_at + lease_ms / 1_000
            return [
                Claimed(consumer, item[0], item[1], int(word[1:]), deadline, lease, item[3], item[2])
                if word[0] == "C"
                else _conflict(consumer, item[0], item[3])
                if word == "F"
                else _occupied(word, rest)
                for item, word in zip(items, words, strict=True)
            ]

        return Call(script.CLAIM, items, keys, (lease_ms, self._life), args, read, refused)

    def renewals(self, claims: Iterable[Claimed], lease: timedelta | None) -> Call[Claimed]:
        """Prolong what is held."""
        lease_ms = None if lease is None else milliseconds("lease", lease)
        held = list(claims)
        leases = [each.lease if lease is None else lease for each in held]
        args = [
            value
            for each, one in zip(held, leases, strict=True)
            for value in (each.token, lease_ms or milliseconds("lease", one))
        ]

        def read(
            items: Sequence[tuple[Claimed, timedelta]], words: list[str], _: list[bytes], sent_at: float
        ) -> list[Claimed | IdempotencyError]:
            return [
                _prolonged(claim, sent_at, lease) if word == "K" else _lost(claim, "cannot be renewed")
                for (claim, lease), word in zip(items, words, strict=True)
            ]

        keys = [self.keys.claim(each.key) for each in held]
        return Call(script.RENEW, list(zip(held, leases, strict=True)), keys, (), args, read)

    def completions(self, claims: Iterable[Claimed], results: Sequence[Result] | None) -> Call[None]:
        """Mark what is held as processed."""
        held = list(claims)
        kept = [None] * len(held) if results is None else results
        args = [
            value for each, result in zip(held, kept, strict=True) for value in (each.token, _mark_value(each, result))
        ]
        keys = [name for each in held for name in self.keys.beside(each.key)]
        return Call(script.COMPLETE, held, keys, (self._life,), args, _kept("cannot be completed"))

    def releases(
        self, claims: Iterable[Claimed], *, counted: bool | Sequence[bool], rest: timedelta | Sequence[timedelta]
    ) -> Call[None]:
        """Give back what is held."""
        held = list(claims)
        counts = [counted] * len(held) if isinstance(counted, bool) else counted
        rests = [rest] * len(held) if isinstance(rest, timedelta) else rest
        args = [
            value
            for each, count, one in zip(held, counts, rests, strict=True)
            for value in (each.token, int(count), milliseconds("rest", one, least=_NONE))
        ]
        keys = [name for each in held for name in (self.keys.claim(each.key), self.keys.attempts(each.key))]
        return Call(script.RELEASE, held, keys, (self._life,), args, _kept("cannot be released"))

    def forgets(self, consumer: str, event_ids: Iterable[UUID | str]) -> Call[bool]:
        """Take away all that is known of the events."""
        stem = self.keys.stem(consumer)
        marks = [f"{stem}{identity(each)}" for each in event_ids]
        keys = [name for mark in marks for name in self.keys.beside(mark)]
        return Call(script.FORGET, marks, keys, (), [], _truth)

    def discard(self, key: str, token: str) -> Call[bool]:
        """Take away a mark or a lock, if this token made it."""
        return Call(script.DISCARD, [key], [key], (), [token], _truth)

    def lock(self, name: str, token: str, lease: timedelta) -> Call[Locked | InProgress]:
        """Take the lock of a name."""
        key = self.keys.lock(name)

        lease_ms = milliseconds("lease", lease)

        def read(
            _: Sequence[str], words: list[str], __: list[bytes], sent_at: float
        ) -> list[Locked | InProgress | Done]:
            taken = Locked(name, token, sent_at + lease_ms / 1_000, lease, key)
            return [taken if words[0] == "C" else _occupied(words[0], iter(()))]

        return Call(script.LOCK, [name], [key], (lease_ms,), [token], read)

    def lock_renewal(self, held: Locked) -> Call[Locked]:
        """Prolong a lock."""
        lease_ms = milliseconds("lease", held.lease)

        def read(
            _: Sequence[Locked], words: list[str], __: list[bytes], sent_at: float
        ) -> list[Locked | LeaseLostError]:
            renewed = Locked(held.name, held.token, sent_at + lease_ms / 1_000, held.lease, held.key)
            lost = LeaseLostError(f"the lock {held.name!r} is no longer ours: its lease ran out unrenewed")
            return [renewed if words[0] == "K" else lost]

        return Call(script.RENEW, [held], [held.key], (), [held.token, lease_ms], read)


def in_progress(consumer: str, event_id: UUID | str, answer: InProgress) -> InProgressError:
    """The answer as an error, for calls that have no other way to give it."""
    seconds = answer.retry_after.total_seconds()
    return InProgressError(
        f"event {event_id} is in progress elsewhere for {consumer!r}, or rests; come again in {seconds:.3f} s",
        answer.retry_after,
    )


def processed(consumer: str, event_id: UUID | str, answer: MarkAnswer) -> bool:
    """Whether the event was marked before. Raises InProgressError while somebody holds it."""
    if isinstance(answer, InProgress):
        raise in_progress(consumer, event_id, answer)
    return isinstance(answer, Done)


def processed_many(
    consumer: str, event_ids: Iterable[UUID | str], answers: list[MarkAnswer | IdempotencyError]
) -> list[bool | IdempotencyError]:
    """`processed` for many events, with what it would raise in place of its answers."""
    return [
        answer
        if isinstance(answer, IdempotencyError)
        else in_progress(consumer, event_id, answer)
        if isinstance(answer, InProgress)
        else isinstance(answer, Done)
        for event_id, answer in zip(event_ids, answers, strict=True)
    ]


def _token(base: str, position: int) -> str:
    # One event may come twice in a call; two holders must not have one token.
    return f"{base}-{position}" if position else base


def _occupied(word: str, results: Any) -> InProgress | Done:
    if word[0] == "P":
        return InProgress(timedelta(milliseconds=int(word[1:])))
    match word[1:]:
        case "b":
            return Done(next(results))
        case "s":
            return Done(next(results).decode())
        case _:
            return Done()


def _prolonged(claim: Claimed, sent_at: float, lease: timedelta) -> Claimed:
    deadline = sent_at + milliseconds("lease", lease) / 1_000
    return Claimed(
        claim.consumer, claim.event_id, claim.token, claim.attempt, deadline, lease, claim.fingerprint, claim.key
    )


def _mark_value(claim: Claimed, result: Result) -> bytes:
    kind = "" if result is None else "s" if isinstance(result, str) else "b"
    head = f"{claim.token}\n{kind}\n{claim.fingerprint or ''}\n".encode()
    return head + (result.encode() if isinstance(result, str) else result or b"")


def _kept(what: str) -> Callable[[Sequence[Claimed], list[str], list[bytes], float], list[LeaseLostError | None]]:
    def read(items: Sequence[Claimed], words: list[str], _: list[bytes], __: float) -> list[LeaseLostError | None]:
        return [None if word == "K" else _lost(claim, what) for claim, word in zip(items, words, strict=True)]

    return read


def _truth(_: Sequence[Any], words: list[str], __: list[bytes], ___: float) -> list[bool]:
    return [word == "K" for word in words]


def _lost(claim: Claimed, what: str) -> LeaseLostError:
    return LeaseLostError(
        f"the claim of event {claim.event_id} for {claim.consumer!r} {what}: its lease ran out, or somebody else"
        " holds or has completed the event"
    )


def _conflict(consumer: str, event_id: UUID, fingerprint: str | None) -> FingerprintConflictError:
    return FingerprintConflictError(
        f"event {event_id} came to {consumer!r} with the fingerprint {fingerprint!r}, and is known with another one:"
        " two different things bear one identity; give one of them a new id"
    )
