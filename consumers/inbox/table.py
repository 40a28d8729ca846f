"""The inbox of one consumer, as the statements of `sql/`: values go in, values come out."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from consumers.backlog import Queue
from consumers.delivery import Delivery
from consumers.inbox.arriving import said_of
from consumers.inbox.rows import Arrival, Claimed, Head, Owned, Recovered, Waiting, Word
from consumers.inbox.session import Connect, Session
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import Row

# Rows in one statement: more make it no cheaper, and hold others up for longer.
MOST_ROWS: Final = 500
# Of those that are to run alone so many are found, for others find them as well.
_SUSPECTS: Final = 10
# So far counts whoever looks how much waits.
MOST_COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose inbox it is, and who asks."""

    consumer: str
    owner: str
    """This process, for people: `<host>:<pid>:<random>`."""
    lease_seconds: float
    shard: int = 0
    shards: int = 1


class Table:
    """Four sessions, so that none of these waits for another: what arrives, what is claimed, what is said, leases."""

    def __init__(
        self,
        connect: Connect,
        schema: str,
        identity: Identity,
        *,
        skew: Callable[[], float] = lambda: 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self._monotonic = monotonic
        self._whose = {"consumer": identity.consumer}
        self._shard = {"shard": identity.shard, "shards": identity.shards}
        self._sessions = [Session(connect, schema, skew) for _ in range(4)]
        self._intake, self._claims, self._words, self._leases = self._sessions

    async def receive(self, arrivals: Sequence[Arrival]) -> set[str]:
        """Store what is new, and answer with its event ids. Raises one of UNKEPT where one cannot be stored."""
        rows = await self._intake.ask("receive", said_of(arrivals, self.identity.consumer))
        return {row[0] for row in rows}

    async def look(self) -> Waiting:
        """What waits."""
        types: dict[str, float] = {}
        suspects: dict[str, float] = {}
        keyed = False
        for kind, event_type, due_in in await self._claims.ask("look", {**self._whose, **self._shard}):
            match kind:
                case "type":
                    types[event_type] = float(due_in)
                case "suspect":
                    suspects[event_type] = float(due_in)
                case _:
                    keyed = True
        return Waiting(types, keyed, suspects)

    async def queue(self, most: int = MOST_COUNTED) -> Queue:
        """How much waits, is worked on and has failed, for all processes; nothing is counted further than to `most`."""
        ((due, due_is_least, oldest, *others),) = await self._claims.ask("queue", {**self._whose, "most": most})
        counts = {"due": int(due), **dict(zip(("processing", "sent", "failed"), map(int, others), strict=True))}
        least = [name for name, count in counts.items() if count > most or (name == "due" and due_is_least)]
        return Queue(
            **{name: min(count, most) for name, count in counts.items()},
            oldest_due_seconds=float(oldest),
            at_least=tuple(least),
        )

    async def walk(self, after: str, most: int) -> list[Head]:
        """The first rows of up to so many ordering keys behind this one."""
        wanted = {**self._whose, **self._shard, "after": after, "most": most}
        rows = await self._claims.ask("walk_keys", wanted)
        return [Head(key, int(id_), event_type, bool(ready), float(due)) for key, id_, event_type, ready, due in rows]

    async def claim_ready(self, rooms: Mapping[str, int], most: int) -> list[Claimed]:
        """Claim what is due and has no key, up to so many of each type, and in all."""
        wanted = {**self._wanted(rooms), "most": min(most, MOST_ROWS)}
        return await self._claim("claim_ready+begin", wanted, alone=False)

    async def claim_heads(self, ids: Sequence[int]) -> list[Claimed]:
        """Claim these rows, which were found to be the first of their keys."""
        return await self._claim("claim_heads+begin", {"ids": numbers(sorted(ids))}, alone=False, keyed=True)

    async def claim_suspect(self, event_types: Iterable[str]) -> list[Claimed]:
        """Claim one row whose last owner died with it, if one of these types is due; nothing may run beside it."""
        wanted = {**self._whose, **self._shard, "types": texts(list(event_types)), "most": _SUSPECTS}
        ids = [int(row[0]) for row in await self._claims.ask("find_suspects", wanted)]
        return await self._claim("claim_suspect+begin", {"ids": numbers(ids)}, alone=True, keyed=True) if ids else []

    async def settle(self, words: Sequence[Word]) -> list[str]:
        """Say what becomes of rows; for each what became of that."""
        answers = [""] * len(words)
        for place, answer in await self._words.ask("settle", _columns(words)):
            answers[int(place) - 1] = answer
        return answers

    async def confirm(self, owned: Sequence[Owned]) -> list[bool]:
        """For each whether its handler's own transaction has ended it, and was committed."""
        rows = await self._words.ask("confirm", _names(owned))
        ended = {int(row[0]) for row in rows}
        return [each.id in ended for each in owned]

    async def renew(self, owned: Sequence[Owned]) -> tuple[float, list[str]]:
        """Renew leases; until when those are ours that were, and for each: renewed, held or lost."""
        deadline = self._monotonic() + self.identity.lease_seconds
        answers = [""] * len(owned)
        values = {**_names(owned), "lease": self.identity.lease_seconds}
        for place, answer in await self._leases.ask("renew", values):
            answers[int(place) - 1] = answer
        return deadline, answers

    async def recover(self, most: int = MOST_ROWS) -> list[Recovered]:
        """Take from their owners what those have let expire."""
        rows = await self._leases.ask("recover", {**self._whose, "most": most})
        return [Recovered(int(row[0]), row[1], row[2], int(row[3]), row[4] or "", bool(row[5])) for row in rows]

    async def ask(self, name: str, values: Mapping[str, object]) -> list[Row]:
        """What the statement of this name answers, on the session of what is said; for what is asked now and then."""
        return await self._words.ask(name, {**self._whose, **values})

    async def close(self) -> None:
        """End the sessions."""
        for session in self._sessions:
            await session.close()

    def cut(self) -> None:
        """End the sessions without a word, and make none any more."""
        for session in self._sessions:
            session.cut()

    def _wanted(self, rooms: Mapping[str, int]) -> dict[str, object]:
        return {"types": texts(list(rooms)), "rooms": numbers(rooms.values())}

    async def _claim(
        self, name: str, wanted: Mapping[str, object], *, alone: bool, keyed: bool = False
    ) -> list[Claimed]:
        token = str(uuid4())
        deadline = self._monotonic() + self.identity.lease_seconds
        values = {
            **self._whose,
            **self._shard,
            **wanted,
            "token": token,
            "owner": self.identity.owner,
            "lease": self.identity.lease_seconds,
            "alone": alone,
        }
        locked = [("lock_keys", wanted)] if keyed else []
        *_, rows = await self._claims.ask_together(*locked, (name, values))
        return [_claimed(row, token, deadline, alone=alone) for row in rows]


def _claimed(row: Row, token: str, deadline: float, *, alone: bool) -> Claimed:
    id_, event_type, envelope, attributes, key, message_id, recipient, attempt, deferrals, *times = row
    created, first_started = map(float, times)
    owned = Owned(
        id=int(id_),
        event_type=event_type,
        token=token,
        deadline=deadline,
        attempt=int(attempt),
        deferrals=int(deferrals),
        alone=alone,
    )
    delivery = Delivery(
        body=envelope,
        attributes=json.loads(attributes),
        message_id=message_id,
        ordering_key=key,
        published_at=created,
        attempt=owned.attempt,
        recipient=recipient,
        lane=f"{owned.id}",
        first_attempt_at=first_started,
        handle=owned,
    )
    return Claimed(owned, delivery)


def _names(owned: Sequence[Owned]) -> dict[str, object]:
    return {"ids": numbers(each.id for each in owned), "tokens": texts([each.token for each in owned])}


def _columns(words: Sequence[Word]) -> dict[str, Any]:
    return {
        "ids": numbers(word.owned.id for word in words),
        "tokens": texts([word.owned.token for word in words]),
        "states": texts([word.state for word in words]),
        "outcomes": texts([word.outcome for word in words]),
        "rests": f"{{{','.join([str(word.rest) for word in words])}}}",
        "refunds": numbers(int(word.refunded) for word in words),
        "defers": numbers(int(word.deferred) for word in words),
        "cleared": texts(["t" if word.cleared else "f" for word in words]),
        "results": texts([word.result for word in words]),
        "codes": texts([word.code for word in words]),
        "errors": texts([word.error for word in words]),
        "tickets": texts([word.ticket for word in words]),
        "versions": f"{{{','.join(['null' if word.version is None else str(word.version) for word in words])}}}",
        "whats": texts([word.what for word in words]),
        "details": texts(["" if word.detail is None else json.dumps(word.detail) for word in words]),
    }
