"""What became of every event, and what must never become of one: the judge of the model tests."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

from relay.envelope import Message
from relay.failed_head import FailedHead


@dataclass(slots=True)
class Known:
    """An event as its writer knows it."""

    event_id: str
    id: int
    key: str | None
    event_type: str
    topic: str  # where it has to go
    sick: str | None  # the error that its message draws, until it is healed
    ever_sick: bool
    unbuildable: bool  # no message can be made of its row: it is never sent
    committed: bool = False


class _Row(NamedTuple):
    """A row as everybody sees it."""

    event_id: str
    published: bool
    message_id: str | None
    topic: str | None
    attempts: int
    failed: bool
    discarded: bool
    blocks: bool
    waits: bool  # not due yet


_ROWS = """
select event_id::text, published_at is not null, message_id, topic, attempt_count, failed_at is not null,
       coalesce(failure_reason = 'discarded', false), blocks_key,
       available_at > clock_timestamp()
  from outbox_events"""
_BEFORE = """
select event.event_id::text, earlier.event_id::text
  from outbox_events as event
  join outbox_events as earlier on earlier.ordering_key = event.ordering_key and earlier.id < event.id
 where event.event_id = any (%s::uuid[])
   and earlier.published_at is null and (earlier.failed_at is null or earlier.blocks_key)"""


class Ledger:
    """Every event, every delivery, and what was wrong with them.

    A request is judged at the moment in which the broker is asked, by what is committed then.
    """

    def __init__(self, url: str) -> None:
        self.heads: list[FailedHead] = []  # the settings of the relays
        self._truth = psycopg.connect(url, autocommit=True)
        self.events: dict[str, Known] = {}
        self.wrong: list[str] = []
        self.deliveries: Counter[str] = Counter()
        self._repeats: Counter[str] = Counter()  # deliveries that nobody but the broker remembers
        self._first: defaultdict[str, list[int]] = defaultdict(list)  # of each key, by the events' ids
        self._commits: defaultdict[str, list[int]] = defaultdict(list)
        self._passed_over: set[str] = set()  # failed without blocking their key: order is not theirs any more
        self._receipts: set[tuple[str, str, str]] = set()

    def gone(self, pids: Sequence[int]) -> bool:
        """Whether none of these sessions is left, with whatever it had locked."""
        query = "select not exists (select from pg_stat_activity where pid = any (%s))"
        return bool(self._truth.execute(query, [list(pids)]).fetchall()[0][0])

    def close(self) -> None:
        """Look no more."""
        self._truth.close()

    def committed(self, events: Iterable[Known]) -> None:
        """A writer has committed these, in the order in which it emitted them."""
        for known in events:
            known.committed = True
            if known.key is not None:
                self._commits[known.key].append(known.id)

    def passed_over(self, event_ids: Iterable[str]) -> None:
        """These rows hold up nothing: what stands behind them may go first."""
        self._passed_over.update(event_ids)

    def may_repeat(self, event_ids: Iterable[str]) -> None:
        """The broker took these, and no relay will remember."""
        self._repeats.update(event_ids)

    def asked(self, topic: str, messages: Sequence[Message]) -> None:
        """A relay sends these messages in one request, which may be taken or not."""
        ids = [message.attributes["event_id"] for message in messages]
        rows = {row.event_id: row for row in self._rows(ids)}
        before = defaultdict(list)
        for event_id, earlier in self._truth.execute(_BEFORE, [ids]).fetchall():
            before[event_id].append(earlier)
        for place, (message, event_id) in enumerate(zip(messages, ids, strict=True)):
            missing = [each for each in before[event_id] if each not in ids[:place]]
            self.wrong += self._faults(topic, message, rows.get(event_id), missing)

    def delivered(self, topic: str, messages: Sequence[Message], receipts: Sequence[str]) -> list[str]:
        """The broker takes the request; answer with its events."""
        ids = [message.attributes["event_id"] for message in messages]
        for event_id, receipt in zip(ids, receipts, strict=True):
            known = self.events.get(event_id)
            if known and known.key is not None and not self.deliveries[event_id]:
                self._first[known.key].append(known.id)
            self.deliveries[event_id] += 1
            self._receipts.add((event_id, topic, receipt))
        return ids

    def check(self) -> None:
        """Nothing of what must never happen has happened."""
        rows = self._rows(list(self.events))
        for row in rows:
            self._check_row(row, self.events[row.event_id])
        assert not self.wrong, self.wrong
        (count,) = self._truth.execute("select count(*) from outbox_events").fetchone() or (0,)
        committed = {known.event_id for known in self.events.values() if known.committed}
        assert {row.event_id for row in rows} == committed
        assert count == len(committed), "a row is nobody's"
        for key, ids in self._commits.items():
            assert ids == sorted(ids), f"{key}: committed in the order {ids}"
        orderly = {known.id for known in self.events.values() if known.event_id not in self._passed_over}
        for key, ids in self._first.items():
            first = [each for each in ids if each in orderly]
            assert first == sorted(first), f"{key}: first delivered in the order {ids}"
        repeated = [each for each, times in self.deliveries.items() if times > 1 + self._repeats[each]]
        assert not repeated, f"delivered again for no reason: {self._told(repeated)}"

    def stranded(self) -> list[str]:
        """Rows that are pending, and not because an earlier row of their key has failed and blocks it."""
        return self._told(
            event_id
            for (event_id,) in self._truth.execute(
                """
                select event_id::text from outbox_events as event
                 where published_at is null and failed_at is null
                   and not exists (select from outbox_events as head
                                    where head.ordering_key = event.ordering_key and head.id < event.id
                                      and head.blocks_key)"""
            ).fetchall()
        )

    def _rows(self, ids: Sequence[str]) -> list[_Row]:
        found = self._truth.execute(_ROWS + " where event_id = any (%s::uuid[])", [list(ids)])
        return [_Row(*row) for row in found.fetchall()]

    def _faults(self, topic: str, message: Message, row: _Row | None, before: Sequence[str]) -> Iterable[str]:
        event_id = message.attributes["event_id"]
        known = self.events.get(event_id)
        if row is None or known is None:
            yield f"{event_id} was sent, and nobody committed it"
            return
        name = self._name(known)
        if row.published or row.failed or row.waits:
            yield f"{name} was sent, and is {row}"
        if (topic, message.ordering_key) != (known.topic, known.key or ""):
            yield f"{name} went to {topic} with the key {message.ordering_key!r}"
        earlier = [each for each in before if not (self.deliveries[each] or self._gives_way(each))]
        if earlier:
            yield f"{name} was sent before {self._told(earlier)} of its key"

    def _gives_way(self, event_id: str) -> bool:
        """Whether what is behind it may go first: it failed without blocking, or will when this batch is settled."""
        known = self.events[event_id]
        skips = not all(head.blocks(known.event_type) for head in self.heads)
        return event_id in self._passed_over or (known.unbuildable and skips)

    def _check_row(self, row: _Row, known: Known) -> None:
        name = self._name(known)
        assert known.committed, f"{name} is there, and was not committed"
        if row.failed and known.key is not None and not row.blocks:
            self._passed_over.add(known.event_id)
        assert not (row.discarded and row.blocks), f"{name} was discarded, and blocks its key"
        if row.failed and not row.discarded and known.key is not None:
            assert row.blocks in {head.blocks(known.event_type) for head in self.heads}, f"{name}: {row}"
        if row.attempts or row.failed:
            assert known.ever_sick, f"{name} is healthy, and pays: {row}"
        if row.published:
            receipt = (known.event_id, row.topic, row.message_id)
            assert receipt in self._receipts, f"{name} is published, and the broker has not taken it: {row}"

    def _told(self, event_ids: Iterable[str]) -> list[str]:
        return sorted(self._name(self.events[each]) for each in event_ids)

    def _name(self, known: Known) -> str:
        return f"event {known.id} of {known.key or 'no key'}"
