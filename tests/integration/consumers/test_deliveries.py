"""What operators see of an inbox and do to it, beside consumers at work and beside each other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from consumers import Consumer, Context, Dead, Received
from consumers.errors import ConfigurationError
from consumers.events import Fate
from consumers.inbox.operate import deliveries as module
from consumers.inbox.operate.acting import Acting, named
from consumers.inbox.operate.choice import Choice, State
from consumers.inbox.operate.deliveries import Deliveries, opened
from consumers.inbox.operate.rows import Action, Group, Listed, Operator, Page
from consumers.inbox.table import Identity, Table
from consumers.inbox.words import end_of
from consumers.outcome import Done
from consumers.testing import in_memory
from relay.errors import OperateError, SchemaError
from relay.postgres.connect import connect_async
from tests.support.inbox import history, row, rows
from tests.support.inbox_rows import store

ANA = Operator("ana", "the schema is fixed")
FAILED = Choice(states=frozenset([State.FAILED]))


def silent(_what: str, _count: int) -> None:
    """Nobody waits for it."""


@pytest.fixture
def owner(inbox_database: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody with psql, whose statements are committed one by one."""
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def deliveries(inbox_database: str) -> AsyncIterator[Deliveries]:
    """An operator's command."""
    async with opened(inbox_database, "public", "") as found:
        yield found


async def listed(deliveries: Deliveries, choice: Choice, page: Page | None = None) -> list[Listed]:
    """All of what is chosen."""
    return [each async for part in deliveries.pages(choice, page or Page(500)) for each in part]


async def became(deliveries: Deliveries, action: Action, choice: Choice) -> dict[str, Any]:
    """How many were acted on, and the ids that were left alone by reason."""
    tally = await Acting(deliveries, action).act(choice, ANA, silent)
    return {"acted": tally.acted, **{why: left.ids for why, left in tally.left.items()}}


def state(database: str, id_: int) -> str:
    """How a delivery stands."""
    (found,) = [each for each in rows(database) if each["id"] == id_]
    return str(found["state"])


async def test_a_failed_delivery_is_handled_again_with_all_its_attempts(inbox_database: str) -> None:
    """At once, and its history says who put it back, why, and what it was."""
    broken = True
    attempts: list[int] = []

    async def handler(event: Received[Any], ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if broken:
            raise OSError("the bank is away")
        return "booked"

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=inbox_database) as running:
        event = running.publish("order.paid")
        while (await running.wait_for(event)).fate is not Fate.DEAD:
            await running.advance(60)
        broken = False
        before = row(inbox_database, event)
        async with opened(inbox_database, "public", "") as deliveries:
            choice = replace(FAILED, codes=["OSError"], error="BANK is away")
            assert await became(deliveries, Action.RETRY, choice) == {"acted": 1}
            await running.advance(1)
            assert (await running.wait_for(event)).fate is Fate.DONE
            known, entries = await deliveries.shown(before["id"], envelope=False) or ({}, [])

    assert before["attempt_count"] == 3
    assert attempts == [1, 2, 3, 1]
    assert (known["state"], known["attempts"], known["error"], known["envelope"]) == ("done", 1, None, None)
    assert [entry.what for entry in entries][-4:] == ["failed", "retried", "processing", "done"]
    retried = next(entry for entry in entries if entry.what == "retried")
    assert retried.detail.pop("role")
    said = {"by": "ana", "reason": "the schema is fixed", "was": "failed", "outcome": "dead"}
    assert retried.detail == {**said, "code": "OSError", "attempts": 3}


async def test_one_that_is_being_processed_is_left_alone(inbox_database: str, deliveries: Deliveries) -> None:
    """Its owner lives: neither a retry nor a discard touches it, and it is done afterwards."""
    running_now, go_on = asyncio.Event(), asyncio.Event()

    async def handler(event: Received[Any]) -> None:
        running_now.set()
        await go_on.wait()

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=inbox_database) as running:
        event = running.publish("order.paid")
        await running_now.wait()
        id_ = row(inbox_database, event)["id"]
        assert [each.state for each in await listed(deliveries, Choice(states=frozenset([State.PROCESSING])))] == [
            "processing"
        ]
        for action in Action:
            assert await became(deliveries, action, Choice(ids=[id_])) == {"acted": 0, "processing": [id_]}
        go_on.set()
        assert (await running.wait_for(event)).fate is Fate.DONE
    assert history(inbox_database, event) == ["created", "processing", "done"]


