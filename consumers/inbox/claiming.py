"""From the inbox to the handlers: a permit first, then a row for it."""

import asyncio
import math
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from consumers.clock import Clock
from consumers.events import ClaimMade, LeaseRecovered
from consumers.inbox.inbox import Inbox
from consumers.inbox.outage import Outage
from consumers.inbox.rows import Claimed, Head, Owned
from consumers.inbox.table import MOST_ROWS, Table
from consumers.sources.source import Demand, Share, Take
from idempotency import StoreUnavailableError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.observe import Observe

# Ordering keys that one walk visits: some for each permit, or many where the last one found none that may go.
_KEYS_A_PERMIT: Final = 4
_FEWEST_KEYS: Final = 20
_MOST_KEYS: Final = 1_000
# Polls of several processes drift apart by a tenth to either side.
_POLL_JITTER: Final = 0.1
# How long a type that no handler here is for is left to processes that may have one.
UNKNOWN_SECONDS: Final = 600.0
# The end waits so long for a claim that is under way: what it brings would otherwise rest until its lease ends.
_LAST_CLAIM_SECONDS: Final = 1.0


class Arrived(Protocol):
    """What was stored: one event, or several of which that is true."""

    @property
    def event_type(self) -> str:
        """Its type."""
        ...

    @property
    def ordering_key(self) -> str:
        """Its key; empty where it has none."""
        ...


@dataclass(slots=True)
class Round:
    """Walks from the first ordering key to the last."""

    claimed: int = 0
    fruitful: bool = True
    due_at: float = math.inf
    """When the first row of a key is due that was not, by the process's clock."""
    overtaken: bool = False
    """Whether something has arrived or ended since it began, of a key that it may have passed by then."""


