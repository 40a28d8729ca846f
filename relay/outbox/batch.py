"""One transaction of the relay's: rows are claimed in it, and marked for what became of their messages."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from relay.errors import InvariantError
from relay.outbox.floors import Floors, Look
from relay.outbox.order import KEYS_A_CLAIM, Standing, Visited, Walk, ends_after, share, within
from relay.outbox.rows import (
    START,
    Beside,
    Candidates,
    Charged,
    Claim,
    Claimed,
    Glance,
    Heads,
    Place,
    Taken,
    fitting,
)
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import COMMIT, Row, Wire

# So many rows of a topic are locked by one look for probes, whatever their size.
PROBES = 3
PROBE_BYTES = 30_000_000
# No row is as small as this.
_NOTHING = -1
# Rows of no more than this come with what they carry, however many of them.
SMALL_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Known:
    """What the transactions of one relay know of the table, all of them.

    They look and claim one after the other, each where the one before has ended; that others of them are published
    and settled meanwhile is as if another relay did it.
    """

    walk: Walk
    floors: Floors
    keys: set[str] = field(default_factory=set)  # of which one of them has claimed rows
    beside: set[Beside] = field(default_factory=set)  # what the last claim has come by, and the next asks for at once
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Batch:
    """One open transaction on the outbox."""

    def __init__(self, wire: Wire, skew: float, known: Known, *, carries: bool = True) -> None:
        self.committed = False
        """Nothing more can be done in it."""
        self._wire = wire
        self._skew = skew
        self._known = known
        self._carries = carries
        self._open = False
        self._first: list[str] = []  # what is said before the first statement
        self._unsettled: set[int] = set()  # of the fresh rows that this transaction has claimed
        self._cut = False  # it may have locked fresh rows for which there was no room among the bytes
        self._keys: set[str] = set()  # of which this transaction has claimed rows
        self._marks: list[str] = []  # statements that wait for the commit

    async def claim(
        self, rows: int, size_bytes: int, open_topics: Sequence[str] = (), open_types: Sequence[str] = ()
    ) -> Claim:
        """Lock up to `rows` fresh, as many due and as many ordered rows, each kind bounded in bytes too.

        Rows that name one of the open topics, or name none and are of one of the types, stay where they are and do not
        count; with the first of a key, all of it stays.
        """
        limits = {
            "rows": rows,
            "bytes": size_bytes,
            "small": max(size_bytes // rows, SMALL_BYTES) if self._carries else _NOTHING,
            "carries": self._carries,
            "skew": self._skew,
            "open_topics": list(open_topics),
            "open_types": list(open_types),
        }
        async with self._known.turn:
            return await self._claim(limits, rows, size_bytes)

    async def _claim(self, limits: dict[str, Any], rows: int, size_bytes: int) -> Claim:
        walk, floors = self._known.walk, self._known.floors
        await self._begun()
        floor = floors.start([*limits["open_topics"], *limits["open_types"]])
        asked = {name: self._beside(name, limits) for name in sorted(self._known.beside)}
        glance = {
            "newest": not floors.busy,
            "keys": "walk_keys" not in asked,
            "due": "claim_delayed" not in asked,
            "ordered_safe": floors.ordered_safe,
            "skew": self._skew,
        }
        *found, (glanced,), fresh = await self._ask(
            *asked.values(),
            self._wire.call("glance", glance),
            self._wire.call("claim_fresh", {**limits, "floor": floor}),
        )
        seen = Glance._make(glanced)
        kinds = [await self._fresh(fresh, seen, limits)]
        blind = seen.seen_to is None and not _full(kinds[0], rows, size_bytes)  # nobody knows how far the table goes
        beside = {name: answer for name, answer in zip(asked, found, strict=True) if answer}
        if unexpected := seen.beside:
            answers = await self._ask(*[self._beside(name, limits) for name in unexpected])
            beside |= zip(unexpected, answers, strict=True)
        self._known.beside.clear()
        self._known.beside.update(beside)
        kinds.append([Claimed._make(row) for row in beside.get("claim_delayed", ())])
        visited = [Visited(*key) for key in beside.get("walk_keys", ())]
        ordered, standings = await self._lock(visited, rows, size_bytes)
        walk.visited(visited, rows, standings)
        full = floors.owes or any(_full(kind, rows, size_bytes) for kind in kinds)
        if not walk.unseen:
            full |= walk.round_ends()
        return Claim([row for kind in (*kinds, ordered) for row in kind], full, walk.unseen or blind)

    def _beside(self, name: Beside, limits: dict[str, Any]) -> str:
        if name == "claim_delayed":
            return self._wire.call(name, limits)
        place = {"share": share(limits["rows"]), "after": self._known.walk.after, "topic": None, "types": []}
        return self._look_at_keys({**limits, **place})

    async def candidates(self, topic: str, types: Sequence[str], after: Place, *, keys_first: bool) -> Candidates:
        """Lock up to three rows of a topic: the oldest, the next after a place, the newest.

        They name the topic, or name none and are of one of the types. They are rows without a key, or the first ones of
        keys: those where there are no others, or where they are to come first.

        For all of its looks a transaction waits for its `turn` once. With some of them done it has a session, which
        behind a pooler the one whose turn it is may be waiting for.
        """
        rows, keys = self._candidates_without_key, self._candidates_of_keys
        for look in (keys, rows) if keys_first else (rows, keys):
            found = await look(topic, types, after)
            if found.seen:
                break
            after = found.last
        return found

    async def _candidates_without_key(self, topic: str, types: Sequence[str], after: Place) -> Candidates:
        values = {"topic": topic, "types": list(types), "after_time": after.available_at, "after_id": after.id}
        await self._begun()
        limits = {"floor": self._known.floors.fresh_safe, "skew": self._skew}
        (found,) = await self._ask(self._wire.call("claim_probes", {**values, **limits}))
        rows = [Claimed._make(columns) for *columns, held, _, _ in found if held]
        next_places = [Place(time, row_id) for *_, time, row_id in found if row_id is not None]
        # Beyond the newest the next look begins anew.
        last = next_places[0] if next_places else START
        return Candidates(rows, bool(found), last._replace(ordering_key=after.ordering_key))

    async def _candidates_of_keys(self, topic: str, types: Sequence[str], after: Place) -> Candidates:
        heads = await self.heads(topic, types, after.ordering_key, PROBES - 1, PROBE_BYTES)
        (found,) = await self._ask(self._wire.call("newest_key", {"topic": topic, "types": list(types)}))
        newest = [key for key in (Visited(*row) for row in found) if key.ordering_key not in self._known.keys]
        last, _ = await self._lock(newest, 1, PROBE_BYTES)
        seen = bool(heads.seen or newest or heads.after or after.ordering_key)
        return Candidates(heads.rows + last, seen, after._replace(ordering_key=heads.after))

    async def controls(
        self, topic: str, types: Sequence[str], beyond: int, rows: int, size_bytes: int
    ) -> list[Claimed]:
        """Lock the newest fresh rows of a topic beyond an id, each of at most these bytes, the newest first."""
        above = max(beyond, self._known.floors.fresh_safe)
        limits = {"topic": topic, "types": list(types), "beyond": above, "rows": rows, "bytes": size_bytes}
        (found,) = await self._ask(self._wire.call("claim_controls", limits))
        claimed = [Claimed._make(row) for row in found]
        self._unsettled.update(row.id for row in claimed)
        return claimed

    async def heads(self, topic: str, types: Sequence[str], after: str, rows: int, size_bytes: int) -> Heads:
        """Lock the first rows of up to so many keys of a topic, beyond a key; none of a key that was claimed."""
        looked = {"rows": rows, "share": 1, "skew": self._skew, "after": after, "topic": topic, "types": list(types)}
        await self._begun()
        (keys,) = await self._ask(self._look_at_keys({**looked, "open_topics": [], "open_types": []}))
        visited = [Visited(*key) for key in keys]
        heads = [key._replace(ids=key.ids[:1]) for key in visited]
        claimed, _ = await self._lock(heads, rows, size_bytes)
        return Heads(claimed, sum(bool(key.ids) for key in heads), ends_after(visited, rows))

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        """Commit at the end of the block; what is marked in it travels in one message with the commit.

        A relay that is stopped at any moment has sent nothing of it that counts, or all.
        """
        yield
        await self._commit(*self._marks)

    def mark(self, accepted: Mapping[str, Sequence[Taken]], charged: Sequence[Charged]) -> None:
        """While settling, mark what each topic took, and who pays for what they did not.

        A number of rows that is not as expected is found only when the block ends, by the server.
        """
        for topic, taken in accepted.items():
            ids = [row.id for row, _ in taken]
            message_ids = texts([message_id for _, message_id in taken])
            self._mark("settle_published", ids, {"ids": numbers(ids), "message_ids": message_ids, "topic": topic})
        if charged:
            ids, attempts, codes, errors, reasons, blocks, delays = map(list, zip(*charged, strict=True))
            values = {"attempts": attempts, "codes": codes, "errors": errors, "reasons": reasons, "blocks": blocks}
            self._mark("settle_charged", ids, {**values, "ids": ids, "delays": delays, "skew": self._skew})

    async def hand_over(self, name: str, values: Mapping[str, object]) -> list[Row]:
        """Say a statement that settles all that was claimed, and commit with it, in one message; answers with its rows.

        For whoever moves rows inside of the database; the statement is the caller's own.
        """
        answers = await self._commit(self._wire.call(name, values))
        self._unsettled.clear()
        return answers[0]

    @property
    def turn(self) -> asyncio.Lock:
        """Held while rows are looked for: transactions do so one after the other."""
        return self._known.turn

    def ended(self) -> None:
        """Its locks are gone."""
        self._known.keys.difference_update(self._keys)

    @property
    def released(self) -> bool:
        """Whether fresh rows were locked and left as they were: claims beside this one have passed them."""
        return self._cut or bool(self._unsettled)

    async def _fresh(self, found: Sequence[Row], glance: Glance, limits: dict[str, Any]) -> list[Claimed]:
        locked = [Claimed._make(columns) for columns in found]
        fresh = fitting(locked, limits["bytes"])
        self._cut = len(fresh) < len(locked)
        full = self._cut or _full(fresh, limits["rows"], limits["bytes"])
        ids = {row.id for row in fresh}
        end = max(ids) if full else glance.seen_to
        self._known.floors.claimed(end, glance.file, full=full, seconds_before=glance.seconds_before)
        self._unsettled |= ids
        return await self._whole(fresh, limits["small"])

    async def _whole(self, rows: list[Claimed], small: int) -> list[Claimed]:
        """The same rows, of which those that are not small have come without what they carry."""
        large = [row.id for row in rows if row.size_bytes > small]
        if not (large and self._carries):
            return rows
        (read,) = await self._ask(self._wire.call("read_large", {"ids": numbers(large)}))
        carried = {row_id: (body, attributes) for row_id, body, attributes in read}
        return [row if row.size_bytes <= small else _carrying(row, *carried[row.id]) for row in rows]

    def _look_at_keys(self, looked: dict[str, Any]) -> str:
        """Asks which keys can go on, and what waits in them; nothing is locked."""
        limits = {"keys": KEYS_A_CLAIM, "floor": self._known.floors.ordered_safe, "without": list(self._known.keys)}
        return self._wire.call("walk_keys", {**looked, **limits})

    async def _lock(
        self, visited: Sequence[Visited], rows: int, size_bytes: int
    ) -> tuple[list[Claimed], dict[int, Standing]]:
        """Lock what waits in these keys; answer with what of each may be sent, and how every row of it stands."""
        wanted = [(row_id, place) for place, key in enumerate(within(visited, rows)) for row_id in key.ids]
        if not wanted:
            return [], {}
        ids, places = map(numbers, zip(*wanted, strict=True))
        limits = {
            "ids": ids,
            "key_places": places,
            "bytes": size_bytes,
            "carries": self._carries,
            "skew": self._skew,
        }
        (found,) = await self._ask(self._wire.call("claim_ordered", limits))
        reached: list[tuple[Claimed, Standing]] = [(Claimed._make(row[:-1]), row[-1]) for row in found]
        claimed = [row for row, standing in reached if standing == "taken"]
        self._keys.update(row.ordering_key for row in claimed if row.ordering_key)
        self._known.keys.update(self._keys)
        return claimed, {row.id: standing for row, standing in reached}

    async def _commit(self, *statements: str) -> list[list[Row]]:
        try:
            answers = await self._wire.say(*statements, COMMIT)
        except psycopg.errors.InvalidTextRepresentation as error:
            raise InvariantError(
                f"{error.diag.message_primary}, although this transaction holds their locks; "
                "it is rolled back and the rows are claimed again"
            ) from error
        self.committed = True
        return answers

    async def _begun(self) -> None:
        """Begin unless that is done; the next statement takes the beginning along.

        Not so with a look for the floors, which comes once a second and is waited for: it must see the table before the
        claim does, and how long it takes tells when to look again.
        """
        if self._open:
            return
        self._open = True
        self._first = [*self._wire.begin(), self._wire.call("hold", {})]
        if not self._known.floors.asks:
            return
        await self._ask()  # it may have to wait for a lock, which is no part of the look
        if question := self._known.floors.question():
            (answer,) = await self._ask(self._wire.call("floors", question))
            self._known.floors.answer(Look._make(answer[0]))

    async def _ask(self, *calls: str) -> list[list[Row]]:
        """Say statements; answer with the rows of each."""
        first, self._first = self._first, []
        answers = await self._wire.say(*first, *calls)
        return answers[len(answers) - len(calls) :]

    def _mark(self, name: str, ids: Collection[int], values: dict[str, Any]) -> None:
        self._unsettled.difference_update(ids)
        self._marks.append(self._wire.call(name, {**values, "expected": len(ids)}))


def _carrying(row: Claimed, body: bytes, attributes: bytes | None) -> Claimed:
    return row._replace(body=body, attributes=attributes)


def _full(kind: Sequence[Claimed], rows: int, size_bytes: int) -> bool:
    return len(kind) >= rows or sum(row.size_bytes for row in kind) >= size_bytes
