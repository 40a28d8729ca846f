"""Every question to the store, and what is asked of each event."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from os import urandom
from typing import Any
from uuid import UUID

from idempotency import readings, script
from idempotency.answers import ClaimAnswer, Claimed, InProgress, Locked, MarkAnswer, Result
from idempotency.call import Call, Reader
from idempotency.errors import IdempotencyError, InvalidKeyError
from idempotency.keys import Keys, check_fingerprint, identity
from idempotency.readings import Asked
from idempotency.settings import Settings, milliseconds

_NONE = timedelta(0)


class Calls:
    """The questions of a store with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self._life = b"%d" % milliseconds("ttl", settings.ttl)

    def check(self, consumer: str, event_id: UUID | str) -> Call[bool]:
        """Mark one event; the answer is whether it was marked before."""
        return self._mark(consumer, event_id, readings.checks(consumer), telling=b"0")

    def mark(self, consumer: str, event_id: UUID | str) -> Call[MarkAnswer]:
        """Mark one event, with a token to take the mark back."""
        return self._mark(consumer, event_id, readings.marks(consumer), telling=b"1")

    def checks(self, consumer: str, event_ids: Iterable[UUID | str]) -> Call[bool]:
        """`check` for many events."""
        return self._marks(self._asked(consumer, event_ids), readings.checks(consumer), telling=b"0")

    def marks(self, consumer: str, event_ids: Iterable[UUID | str], tokens: Sequence[str] | None) -> Call[MarkAnswer]:
        """`mark` for many events."""
        return self._marks(self._asked(consumer, event_ids, tokens=tokens), readings.marks(consumer), telling=b"1")

    def claims(
        self,
        consumer: str,
        event_ids: Iterable[UUID | str],
        lease: timedelta | None,
        fingerprints: Sequence[str | None] | None,
        tokens: Sequence[str] | None = None,
    ) -> Call[ClaimAnswer]:
        """Claim the events, each by a token of its own."""
        lease = self.settings.lease if lease is None else lease
        lease_ms = milliseconds("lease", lease)
        claim, attempts = self.keys.claim, self.keys.attempts
        items, refused = self._asked(consumer, event_ids, fingerprints, tokens)
        keys = [key for _, _, mark, _ in items for key in (mark, claim(mark), attempts(mark))]
        args = [value for _, token, _, print_ in items for value in (token.encode(), (print_ or "").encode())]
        read = readings.claims(consumer, lease, lease_ms)
        return Call(script.CLAIM, items, keys, (b"%d" % lease_ms, self._life), args, read, refused)

    def renewals(self, claims: Iterable[Claimed], lease: timedelta | None) -> Call[Claimed]:
        """Prolong what is held, by a lease of its own length unless another one is given."""
        items = []
        for each in claims:
            chosen = each.lease if lease is None else lease
            items.append((each, chosen, milliseconds("lease", chosen)))
        keys = [self.keys.claim(each.key) for each, _, _ in items]
        args = [value for each, _, ms in items for value in (each.token.encode(), b"%d" % ms)]
        return Call(script.RENEW, items, keys, (), args, readings.renewals)

    def completions(self, claims: Iterable[Claimed], results: Sequence[Result] | None) -> Call[None]:
        """Mark what is held as processed."""
        held = list(claims)
        kept = [None] * len(held) if results is None else results
        args = [
            value
            for each, result in zip(held, kept, strict=True)
            for value in (each.token.encode(), _mark_value(each, result))
        ]
        keys = [name for each in held for name in self.keys.beside(each.key)]
        return Call(script.COMPLETE, held, keys, (self._life,), args, readings.kept("completed"))

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
            for value in (each.token.encode(), b"%d" % count, b"%d" % milliseconds("rest", one, least=_NONE))
        ]
        keys = [name for each in held for name in (self.keys.claim(each.key), self.keys.attempts(each.key))]
        return Call(script.RELEASE, held, keys, (self._life,), args, readings.kept("released"))

    def forget(self, consumer: str, event_id: UUID | str, only_result: Result) -> Call[bool]:
        """Take away all that is known of an event, where a result is given only if its completion has that."""
        mark = f"{self.keys.stem(consumer)}{identity(event_id)}"
        only = b"" if only_result is None else b"%s\n%s" % _written(only_result)
        return Call(script.FORGET, [mark], self.keys.beside(mark), (), [only], readings.truths)

    def discard(self, key: str, token: str) -> Call[bool]:
        """Take away a mark or a lock, if this token made it."""
        return Call(script.DISCARD, [key], [key], (), [token.encode()], readings.truths)

    def lock(self, name: str, token: str, lease: timedelta) -> Call[Locked | InProgress]:
        """Take the lock of a name."""
        key, lease_ms = self.keys.lock(name), milliseconds("lease", lease)
        return Call(
            script.LOCK,
            [(name, token, lease, lease_ms, key)],
            [key],
            (b"%d" % lease_ms,),
            [token.encode()],
            readings.locks,
        )

    def lock_renewal(self, held: Locked) -> Call[Locked]:
        """Prolong a lock."""
        lease_ms = milliseconds("lease", held.lease)
        items = [(held.name, held.token, held.lease, lease_ms, held.key)]
        return Call(script.RENEW, items, [held.key], (), [held.token.encode(), b"%d" % lease_ms], readings.locks)

    def _mark(self, consumer: str, event_id: UUID | str, read: Reader, *, telling: bytes) -> Call[Any]:
        found, token = identity(event_id), urandom(16).hex()
        key = f"{self.keys.stem(consumer)}{found}"
        return Call(
            script.MARK,
            [(found, token, key, None)],
            [key, self.keys.claim(key)],
            (self._life, telling),
            [token.encode()],
            read,
        )

    def _marks(
        self, asked: tuple[list[Asked], dict[int, IdempotencyError]], read: Reader, *, telling: bytes
    ) -> Call[Any]:
        items, refused = asked
        keys = [key for _, _, mark, _ in items for key in (mark, self.keys.claim(mark))]
        return Call(
            script.MARK, items, keys, (self._life, telling), [item[1].encode() for item in items], read, refused
        )

    def _asked(
        self,
        consumer: str,
        event_ids: Iterable[UUID | str],
        fingerprints: Sequence[str | None] | None = None,
        tokens: Sequence[str] | None = None,
    ) -> tuple[list[Asked], dict[int, IdempotencyError]]:
        """Each event with a token of its own; and why some are not asked about."""
        base, stem = urandom(16).hex(), self.keys.stem(consumer)
        events = list(event_ids)
        prints = [None] * len(events) if fingerprints is None else fingerprints
        items: list[Asked] = []
        refused: dict[int, IdempotencyError] = {}
        for position, (each, fingerprint) in enumerate(zip(events, prints, strict=True)):
            try:
                event_id = identity(each)
                if fingerprint is not None:
                    check_fingerprint(fingerprint)
            except InvalidKeyError as error:
                refused[position] = error
                continue
            # One event may come twice in a call; two holders must not have one token.
            token = tokens[position] if tokens else f"{base}-{position}"
            items.append((event_id, token, f"{stem}{event_id}", fingerprint))
        return items, refused


def _mark_value(claim: Claimed, result: Result) -> bytes:
    kind, body = _written(result)
    return b"%s\n%s\n%s\n%s" % (claim.token.encode(), kind, (claim.fingerprint or "").encode(), body)


def _written(result: Result) -> tuple[bytes, bytes]:
    """Of what kind a result is, and the result."""
    if result is None:
        return b"", b""
    return (b"s", result.encode()) if isinstance(result, str) else (b"b", result)
