"""The inbox's statements without the SDK: `python -m benchmarks.inbox_bare KIND MANY AT_ONCE`.

With KIND `batches` a plain loop receives a batch of so many, claims it, and settles it, in one statement each. With
`complete` it receives and claims batches, and each delivery is completed in a transaction of its own beside an insert,
in one message, over so many connections. What is stored is written as SQL before the clock begins; there is no failure
that it survives.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg

from benchmarks.contest import answer, take_part
from benchmarks.memory_source import EVENT_TYPE, deliveries
from benchmarks.sections.inbox import BATCHES, COMPLETE
from consumers.delivery import Delivery
from consumers.inbox.session import statement
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import Unread, identifier, prepared

CONSUMER = "bench"
_BATCH = 500
_ENTER = {"search_path": "public", "statement_ms": "10000", "local": False}
# What `settle` says of a delivery whose handler has returned.
_ENDED = {
    "states": "done",
    "outcomes": "ok",
    "rests": "0",
    "refunds": "0",
    "defers": "0",
    "cleared": "t",
    "results": "",
    "codes": "",
    "errors": "",
    "tickets": "",
    "whats": "done",
    "details": "",
}


class Bare:
    """One connection that says the inbox's statements."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, client_encoding="SQL_ASCII"
        )
        psycopg.ClientCursor(self._connection).execute(statement("enter"), _ENTER)
        self._connection.adapters.register_loader("jsonb", Unread)
        self._cursor = self._connection.cursor()

    def prepare(self, *names: str) -> None:
        """Prepare statements of `consumers/inbox/sql`."""
        for name in names:
            self.say(prepared(statement, name).text)

    def say(self, message: str) -> None:
        """Send it, whatever it returns."""
        self._cursor.execute(message.encode(), prepare=False)

    def ask(self, called: str) -> list[tuple[Any, ...]]:
        """The rows of a statement that was prepared."""
        self.say(called)
        return self._cursor.fetchall()

    def claim(self, most: int) -> tuple[str, list[int]]:
        """The token of the claim, and what was claimed."""
        token = str(uuid4())
        values = {
            "consumer": CONSUMER,
            "types": texts([EVENT_TYPE]),
            "rooms": numbers([most]),
            "most": most,
            "shard": 0,
            "shards": 1,
            "token": token,
            "owner": "bare",
            "lease": 60.0,
            "alone": False,
            "skew": 0.0,
        }
        return token, [row[0] for row in self.ask(call("claim_ready+begin", values))]

    def settle(self, token: str, ids: Sequence[int]) -> None:
        """Say that they are done."""
        many = len(ids)
        values = {name: texts([value] * many) for name, value in _ENDED.items()}
        versions = f"{{{','.join(['null'] * many)}}}"
        said = {**values, "ids": numbers(ids), "tokens": texts([token] * many), "versions": versions, "skew": 0.0}
        self.say(call("settle", said))


def call(name: str, values: Mapping[str, object]) -> str:
    """A statement with values in which nothing has to be quoted."""
    listed = ", ".join(_literal(values[each]) for each in prepared(statement, name).parameters)
    return f"execute {identifier(name)} ({listed})"


def batches(url: str, many: int, batch: int) -> float:
    """Receive, claim and settle, batch by batch; how many seconds it took."""
    bare = Bare(url)
    bare.prepare("receive", "claim_ready+begin", "settle")
    arrivals = list(_arrivals(deliveries(many), batch))
    take_part()
    began = time.perf_counter()
    for arrival in arrivals:
        bare.say(arrival)
        bare.settle(*bare.claim(batch))
    return time.perf_counter() - began


def complete(url: str, many: int, connections: int) -> float:
    """Receive and claim in batches, complete one by one; how many seconds it took."""
    bare, others = Bare(url), [Bare(url) for _ in range(connections)]
    bare.prepare("receive", "claim_ready+begin")
    arrivals = list(_arrivals(deliveries(many), _BATCH))
    with ThreadPoolExecutor(connections) as threads:
        take_part()
        began = time.perf_counter()
        for arrival in arrivals:
            bare.say(arrival)
            token, ids = bare.claim(_BATCH)
            for ended in [
                threads.submit(_complete, other, token, ids[place::connections]) for place, other in enumerate(others)
            ]:
                ended.result()
        return time.perf_counter() - began


def _complete(bare: Bare, token: str, ids: Sequence[int]) -> None:
    for each in ids:
        effect = "insert into effects (event_id) values (gen_random_uuid())"
        bare.say(f"""begin; {effect}; select inbox_complete('{{"id": {each}, "token": "{token}"}}'); commit""")


def _arrivals(waiting: Sequence[Delivery], batch: int) -> Iterator[str]:
    for first in range(0, len(waiting), batch):
        some = waiting[first : first + batch]
        values = {
            "consumer": CONSUMER,
            "event_ids": texts([each.attributes["event_id"] for each in some]),
            "event_types": texts([EVENT_TYPE] * len(some)),
            "event_versions": numbers([1] * len(some)),
            "sequences": texts([each.attributes["sequence"] for each in some]),
            "ordering_keys": texts([""] * len(some)),
            "shards": numbers([0] * len(some)),
            "message_ids": texts([each.message_id for each in some]),
            "envelopes": f"[{','.join(each.body.decode() for each in some)}]",
            "attributes": str([each.attributes for each in some]).replace("'", '"'),
            "skew": 0.0,
        }
        yield call("receive", values)


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def main(kind: str, many: int, at_once: int) -> None:
    """Take part in a contest."""
    run = {BATCHES: batches, COMPLETE: complete}[kind]
    answer(events=many, seconds=run(os.environ["DATABASE_URL"], many, at_once))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
