"""A delivery's state and its history are one transaction: what cannot be written of one is not done to the other."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from consumers.dedup.protocol import End
from consumers.inbox.rows import Arrival, Claimed
from consumers.inbox.table import Identity, Table
from consumers.inbox.words import again, end_of, unbegun
from consumers.outcome import Dead, Defer, Done, Retry, Sent, Skip
from idempotency import StoreUnavailableError
from relay.postgres.connect import connect_async
from tests.support.inbox import history, leases, rows
from tests.support.inbox_rows import store


class Owner:
    """What acts on the only delivery, by an owner whose lease can be over."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.skew = 0.0
        identity = Identity(consumer="billing", owner="host:1:a", lease_seconds=60)
        self.table = Table(lambda: connect_async(database), "public", identity, skew=lambda: self.skew)
        self.claimed: list[Claimed] = []

    async def claim(self) -> None:
        """Whatever is ready."""
        self.claimed = await self.table.claim_ready({"order.paid": 10}, 10)

    async def claim_head(self) -> None:
        """The first of each key."""
        self.claimed = await self.table.claim_heads([head.id for head in await self.table.walk("", 10)])

    async def claim_suspect(self) -> None:
        """What a process died with."""
        self.claimed = await self.table.claim_suspect(["order.paid"])

    async def end(self, end: End) -> None:
        """Write its end."""
        await self.table.settle([end_of(each.owned, end, 1) for each in self.claimed])

    async def put_back(self, why: Retry | Defer | None, *, counted: bool) -> None:
        """Have it come again."""
        await self.table.settle([again(each.owned, why, counted=counted, rest=1.0) for each in self.claimed])

    async def give_back(self) -> None:
        """It was not handled."""
        await self.table.settle([unbegun(each.owned, 0.0) for each in self.claimed])

    async def recover(self) -> None:
        """Take it from itself, when its lease is over."""
        self.skew = 61.0
        await self.table.recover()


@pytest.fixture
async def owner(inbox_database: str) -> AsyncIterator[Owner]:
    """On a table of its own."""
    owner = Owner(inbox_database)
    yield owner
    await owner.table.close()


@pytest.mark.parametrize(
    ("what", "before", "act", "columns"),
    [
        ("processing", None, Owner.claim, {}),
        ("processing", None, Owner.claim_head, {"ordering_key": "k"}),
        ("processing", None, Owner.claim_suspect, {"suspect": True}),
        ("done", Owner.claim, lambda owner: owner.end(Done()), {}),
        ("skipped", Owner.claim, lambda owner: owner.end(Skip("paid")), {}),
        ("sent", Owner.claim, lambda owner: owner.end(Sent("t-1")), {}),
        ("failed", Owner.claim, lambda owner: owner.end(Dead("closed", "CLOSED")), {}),
        ("retry", Owner.claim, lambda owner: owner.put_back(Retry("busy", "BUSY"), counted=True), {}),
        ("deferred", Owner.claim, lambda owner: owner.put_back(Defer("1s"), counted=False), {}),
        ("aborted:shutdown", Owner.claim, lambda owner: owner.put_back(None, counted=False), {}),
        ("released", Owner.claim, Owner.give_back, {}),
        ("requeued:stale", Owner.claim, Owner.recover, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_no_state_changes_without_its_entry(
    owner: Owner,
    what: str,
    before: Callable[[Owner], Awaitable[None]] | None,
    act: Callable[[Owner], Awaitable[None]],
    columns: dict[str, Any],
) -> None:
    """The row and its lease stay as they were; once the entry can be written, all of it is done."""
    with psycopg.connect(owner.database, autocommit=True) as connection:
        store(connection, **columns)
        if before is not None:
            await before(owner)
        was = rows(owner.database), leases(owner.database)
        connection.execute(f"alter table inbox_history add constraint no_room check (what <> '{what}')".encode())
        claimed = owner.claimed
        with pytest.raises(StoreUnavailableError):
            await act(owner)
        owner.claimed = claimed
        assert (rows(owner.database), leases(owner.database)) == was
        connection.execute("alter table inbox_history drop constraint no_room")
        await act(owner)
        ((event,),) = connection.execute("select event_id from inbox_deliveries").fetchall()

    assert history(owner.database, event)[-1] == what
    assert rows(owner.database) != was[0]


async def test_nothing_is_stored_without_its_entry(owner: Owner) -> None:
    """An event whose history cannot begin is not in the inbox, and is not acknowledged."""
    arrival = Arrival(
        event_id=uuid4(),
        event_type="order.paid",
        version=1,
        sequence=1,
        ordering_key="",
        shard=0,
        message_id="1",
        body=b"{}",
        attributes={},
    )
    with psycopg.connect(owner.database, autocommit=True) as connection:
        connection.execute("alter table inbox_history add constraint no_room check (what <> 'created')")
        with pytest.raises(StoreUnavailableError):
            await owner.table.receive([arrival])
        assert rows(owner.database) == []
        connection.execute("alter table inbox_history drop constraint no_room")
        assert await owner.table.receive([arrival]) == {str(arrival.event_id)}
    assert history(owner.database, arrival.event_id) == ["created"]


async def test_nothing_is_completed_in_a_handlers_transaction_without_its_entry(
    owner: Owner,
) -> None:
    """`inbox_complete` fails as a whole, and with it the effect."""
    with psycopg.connect(owner.database, autocommit=True) as connection:
        id_ = store(connection)
        await owner.claim()
        was = rows(owner.database), leases(owner.database)
        connection.execute("alter table inbox_history add constraint no_room check (what <> 'done')")
        said = f'{{"id": {id_}, "token": "{owner.claimed[0].owned.token}"}}'
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("select inbox_complete(%s)", [said])
        assert (rows(owner.database), leases(owner.database)) == was
