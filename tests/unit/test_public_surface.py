"""What users import: the names, the tree of errors, and the types that their own checker sees."""

import importlib
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A name that is missing here is not promised to anyone; one that is gone breaks whoever imports it.
PUBLIC = {
    "consumers": [
        "Classification",
        "ConfigurationError",
        "ConfirmContext",
        "Consumer",
        "ConsumerError",
        "Context",
        "Cron",
        "Dead",
        "Defer",
        "Done",
        "Exponential",
        "FatalError",
        "Fixed",
        "Invalid",
        "InvalidRecipient",
        "Linear",
        "Missing",
        "Received",
        "Retry",
        "RetryPolicy",
        "Sent",
        "Series",
        "Skip",
        "Ticket",
        "TransientError",
        "UsageError",
    ],
    "consumers.readiness": ["Readiness"],
    "consumers.waiting": [
        "Answer",
        "Enqueued",
        "Failed",
        "Pending",
        "Ready",
        "Refusal",
        "Reply",
        "UnknownDeliveryError",
        "Waiting",
        "enqueue",
        "enqueue_sync",
        "reply_to",
        "wait_endpoint",
        "wait_response",
    ],
    "relay": [
        "Actor",
        "AutocommitError",
        "EmitError",
        "Emitted",
        "Event",
        "InvalidEventError",
        "Registry",
        "RelayError",
        "Rule",
        "emit",
        "emit_async",
    ],
    "relay.alembic": ["downgrade", "include_name", "include_object", "leave_alone", "upgrade"],
    "relay.testing": [
        "EmittedEvent",
        "MemoryBroker",
        "Outbox",
        "Relayed",
        "RelayedMessage",
        "Servers",
        "State",
        "fresh_database",
        "migrated_template",
    ],
    "idempotency": [
        "AlreadyDoneError",
        "ClaimAnswer",
        "Claimed",
        "Codec",
        "Done",
        "FingerprintConflictError",
        "IdempotencyError",
        "InProgress",
        "InProgressError",
        "InvalidKeyError",
        "InvalidUrlError",
        "LeaseLostError",
        "Lock",
        "LockTimeoutError",
        "Locked",
        "Manager",
        "MarkAnswer",
        "Marked",
        "MemoryManager",
        "Once",
        "ResultError",
        "Settings",
        "Store",
        "StoreUnavailableError",
        "SyncLock",
        "SyncManager",
        "SyncOnce",
        "connect",
        "connect_sync",
        "identity_of_text",
    ],
}