@pytest.mark.parametrize("action", Action)
async def test_one_whose_owner_settles_it_meanwhile_is_neither_waited_for_nor_changed(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any], action: Action
) -> None:
    """Nor is one that was chosen as it failed, and that another operator is putting back in this moment."""
    running, failed = store(owner, "processing"), store(owner, "failed")
    (chosen,) = await listed(deliveries, FAILED)
    with psycopg.connect(inbox_database) as other:
        other.execute(
            "update inbox_deliveries set state = 'failed', outcome = 'dead', finished_at = now() where id = %s",
            [running],
        )
        other.execute(
            "update inbox_deliveries set state = 'pending', outcome = null, finished_at = null where id = %s", [failed]
        )
        async with asyncio.timeout(5):
            found = await became(deliveries, action, Choice(ids=[running, failed]))
        assert found == {"acted": 0, "processing": [running], "held": [failed]}
        other.commit()
        assert await deliveries.act(action, [chosen], ANA) == {failed: "changed"}
    assert (state(inbox_database, running), state(inbox_database, failed)) == ("failed", "pending")


async def test_an_open_transaction_that_completes_one_is_not_waited_for(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """What `ctx.complete` holds is being processed, for everybody else, until its commit."""
    id_ = store(owner, "processing")
    with psycopg.connect(inbox_database) as handler:
        completed = handler.execute(
            "select inbox_complete(json_build_object('id', id, 'token', token)::jsonb) from inbox_deliveries"
        ).fetchone()
        assert completed == (True,)
        async with asyncio.timeout(5):
            assert await became(deliveries, Action.RETRY, Choice(ids=[id_])) == {"acted": 0, "processing": [id_]}
    assert state(inbox_database, id_) == "done"


async def test_one_that_failed_anew_since_it_was_chosen_is_left_alone(
    deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """The filter may not have meant what it failed of now; and one that is gone is told of as gone."""
    again, gone = store(owner, "failed"), store(owner, "failed")
    chosen = await listed(deliveries, FAILED)
    owner.execute("update inbox_deliveries set finished_at = clock_timestamp() where id = %s", [again])
    owner.execute("delete from inbox_deliveries where id = %s", [gone])
    assert await deliveries.act(Action.RETRY, chosen, ANA) == {again: "changed", gone: "gone"}


async def test_two_operators_at_once_act_on_each_delivery_once(
    inbox_database: str, owner: psycopg.Connection[Any]
) -> None:
    """Whoever comes first has it; together they have all of them, or the rest is told of."""
    for _ in range(1_200):
        store(owner, "failed")

    async def operator() -> tuple[int, int]:
        async with opened(inbox_database, "public", "") as found:
            tally = await Acting(found, Action.RETRY).act(FAILED, ANA, silent)
        return tally.acted, sum(left.count for left in tally.left.values())

    done = await asyncio.gather(operator(), operator())
    recorded = owner.execute("select count(*), count(distinct delivery_id) from inbox_history where what = 'retried'")
    assert sum(acted for acted, _ in done) == 1_200
    assert recorded.fetchone() == (1_200, 1_200)
    assert {each["state"] for each in rows(inbox_database)} == {"pending"}


async def test_batches_are_transactions_of_500(deliveries: Deliveries, owner: psycopg.Connection[Any]) -> None:
    """No more is held at once, however many are chosen."""
    for _ in range(1_001):
        store(owner, "failed")
    assert await became(deliveries, Action.DISCARD, FAILED) == {"acted": 1_001}
    sizes = owner.execute(
        "select count(*) from inbox_history where what = 'discarded' group by xmin order by 1 desc"
    ).fetchall()
    assert [size for (size,) in sizes] == [500, 500, 1]


async def test_what_ends_halfway_says_what_is_done(
    deliveries: Deliveries, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole batches, which are recorded; the rest is as it was."""
    for _ in range(501):
        store(owner, "failed")
    act = Deliveries.act

    async def once(self: Deliveries, *args: Any) -> dict[int, str]:
        found = await act(self, *args)
        monkeypatch.setattr(self._session, "_connect", lambda: connect_async("postgresql://127.0.0.1:1/none"))
        await self._session._drop()
        return found

    monkeypatch.setattr(Deliveries, "act", once)
    with pytest.raises(OperateError, match=r"^500 deliveries are done and recorded; the inbox was not reached: "):
        await became(deliveries, Action.RETRY, FAILED)
    assert owner.execute("select count(*) from inbox_deliveries where state = 'failed'").fetchone() == (1,)


async def test_a_discarded_one_counts_as_failed_no_more_and_can_be_taken_back(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """It is kept, with what it failed of; a second discard leaves it alone."""
    failed, pending = store(owner, "failed"), store(owner)
    meant = Choice(ids=[failed, pending])
    assert await became(deliveries, Action.DISCARD, meant) == {"acted": 2}
    assert await became(deliveries, Action.DISCARD, meant) == {"acted": 0, "discarded": [failed, pending]}
    assert await listed(deliveries, FAILED) == []
    discarded = await listed(deliveries, Choice(states=frozenset([State.DISCARDED])))
    assert [(each.id, each.code, each.finished_at is None) for each in discarded] == [
        (failed, "GONE", False),
        (pending, None, False),
    ]
    assert await became(deliveries, Action.RETRY, Choice(states=frozenset([State.DISCARDED]))) == {"acted": 2}
    assert {each["state"] for each in rows(inbox_database)} == {"pending"}


async def test_a_discarded_one_is_handled_by_nobody_and_its_key_goes_on(inbox_database: str) -> None:
    """A consumer that starts afterwards handles what was behind it."""
    seen: list[UUID] = []
    away = True

    async def handler(event: Received[Any]) -> None:
        if away:
            raise OSError("away")
        seen.append(event.event_id)

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=inbox_database) as running:
        first = running.publish("order.paid", ordering_key="k")
        assert (await running.wait_for(first)).fate is Fate.RETRIED
        away = False
        second = running.publish("order.paid", ordering_key="k")
        async with opened(inbox_database, "public", "") as deliveries:
            assert await became(deliveries, Action.DISCARD, Choice(event_ids=[first])) == {"acted": 1}
        await running.advance(60)
        assert (await running.wait_for(second)).fate is Fate.DONE
    assert seen == [second]


async def test_one_that_is_put_back_waits_for_the_one_of_its_key_that_is_processed(inbox_database: str) -> None:
    """It is the first of its key again, and still there is one at a time."""
    started, go_on = asyncio.Event(), asyncio.Event()
    running: list[UUID] = []
    most = 0
    broken = True

    async def handler(event: Received[Any]) -> Dead | None:
        nonlocal most
        if not event.ordering_key:
            return None
        if broken:
            return Dead("it is gone", "GONE")
        running.append(event.event_id)
        most = max(most, len(running))
        started.set()
        await go_on.wait()
        running.remove(event.event_id)
        return None

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=inbox_database) as work:
        first = work.publish("order.paid", ordering_key="k")
        assert (await work.wait_for(first)).fate is Fate.DEAD
        broken = False
        second = work.publish("order.paid", ordering_key="k")
        await started.wait()
        async with opened(inbox_database, "public", "") as deliveries:
            assert await became(deliveries, Action.RETRY, Choice(event_ids=[first])) == {"acted": 1}
        for _ in range(2):  # claims go on meanwhile
            await work.advance(1)
            assert (await work.wait_for(work.publish("order.paid"))).fate is Fate.DONE
        assert running == [second]
        go_on.set()
        assert [(await work.wait_for(each)).fate for each in (second, first)] == [Fate.DONE, Fate.DONE]
    assert most == 1


async def test_what_its_processes_died_of_begins_alone_and_in_the_turn_of_its_key(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """Retried, it may kill the next one: nothing is to run beside it, and nothing else of its key anywhere."""
    deadly = store(owner, "failed", error_code="RETRIES_EXHAUSTED", ordering_key="k", sequence=1)
    store(owner, "failed")
    busy = store(owner, "processing", ordering_key="k", sequence=2)
    assert await became(deliveries, Action.RETRY, FAILED) == {"acted": 2}
    assert [each["id"] for each in rows(inbox_database) if each["suspect"]] == [deadly]

    identity = Identity(consumer="billing", owner="a:1:aa", lease_seconds=60.0)
    table = Table(lambda: connect_async(inbox_database), "public", identity)
    try:
        assert await table.claim_suspect(["order.paid"]) == []
        owner.execute("update inbox_deliveries set state = 'done', outcome = 'ok' where id = %s", [busy])
        assert [each.owned.id for each in await table.claim_suspect(["order.paid"])] == [deadly]
    finally:
        await table.close()


async def test_the_word_of_an_owner_whose_delivery_was_put_back_does_not_count(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """It was sent, put back, and is claimed by somebody else: the first owner's late word changes nothing."""
    store(owner)
    identity = Identity(consumer="billing", owner="a:1:aa", lease_seconds=60.0)
    table = Table(lambda: connect_async(inbox_database), "public", identity)
    (first,) = await table.claim_ready({"order.paid": 1}, 1)
    owner.execute("update inbox_deliveries set state = 'sent', ticket = 't-1', stage = 'upload', progress = 90")
    owner.execute("delete from inbox_leases")
    assert await became(deliveries, Action.RETRY, Choice(states=frozenset([State.SENT]))) == {"acted": 1}
    found = rows(inbox_database)[0]
    assert [found[name] for name in ("token", "ticket", "stage", "progress", "first_started_at")] == [None] * 5
    (second,) = await table.claim_ready({"order.paid": 1}, 1)
    assert await table.settle([end_of(first.owned, Done("late"), 1)]) == ["lost"]
    assert await table.settle([end_of(second.owned, Done("in time"), 1)]) == ["settled"]
    await table.close()
    assert rows(inbox_database)[0]["result"] == "in time"


async def test_what_is_done_is_done_again_only_where_that_was_said(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """Its result is taken back with it."""
    id_ = store(owner, "done", result='"booked"')
    assert await became(deliveries, Action.RETRY, Choice(ids=[id_])) == {"acted": 0, "done": [id_]}
    tally = await Acting(deliveries, Action.RETRY, done=True).act(Choice(ids=[id_]), ANA, silent)
    found = rows(inbox_database)[0]
    assert (tally.acted, dict(tally.were)) == (1, {"done": 1})
    assert (found["state"], found["result"], found["outcome"], found["finished_at"]) == ("pending", None, None, None)


@pytest.mark.parametrize("reach", [3, 5_000])
async def test_pages_have_each_delivery_once_in_the_order_of_ids(
    inbox_database: str,
    deliveries: Deliveries,
    owner: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    reach: int,
) -> None:
    """Whatever the parts in which they are looked for, and however few of a part are wanted."""
    monkeypatch.setattr(module, "REACH", reach)
    for _ in range(3):
        for each in ("pending", "processing", "sent", "done", "failed"):
            store(owner, each)
            store(owner, each, consumer="audit")
    store(owner, "failed", outcome="discarded")
    for columns in ({"ordering_key": "k"}, {"ordering_key": "k", "suspect": True}, {"suspect": True}):
        store(owner, **columns)
    every = rows(inbox_database)
    live = frozenset(set(State) - {State.DONE})
    for newest in (True, False):
        for states in (frozenset[State](), frozenset(State), live):
            found = [each for each in every if states != live or each["state"] != "done"]
            found.sort(key=lambda each: each["id"], reverse=newest)
            ids, choice = [each["id"] for each in found], Choice(states=states)
            assert [each.id for each in await listed(deliveries, choice, Page(4, newest))] == ids
            assert [each.id for each in await listed(deliveries, choice, Page(4, newest, after=ids[9]))] == ids[10:]
            of_audit = await listed(deliveries, replace(choice, consumer="audit"), Page(4, newest))
            assert [each.id for each in of_audit] == [each["id"] for each in found if each["consumer"] == "audit"]
            assert sum((await deliveries.counts(choice)).values()) == len(ids)


async def test_a_filter_takes_what_fits_all_of_it(deliveries: Deliveries, owner: psycopg.Connection[Any]) -> None:
    """The same for a list and for a count."""
    now = (await deliveries.start()).now
    before = {"created_at": now - timedelta(days=2)}
    ids = {
        store(owner): "a",
        store(
            owner,
            "failed",
            event_type="order.sent",
            ordering_key="k",
            error_code="AWAY",
            error="The Bank is 50 away",
            finished_at=now - timedelta(hours=2),
            **before,
        ): "b",
        store(owner, "failed", event_type="order.held", recipient="r", consumer="audit", error="gone"): "c",
        store(owner, "done", event_type="user.died", event_id=UUID(int=7), **before): "d",
    }
    hour_ago = now - timedelta(hours=1)
    for choice, names in (
        (Choice(event_types=["order.paid"]), "a"),
        (Choice(event_types=["order.*", "user.born"]), "abc"),
        (Choice(event_types=["order_*"]), ""),
        (Choice(ordering_key="k"), "b"),
        (Choice(recipient="r"), "c"),
        (Choice(codes=["GONE", "AWAY"]), "bc"),
        (Choice(error="THE bank"), "b"),
        (Choice(error="%"), ""),
        (Choice(since=hour_ago), "acd"),
        (Choice(until=hour_ago), "b"),
        (Choice(event_ids=[UUID(int=7)]), "d"),
        (Choice(event_ids=[UUID(int=7)], consumer="audit"), ""),
        (Choice(consumer="audit"), "c"),
        (Choice(consumer="nobody"), ""),
        (replace(FAILED, codes=["GONE"]), "c"),
        (Choice(event_types=['it\'s \\ "quoted", {so}*'], error='it\'s \\ "quoted"', consumer="\"'\\"), ""),
    ):
        assert "".join(ids[each.id] for each in await listed(deliveries, choice)) == names, choice
        assert sum((await deliveries.counts(choice)).values()) == len(names), choice


async def test_counts_are_by_what_tells_deliveries_apart(
    deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """What was discarded is counted as that, and not as failed."""
    for outcome in ("dead", "dead", "discarded"):
        store(owner, "failed", outcome=outcome)
    store(owner, event_type="order.held")
    assert await deliveries.counts(Choice()) == {
        Group("billing", "order.paid", "failed", "GONE"): 2,
        Group("billing", "order.paid", "discarded", "GONE"): 1,
        Group("billing", "order.held", "pending", ""): 1,
    }


async def test_a_dry_run_counts_and_changes_nothing(
    inbox_database: str, deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """And ends once it has seen more than it was asked for."""
    ids = [store(owner, "failed") for _ in range(3)]
    before = rows(inbox_database)
    acting = Acting(deliveries, Action.RETRY)
    assert (await acting.choose(Choice(ids=[*ids, store(owner)]), silent)).acted == 3
    assert (await acting.choose(FAILED, silent, most=1)).acted > 1
    assert rows(inbox_database)[:3] == before


async def test_a_name_that_no_delivery_has_is_told(deliveries: Deliveries, owner: psycopg.Connection[Any]) -> None:
    """Before anything is done to the others; of another consumer's as well."""
    id_ = store(owner, "failed")
    assert [each.id for each in await named(deliveries, Choice(ids=[id_]))] == [id_]
    with pytest.raises(OperateError, match=f"the inbox has no delivery {id_ + 1}, 00000000-0000-.* deleted, or never"):
        await named(deliveries, Choice(ids=[id_, id_ + 1], event_ids=[UUID(int=1)]))
    with pytest.raises(OperateError, match=f"no delivery {id_} of 'audit'"):
        await named(deliveries, Choice(ids=[id_], consumer="audit"))


async def test_a_running_one_is_shown_with_its_owner_and_its_lease(
    deliveries: Deliveries, owner: psycopg.Connection[Any]
) -> None:
    """And its envelope only where it was asked for."""
    id_ = store(owner, "processing")
    known, entries = await deliveries.shown(id_, envelope=True) or ({}, [])
    assert (known["locked_by"], known["due_at"], [entry.what for entry in entries]) == ("host:1:ab", None, ["created"])
    assert known["lease_until"] > known["created_at"]
    assert known["envelope"] == '{"data": {"iban": "DE02"}}'
    assert await deliveries.shown(id_ + 1, envelope=True) is None


async def test_looking_needs_no_more_than_select(inbox_database: str, owner: psycopg.Connection[Any]) -> None:
    """Whoever may only look is told what acting takes."""
    role = sql.Identifier(f"viewer_of_{owner.info.dbname}")
    id_ = store(owner, "failed")
    owner.execute(sql.SQL("create role {}").format(role))
    try:
        owner.execute(
            sql.SQL("grant select on inbox_migrations, inbox_deliveries, inbox_leases, inbox_history to {}").format(
                role
            )
        )
        url = f"{owner.info.dsn} password={owner.info.password} options='-c role=viewer_of_{owner.info.dbname}'"
        async with opened(url, "public", "") as viewer:
            assert [each.id for each in await listed(viewer, FAILED)] == [id_]
            assert await viewer.shown(id_, envelope=True)
            with pytest.raises(ConfigurationError, match=r"may not do this: permission denied for table .*; its owner"):
                await became(viewer, Action.RETRY, FAILED)
    finally:
        owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
    assert state(inbox_database, id_) == "failed"


async def test_a_database_without_an_inbox_is_refused_with_the_command(bare_database: str) -> None:
    """Before anything is asked of it."""
    with pytest.raises(SchemaError, match="has no inbox in schema 'public'; create it with: python -m consumers"):
        async with opened(bare_database, "public", ""):
            raise AssertionError