class Claiming:
    """Asks for as many rows as may begin, of the types that wait. Where nothing waits it looks every now and then."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        table: Table,
        inbox: Inbox,
        observe: Observe,
        clock: Clock,
        *,
        poll_seconds: float,
        jitter: Jitter = uniform,
    ) -> None:
        self._table = table
        self._inbox = inbox
        self._observe = observe
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._jitter = jitter
        self._outage = Outage(table.identity.consumer, "claim", observe, clock, jitter)
        self._news = asyncio.Event()
        # When the first of each type is due, by the process's clock: of what has no key, and of what is suspect.
        self._types: dict[str, float] = {}
        self._suspects: dict[str, float] = {}
        self._alone: Owned | None = None
        self._emptying_since: float | None = None
        self._keyed = False
        # Whether what has no key took all permits last time, so that those with keys come first.
        self._keys_waited = False
        self._after = ""
        self._round = Round()
        self._look_at = 0.0

    def arrived(self, arrivals: Iterable[Arrived]) -> None:
        """Something was stored."""
        for arrival in arrivals:
            if arrival.ordering_key:
                self._keyed = self._round.overtaken = True
            else:
                self._types[arrival.event_type] = self._clock.monotonic()
        self._news.set()

    def ended(self, ordering_key: str, event_type: str, due_in: float | None) -> None:
        """A row was settled: the next of its key may go, or it comes again itself."""
        if ordering_key:
            self._keyed = self._round.overtaken = True
        if due_in is not None and not ordering_key:
            at = self._clock.monotonic() + due_in
            self._types[event_type] = min(at, self._types.get(event_type, at))
        self._news.set()

    async def run(self, take: Take, demand: Demand) -> None:
        """Claim until cancelled."""
        while True:
            demand.freed.clear()
            self._news.clear()
            try:
                if self._clock.monotonic() >= self._look_at:
                    await self._look()
                going_on = await self._turn(take, demand)
            except StoreUnavailableError as error:
                self._look_at = 0.0
                await self._outage.wait(error)
                continue
            self._outage.over()
            if not going_on:
                await self._rest(demand)

    async def _turn(self, take: Take, demand: Demand) -> bool:
        """Claim once what may be claimed; false where nothing is to be had for now."""
        if self._alone is not None and not self._alone.over:
            return False  # what began beside it would make it pay for a crash that it had no part in
        now = self._clock.monotonic()
        suspects = self._due(self._suspects, demand, now)
        if suspects and demand.idle:
            return await self._one_alone(suspects, take)
        if self._is_emptying(now, wanted=bool(suspects)) or not demand.room:
            return False
        keys_first = self._keyed and self._keys_waited
        claimed = await self._heads(take, demand) if keys_first else 0
        for share in demand.shares(self._due(self._types, demand, now)):
            claimed += await self._ready(share, take, demand)
        self._keys_waited = self._keyed and not keys_first and not demand.room
        if self._keyed and not keys_first and demand.room:
            claimed += await self._heads(take, demand)
        return bool(claimed)

    def _is_emptying(self, now: float, *, wanted: bool) -> bool:
        """Whether nothing is to begin, so that a suspect may; where something does not end, every other while."""
        if not wanted:
            self._emptying_since = None
            return False
        if self._emptying_since is None:
            self._emptying_since = now
        return (now - self._emptying_since) // self._table.identity.lease_seconds % 2 == 0

    async def _one_alone(self, event_types: Sequence[str], take: Take) -> bool:
        """Whoever's last owner died runs by itself: if it was its fault, nobody else pays for it again."""
        self._emptying_since = None
        claimed = await self._claimed("alone", 1, self._table.claim_suspect(event_types), take)
        if claimed:
            self._alone = claimed[0].owned
        else:
            self._suspects.clear()
        return True

    async def _ready(self, share: Share, take: Take, demand: Demand) -> int:
        # Of a type without a handler the longest waiting alone: those behind it have not waited for long enough yet.
        rooms = {each: room if demand.handled(each) else 1 for each, room in share.rooms.items()}
        for event_type in rooms:
            # Whatever arrives from here on counts; the last served is the first no longer.
            del self._types[event_type]
        most = min(share.most, MOST_ROWS)
        claimed = await self._claimed("ready", most, self._table.claim_ready(rooms, most), take)
        found = dict.fromkeys(rooms, 0)
        for each in claimed:
            found[each.owned.event_type] += 1
        for event_type, wanted in rooms.items():
            if found[event_type] >= wanted or len(claimed) >= most:
                self._types.setdefault(event_type, self._clock.monotonic())
        return len(claimed)

    async def _heads(self, take: Take, demand: Demand) -> int:
        if not self._after:
            self._round = Round()
        most = min(_MOST_KEYS, max(_FEWEST_KEYS, _KEYS_A_PERMIT * demand.room) if self._round.fruitful else _MOST_KEYS)
        heads = await self._table.walk(self._after, most)
        self._after = heads[-1].key if len(heads) == most else ""
        now = self._clock.monotonic()
        self._round.due_at = min([self._round.due_at, *(now + head.due_in for head in heads if head.due_in > 0)])
        ready = [head for head in heads if head.ready and _meant(head.event_type, head.due_in, demand)]
        shares = demand.shares(dict.fromkeys(head.event_type for head in ready))
        chosen = _chosen(ready, shares)
        if 0 < len(chosen) < len(ready) and len(chosen) == sum(share.most for share in shares):
            self._after = chosen[-1].key  # the next permit is for the next key: none goes without a turn
        ids = [head.id for head in chosen]
        claimed = await self._claimed("key", len(ids), self._table.claim_heads(ids), take) if ids else []
        self._round.fruitful = bool(claimed)
        self._round.claimed += len(claimed)
        if not self._after and not claimed:
            # All keys were seen. One of them is free again when its first row ends or is due; others look now and then.
            self._keyed = self._round.overtaken or self._round.claimed > 0
            self._look_at = min(self._look_at, self._round.due_at)
        return len(claimed) or int(bool(self._after))

    async def _claimed(self, way: str, wanted: int, claim: Awaitable[list[Claimed]], take: Take) -> list[Claimed]:
        asked = asyncio.ensure_future(claim)
        try:
            claimed = await asyncio.shield(asked)
        except asyncio.CancelledError:
            await self._hand_back(asked)
            raise
        for each in claimed:
            self._inbox.hold(each.owned)
        take([each.delivery for each in claimed])
        conflicts = wanted - len(claimed) if way == "key" else 0
        self._observe(ClaimMade(self._table.identity.consumer, way, wanted, len(claimed), conflicts))
        return claimed

    async def _hand_back(self, asked: "asyncio.Future[list[Claimed]]") -> None:
        done, _ = await asyncio.wait([asked], timeout=_LAST_CLAIM_SECONDS)
        if not done:
            asked.cancel()
        elif asked.exception() is None:
            for each in asked.result():
                self._inbox.give_back(each.owned, 0.0)

    async def _look(self) -> None:
        now = self._clock.monotonic()
        self._look_at = now + self._poll_seconds * (1 - _POLL_JITTER + self._jitter(2 * _POLL_JITTER))
        for each in await self._table.recover():
            self._observe(
                LeaseRecovered(
                    self._table.identity.consumer,
                    each.id,
                    each.event_id,
                    each.event_type,
                    each.attempt,
                    each.owner,
                    each.alone,
                )
            )
        waiting = await self._table.look()
        now = self._clock.monotonic()
        for event_type, due_in in waiting.types.items():
            at = now + due_in
            self._types[event_type] = min(at, self._types.get(event_type, at))
        self._suspects = {event_type: now + due_in for event_type, due_in in waiting.suspects.items()}
        self._keyed = self._keyed or waiting.keyed

    async def _rest(self, demand: Demand) -> None:
        """Until something arrives, ends or is due, or it is time to look."""
        now = self._clock.monotonic()
        soon = [at for at in (*self._types.values(), *self._suspects.values()) if at > now]
        seconds = max(0.0, min([self._look_at, *soon]) - now)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._news, demand.freed)]
        timer = self._clock.call_later(seconds, self._news.set)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for wait in waits:
                wait.cancel()

    @staticmethod
    def _due(times: dict[str, float], demand: Demand, now: float) -> list[str]:
        return [
            event_type
            for event_type, at in times.items()
            if at <= now and not demand.paused(event_type) and _meant(event_type, at - now, demand)
        ]


def _meant(event_type: str, due_in: float, demand: Demand) -> bool:
    """Whether it is for this process: it has a handler, or has left it to others that may have one for long enough."""
    return demand.handled(event_type) or due_in <= -UNKNOWN_SECONDS


def _chosen(heads: Sequence[Head], shares: Sequence[Share]) -> list[Head]:
    """Those of them that there is room for, by their order."""
    chosen: list[Head] = []
    rooms = {event_type: room for share in shares for event_type, room in share.rooms.items()}
    left = [share.most for share in shares]
    place = {event_type: number for number, share in enumerate(shares) for event_type in share.rooms}
    for head in heads:
        of = place.get(head.event_type)
        if of is not None and rooms[head.event_type] > 0 and left[of] > 0:
            rooms[head.event_type] -= 1
            left[of] -= 1
            chosen.append(head)
    return chosen