GOOD_USAGE = """
from typing import Any, assert_type

import asyncpg  # type: ignore[import-untyped]
import psycopg
import relay.alembic as outbox
from alembic import op
import psycopg2  # type: ignore[import-untyped]
import sqlalchemy.ext.asyncio as alchemy
from consumers import Consumer, Context, Done, Exponential, Received, Retry, TransientError
from consumers.metrics import Metrics
from consumers.readiness import Readiness
from consumers.testing import DeliverySettled, Handled, handle, in_memory
from consumers.waiting import (
    Enqueued, Failed, Pending, Ready, Refusal, Waiting, enqueue, enqueue_sync, reply_to, wait_endpoint, wait_response,
)
from idempotency import Done as Processed
from idempotency import (
    Claimed, ClaimAnswer, IdempotencyError, InProgress, Manager, MemoryManager, Store, SyncManager, connect,
    connect_sync,
)
from redis.asyncio import Redis
from django.db import connection as django, connections  # type: ignore[import-untyped]
from relay import Actor, EmitError, Emitted, Event, Registry, RelayError, Rule, emit, emit_async
from relay.testing import EmittedEvent, MemoryBroker, Outbox, Relayed, RelayedMessage
from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session
from starlette.requests import Request
from starlette.responses import Response


def upgrade() -> None:
    outbox.upgrade(op, to=5, schema="shop")


REGISTRY = Registry({"order.paid": Rule("order", {1: dict[str, int], 2: int | None})})


def pay(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    paid = Event(
        event_type="order.paid",
        aggregate_type="order",
        aggregate_id="42",
        data={"amount": 1999},
        actor=Actor(type="user", id="7", role="admin"),
        dedup_key="paid-42",
        attributes={"tenant": "acme"},
    )
    assert_type(emit(connection, paid), Emitted)
    assert_type(emit(connection, [paid, paid], order_lock=False), list[Emitted])
    assert_type(emit(connection, (event for event in (paid,))), list[Emitted])
    assert_type(emit(connection, paid, registry=REGISTRY), Emitted)
    try:
        assert_type(emit(connection, paid).inserted, bool)
    except EmitError as error:
        refused: RelayError = error
        raise refused from None


def sell(event: Event, connection: Connection, session: Session, scoped: scoped_session[Session]) -> None:
    assert_type(emit(connection, event), Emitted)
    assert_type(emit(session, [event]), list[Emitted])
    assert_type(emit(scoped, event, registry=REGISTRY), Emitted)
    assert_type(emit(django, event), Emitted)
    assert_type(emit(connections["orders"], [event]), list[Emitted])
    assert_type(emit(psycopg2.connect("dbname=orders"), event), Emitted)


class Typed:
    # What packages of stubs say of a connection of asyncpg's.
    def is_in_transaction(self) -> bool: ...  # type: ignore[empty-body]
    def is_closed(self) -> bool: ...  # type: ignore[empty-body]


async def send(
    event: Event,
    connection: alchemy.AsyncConnection,
    session: alchemy.AsyncSession,
    scoped: alchemy.async_scoped_session[alchemy.AsyncSession],
    typed: Typed,
) -> None:
    assert_type(await emit_async(connection, event), Emitted)
    assert_type(await emit_async(session, [event]), list[Emitted])
    assert_type(await emit_async(scoped, event, order_lock=False), Emitted)
    assert_type(await emit_async(await asyncpg.connect(), [event]), list[Emitted])
    assert_type(await emit_async(typed, event), Emitted)
    assert_type(await connection.run_sync(lambda inner: emit(inner, event)), Emitted)


async def ship(connection: psycopg.AsyncConnection[dict[str, Any]], redis: Redis, event_id: str) -> bool:
    shipped = Event(event_type="order.shipped", aggregate_type="order", aggregate_id="42", data=None)
    assert_type(await emit_async(connection, shipped), Emitted)
    assert_type(await emit_async(connection, [shipped]), list[Emitted])
    assert_type(await emit_async(connection, [shipped], registry=REGISTRY), list[Emitted])
    try:
        return await Manager(redis).check_and_mark_processed("shipping", event_id)
    except IdempotencyError:
        return True


shipping = Consumer("shipping", subscription="orders", concurrency=20, timeout="10s", retry=Exponential("1s"))


@shipping.on("order.paid", model=dict[str, int], version="any")
async def pack(event: Received[dict[str, int]], ctx: Context) -> Done | Retry:
    assert_type(event.data, dict[str, int])
    if ctx.attempt > 1:
        raise TransientError("not yet", delay="30s")
    async with ctx.lock("shelf"):
        return Done({"parcels": 1})


@shipping.fallback
def anything(event: Received[Any]) -> None:
    assert_type(event.event_type, str)


async def ask(connection: psycopg.AsyncConnection[Any], typed: Typed, session: alchemy.AsyncSession) -> int:
    assert_type(await enqueue(typed, consumer="invoices", event_type="a", data=[1], key="42"), Enqueued)
    assert_type(await enqueue(session, consumer="invoices", event_type="a", data=[1], key="42"), Enqueued)
    stored = await enqueue(connection, consumer="invoices", event_type="a", data={}, event_id="7", version=2)
    async with Waiting("postgresql://", wait="5s") as waiting:
        match await waiting.wait(stored, seconds=5):
            case Ready():
                return 200
            case Pending(retry_after):
                assert_type(retry_after, float)
            case Failed(code, _):
                assert_type(code, str)
        answer = await waiting.wait(("invoices", stored.event_id))
        assert_type(reply_to(answer, failures={"A": "B", "C": Refusal("D", "No.")}).status, int)
    return enqueue_sync(django, consumer="invoices", event_type="a", data=None, key="42").delivery


def waited(waiting: Waiting, request: Request) -> Any:
    async def begin(request: Request) -> Enqueued | int:
        assert_type(await wait_response(waiting, request, 7, failures=lambda failed: failed.code), Response)
        return 7

    return wait_endpoint(waiting, begin, ready=lambda result: {"body": result})


async def serve() -> None:
    assert_type(await pack(Received[dict[str, int]], None), Done | Retry)  # type: ignore[arg-type]
    async with shipping.running(observe=Metrics()):
        await shipping.run()


def test_pay(outbox: Outbox, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    assert_type(outbox.assert_emitted("order.paid", data_contains={"amount": 1999}), EmittedEvent)
    assert_type(outbox.assert_emitted("order.paid", times=2, ordering_key=None), list[EmittedEvent])
    assert_type(outbox.emitted(connection=connection), list[EmittedEvent])
    outbox.broker = MemoryBroker(["orders"])
    assert_type(outbox.relay_once(routes={"order.*": "orders"}, budget="5s"), Relayed)
    assert_type(outbox.relay_once()[0], RelayedMessage)


async def test_ship(outbox: Outbox) -> None:
    await outbox.assert_nothing_emitted_async("order.shipped", aggregate_id="42")
    (message,) = await outbox.relay_once_async()
    assert_type(await handle(shipping, message), Handled)
    async with in_memory(shipping) as deliveries:
        assert_type(await deliveries.deliver(message), DeliverySettled)


def attempt(answer: ClaimAnswer) -> int | None:
    match answer:
        case Claimed(attempt=number):
            return number
        case InProgress() | Processed():
            return None


async def once(store: Store, event_id: str) -> None:
    assert_type(await store.claim("shipping", event_id), Claimed | InProgress | Processed)
    assert_type(await store.claim_many("shipping", [event_id]), list[ClaimAnswer | IdempotencyError])
    assert_type(await store.check_and_mark_many("shipping", [event_id]), list[bool | IdempotencyError])
    async with store.once("shipping", event_id) as work, store.lock("shipping"):
        assert_type(work.attempt, int)
        work.result = b"shipped"

    @store.idempotent("charges", key=lambda key, amount: key)
    async def charge(key: str, amount: int) -> dict[str, int]:
        return {"charged": amount}

    assert_type(await charge("k", amount=5), dict[str, int])


def stores(url: str) -> list[Store]:
    SyncManager(connect_sync(url, verify=False)).check_and_mark_processed("shipping", "id")
    return [Manager(connect(url), prefix="shop"), MemoryManager()]
"""

# Each line that ends in a comment is refused, for the reason that the comment names.
BAD_USAGE = """
import psycopg
import sqlalchemy.ext.asyncio as alchemy
from consumers import Consumer
from idempotency import Manager, SyncManager
from redis.asyncio import Redis
from relay import Actor, Event, Registry, Rule, emit, emit_async
from relay import publish  # attr-defined
from relay.testing import Outbox
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, sessionmaker

paid = Event(event_type="a", aggregate_type="b", aggregate_id="c", data=1)
Event(event_type="a", aggregate_type="b", aggregate_id="c")  # call-arg
Event(event_typ="a", event_type="a", aggregate_type="b", aggregate_id="c", data=1)  # call-arg
Event(event_type="a", aggregate_type="b", aggregate_id=42, data=1)  # arg-type
Actor(type="user")  # call-arg
Rule("order", dict)  # arg-type
Rule("order", {"1": dict})  # dict-item
Registry({"order.paid": dict})  # dict-item


async def use(
    connection: psycopg.Connection, asynchronous: psycopg.AsyncConnection, redis: Redis
) -> None:
    emit(connection, {"a": 1})  # dict-item
    emit(connection, [None])  # list-item
    emit(connection, "order.paid")  # arg-type
    emit(asynchronous, paid)  # call-overload
    emit(connection, paid).sequense  # attr-defined
    emit(connection, [paid]).sequence  # attr-defined
    emit_async(asynchronous, paid).sequence  # attr-defined
    emit(connection.cursor(), paid)  # call-overload
    emit(paid, connection)  # call-overload
    emit("dbname=orders", paid)  # call-overload
    await emit_async(connection, paid)  # call-overload
    await emit_async(asynchronous.cursor(), [paid])  # call-overload
    emit(connection, paid, False)  # call-overload
    emit(connection, paid, registry={})  # call-overload
    await Manager(redis).check_and_mark_processed("shipping", 7)  # arg-type
    Manager(redis, lifetime=7)  # call-arg
    Manager(redis, ttl=7)  # arg-type
    SyncManager(redis)  # arg-type
    Outbox("postgresql://").emitted("a", agregate_id="b")  # call-arg
    Outbox("postgresql://").assert_nothing_emitted(version="1")  # arg-type


async def sell(
    engine: Engine,
    engines: alchemy.AsyncEngine,
    maker: sessionmaker[Session],
    makers: alchemy.async_sessionmaker[alchemy.AsyncSession],
) -> None:
    emit(engine, paid)  # call-overload
    emit(maker, [paid])  # call-overload
    with engine.begin() as connection, maker.begin() as session:
        await emit_async(connection, paid)  # call-overload
        await emit_async(session, [paid])  # call-overload
        emit(session, "order.paid")  # arg-type
    await emit_async(engines, paid)  # call-overload
    await emit_async(makers, [paid])  # call-overload
    async with engines.begin() as asynchronous, makers.begin() as awaited:
        emit(asynchronous, paid)  # call-overload
        emit(awaited, [paid])  # call-overload


Consumer("a", dedup="once")  # arg-type
Consumer("a", subscripton="a")  # call-arg
Consumer("a").fallback(None)  # type-var
Consumer("a").on("b", handler=None)  # call-arg
"""


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_offers_exactly_its_documented_names(package: str) -> None:
    """In an order in which they are found."""
    offered = importlib.import_module(package).__all__
    assert offered == PUBLIC[package]
    assert offered == sorted(offered)


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in PUBLIC.items() for name in names])
def test_every_public_name_says_what_it_is(package: str, name: str) -> None:
    """In words of its own, not inherited ones."""
    offered = getattr(importlib.import_module(package), name)
    inherited = [base.__doc__ for base in getattr(offered, "__mro__", ())[1:]]
    assert offered.__doc__
    assert offered.__doc__ not in inherited


@pytest.mark.parametrize("first", ["import relay.emit", "from relay.emit import Emitted", "import relay.cli.main"])
def test_emit_is_the_function_whoever_imports_its_module_first(first: str) -> None:
    """The module has the same name."""
    program = f"{first}; import relay; from relay import emit; assert relay.emit is emit; emit.__call__; print('fine')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.parametrize("package", ["relay", "relay.testing"])
def test_a_name_that_is_not_there_is_no_attribute(package: str) -> None:
    """Whoever asks with hasattr is not lied to."""
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'publish_all'"):
        _ = importlib.import_module(package).publish_all


def drawn(picture: str) -> dict[str, str]:
    """Every error of a drawn tree, with the one that it hangs on."""
    parents: dict[str, str] = {}
    trunk = ["Exception"]
    for line in picture.splitlines():
        if found := re.match(r"(?P<branches>(?:[│ ]   )*(?:[├└]── )?)(?P<name>\w+Error)\b", line):
            depth = len(found["branches"]) // 4 + 1
            trunk[depth:] = [found["name"]]
            parents[found["name"]] = trunk[depth - 1]
    return parents


@pytest.mark.parametrize(
    ("package", "base"), [("relay", "RelayError"), ("consumers", "ConsumerError"), ("idempotency", "IdempotencyError")]
)
def test_the_tree_of_errors_is_the_one_that_is_drawn(package: str, base: str) -> None:
    """Whoever decides what to catch reads the drawing."""
    errors = importlib.import_module(f"{package}.errors")
    defined = {
        name: thing.__base__.__name__
        for name, thing in vars(errors).items()
        if isinstance(thing, type)
        and thing.__module__ == errors.__name__
        and thing.__base__
        # What is no failure stands apart, and is told of beside the tree.
        and issubclass(thing, Exception)
    }
    assert drawn(errors.__doc__ or "") == defined
    assert all(issubclass(getattr(errors, name), getattr(errors, base)) for name in defined)


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    """Without the marker a type checker takes everything in it for Any."""
    assert resources.files(package.partition(".")[0]).joinpath("py.typed").is_file()


@pytest.mark.slow("runs a type checker over the packages")
@pytest.mark.timeout(300)
def test_a_users_type_checker_takes_good_usage_and_refuses_bad(tmp_path: Path) -> None:
    """Most mistakes are then found before any test runs."""
    (tmp_path / "good.py").write_text(GOOD_USAGE)
    (tmp_path / "bad.py").write_text(BAD_USAGE)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "good.py", "bad.py"],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    said = re.findall(r"^(\S+):(\d+): error: .*  \[([\w-]+)\]$", checked.stdout, re.MULTILINE)
    expected = [
        ("bad.py", str(number), code)
        for number, line in enumerate(BAD_USAGE.splitlines(), start=1)
        for code in line.partition("  # ")[2].split()
    ]
    # What is wrong with ours is found by its own check, with its own configuration.
    theirs = [each for each in said if each[0] in {"good.py", "bad.py"}]
    assert sorted(theirs) == sorted(expected), checked.stdout + checked.stderr
