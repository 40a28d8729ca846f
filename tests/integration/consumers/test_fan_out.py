"""One event for many recipients: each has a delivery of its own, once, stored in one transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from consumers import ConfigurationError, Consumer, Context, Dead, Fixed, Received, Retry, Sent, Ticket
from consumers.events import Fate, TicketSettled, Verdict
from consumers.testing import Deliveries, in_memory
from consumers.testing.database import Place
from idempotency import LeaseLostError
from tests.support.inbox import history, row, rows
from tests.support.waiting import until_async


@pytest.fixture
def consumer() -> Consumer:
    """One with an inbox; nothing is registered yet."""
    return Consumer("news", dedup="inbox", retry=Fixed("5s", max_attempts=3))


@asynccontextmanager
async def running(database: str, consumer: Consumer) -> AsyncIterator[Deliveries]:
    """That consumer at work."""
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


def fanning_out(consumer: Consumer, *names: Any) -> None:
    """Have each article go to these."""

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await ctx.fan_out(names, connection)
            await ctx.complete(connection)


def recipients_of(database: str) -> list[str]:
    """Of all deliveries."""
    return sorted(each["recipient"] for each in rows(database))


async def test_each_recipient_has_its_own_delivery(inbox_database: str, consumer: Consumer) -> None:
    """Handled by the handler for recipients, with the event as it came, its own attempts and its own end."""
    fanning_out(consumer, "anna", "ben", "anna", "čeněk")
    seen: list[tuple[str, Any, str, int]] = []

    @consumer.each("article.published")
    async def notify(event: Received[Any], ctx: Context) -> str:
        seen.append((event.recipient, event.data, event.event_type, ctx.attempt))
        if event.recipient == "ben" and ctx.attempt == 1:
            raise OSError("once")
        return f"told {event.recipient}"

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published", {"title": "t"}, attributes={"note": "n"})
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
        for name in ("anna", "čeněk"):
            assert (await deliveries.wait_for(f"{event}/{name}")).fate is Fate.DONE
        assert (await deliveries.wait_for(f"{event}/ben")).fate is Fate.RETRIED
        await deliveries.advance(5.1)
        assert (await deliveries.wait_for(f"{event}/ben")).fate is Fate.DONE

    assert sorted(seen) == sorted(
        (name, {"title": "t"}, "article.published", attempt)
        for name, attempt in (("anna", 1), ("ben", 1), ("ben", 2), ("čeněk", 1))
    )
    found = {each["recipient"]: each for each in rows(inbox_database)}
    assert {name: (each["state"], each["result"]) for name, each in found.items()} == {
        "": ("done", None),
        "anna": ("done", "told anna"),
        "ben": ("done", "told ben"),
        "čeněk": ("done", "told čeněk"),
    }
    assert {each["event_type"] for name, each in found.items() if name} == {"article.published@each"}
    assert {each["event_id"] for each in found.values()} == {event}
    assert history(inbox_database, event).count("created") == 4


async def test_a_fan_out_and_its_completion_are_one_transaction(inbox_database: str, consumer: Consumer) -> None:
    """Rolled back together; when the handler comes again, there is each recipient once."""
    attempts = 0

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        nonlocal attempts
        attempts += 1
        async with ctx.transaction() as connection:
            await ctx.fan_out([f"u{n}" for n in range(1000)], connection)
            await ctx.complete(connection)
            if attempts == 1:
                raise OSError("before the commit")

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
        assert recipients_of(inbox_database) == [""]
        await deliveries.advance(5.1)
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    assert len(recipients_of(inbox_database)) == 1001


async def test_without_a_connection_it_is_there_at_once_and_once(inbox_database: str, consumer: Consumer) -> None:
    """Whatever becomes of the handler; from a plain function too."""

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        await ctx.fan_out(["a", "b"])
        if ctx.attempt == 1:
            raise OSError("afterwards")

    @consumer.on("article.printed")
    def printed(event: Received[Any], ctx: Context) -> None:
        ctx.fan_out(f"p{n}" for n in range(3))

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
        assert recipients_of(inbox_database) == ["", "a", "b"]
        await deliveries.advance(5.1)
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
        assert (await deliveries.wait_for(deliveries.publish("article.printed"))).fate is Fate.DONE

    assert recipients_of(inbox_database) == ["", "", "a", "b", "p0", "p1", "p2"]


@pytest.mark.parametrize("library", ["psycopg", "asyncpg", "sqlalchemy"])
async def test_it_takes_the_connections_that_complete_takes(
    inbox_database: str, consumer: Consumer, library: str
) -> None:
    """More than one statement's worth of recipients, in one transaction of the handler's own."""

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        names = (f"u{n}" for n in range(5_001))
        match library:
            case "psycopg":
                with psycopg.connect(inbox_database) as connection:
                    ctx.fan_out(names, connection)
                    ctx.complete(connection)
            case "asyncpg":
                own = await asyncpg.connect(inbox_database)
                try:
                    async with own.transaction():
                        await ctx.fan_out(names, own)
                        await ctx.complete(own)
                finally:
                    await own.close()
            case _:
                engine = create_async_engine(inbox_database.replace("postgresql://", "postgresql+psycopg://"))
                async with engine.begin() as begun:
                    await ctx.fan_out(names, begun)
                    await ctx.complete(begun)
                await engine.dispose()

    async with running(inbox_database, consumer) as deliveries:
        assert (await deliveries.wait_for(deliveries.publish("article.published"))).fate is Fate.DONE

    with psycopg.connect(inbox_database) as connection:
        assert connection.execute("select count(*) from inbox_deliveries").fetchone() == (5_002,)


async def test_the_two_kinds_of_a_type_have_permits_of_their_own(inbox_database: str, consumer: Consumer) -> None:
    """However many recipients wait, events go on; and no more recipients run than their handler allows."""
    open_ = asyncio.Event()
    at_once: list[int] = []
    now = 0

    @consumer.on("article.published", concurrency=3)
    async def article(event: Received[Any], ctx: Context) -> None:
        await ctx.fan_out([f"{event.data}-{n}" for n in range(20)])

    @consumer.each("article.published", concurrency=2)
    async def notify(event: Received[Any]) -> None:
        nonlocal now
        now += 1
        at_once.append(now)
        await open_.wait()
        now -= 1

    async with running(inbox_database, consumer) as deliveries:
        first = deliveries.publish("article.published", "a")
        await deliveries.wait_for(first)
        await until_async(running_recipients(deliveries, at_once), "two recipients")
        later = [deliveries.publish("article.published", name) for name in "bcdef"]
        for event in later:
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
        processing = [each for each in rows(inbox_database) if each["state"] == "processing"]
        assert [bool(each["recipient"]) for each in processing] == [True, True]
        open_.set()
        for number in range(20):
            assert (await deliveries.wait_for(f"{first}/a-{number}")).fate is Fate.DONE

    assert max(at_once) == 2


def running_recipients(deliveries: Deliveries, at_once: list[int]) -> Any:
    """Two recipients are being handled."""

    async def ask() -> bool:
        await deliveries.advance(0.6)
        return len(at_once) == 2

    return ask


async def test_a_key_holds_for_each_recipient_by_itself(inbox_database: str, consumer: Consumer) -> None:
    """Events of a key come to a recipient in their order, and no recipient waits for another."""
    fanning_out(consumer, "anna", "ben")
    seen: list[tuple[str, int, str]] = []

    @consumer.each("article.published")
    async def notify(event: Received[Any], ctx: Context) -> None:
        seen.append((event.recipient, event.data, event.ordering_key))
        if (event.recipient, event.data, ctx.attempt) == ("anna", 0, 1):
            raise OSError("once")

    async with running(inbox_database, consumer) as deliveries:
        events = [deliveries.publish("article.published", n, ordering_key="k") for n in range(3)]
        for event in events:
            await deliveries.wait_for(f"{event}/ben")
        assert [each for each in seen if each[0] == "anna"] == [("anna", 0, "k")]
        for event in (events[0], *events):
            await deliveries.advance(5.1)
            await deliveries.wait_for(f"{event}/anna")

    assert [n for name, n, _ in seen if name == "ben"] == [0, 1, 2]
    assert [n for name, n, _ in seen if name == "anna"] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("anna", "takes no str; give it a list"),
        (7, "takes no int"),
        ([""], "a recipient of 0 characters cannot be kept"),
        (["  "], "cannot be kept"),
        (["x" * 501], "a recipient of 501 characters"),
        (["a\0b"], "cannot be kept"),
        (["\ud800"], "cannot be kept"),
        (["anna", 7], "a recipient is of type int; give texts"),
    ],
)
async def test_what_is_no_recipient_is_refused(inbox_database: str, consumer: Consumer, names: Any, words: str) -> None:
    """Before anything is stored; the recipient is not in the message."""

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        await ctx.fan_out(names)

    async with running(inbox_database, consumer) as deliveries:
        settled = await deliveries.wait_for(deliveries.publish("article.published"))

    assert (settled.fate, settled.code) == (Fate.RETRIED, "UsageError")
    assert words in settled.reason
    assert "anna" not in settled.reason
    assert recipients_of(inbox_database) == [""]


async def test_what_was_fanned_out_is_not_fanned_out_again(inbox_database: str, consumer: Consumer) -> None:
    """And a type that nobody handles for recipients is left to processes that may."""
    fanning_out(consumer, "anna")

    @consumer.each("article.published")
    async def notify(event: Received[Any], ctx: Context) -> None:
        await ctx.fan_out(["ben"])

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        settled = await deliveries.wait_for(f"{event}/anna")

    assert (settled.fate, settled.code) == (Fate.RETRIED, "UsageError")
    assert "call it in the handler of the event itself" in settled.reason


async def test_recipients_wait_for_a_process_that_handles_them(inbox_database: str, consumer: Consumer) -> None:
    """Not for that of the event itself, nor for one that is for all types; after ten minutes they have failed."""
    fanning_out(consumer, "anna")
    others: list[str] = []

    @consumer.on("article.*")
    @consumer.fallback
    async def other(event: Received[Any]) -> None:
        others.append(event.recipient)

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        await deliveries.wait_for(event)
        await deliveries.advance(30.0)
        assert row_of(inbox_database, "anna")["attempt_count"] == 0
        await deliveries.advance(590.0)
        settled = await deliveries.wait_for(f"{event}/anna")

    assert (settled.fate, settled.code) == (Fate.DEAD, "UNKNOWN_EVENT_TYPE")
    assert others == []


def row_of(database: str, recipient: str) -> dict[str, Any]:
    """The delivery to this one."""
    (found,) = [each for each in rows(database) if each["recipient"] == recipient]
    return found


async def test_who_lost_the_event_fans_nothing_out(inbox_database: str, consumer: Consumer) -> None:
    """The transaction is not to be committed."""
    raised: list[BaseException] = []

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        with psycopg.connect(inbox_database) as connection:
            connection.execute("update inbox_deliveries set token = gen_random_uuid()")
        try:
            await ctx.fan_out(["anna"])
        except LeaseLostError as error:
            raised.append(error)

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST

    assert "is no longer this handler's" in str(raised[0])
    assert recipients_of(inbox_database) == [""]


async def test_a_send_to_a_recipient_is_confirmed_with_its_name(inbox_database: str, consumer: Consumer) -> None:
    """Among those of the event's own handler."""
    tickets: dict[str, str] = {}

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> Sent:
        await ctx.fan_out(["anna"])
        return Sent("to all")

    @consumer.each("article.published")
    async def notify(event: Received[Any]) -> Sent:
        return Sent(f"to {event.recipient}")

    @consumer.confirm("article.published", every="5s")
    async def confirm(asked: list[Ticket]) -> list[None]:
        tickets.update({each.recipient: f"{each.event_type}: {each.ticket}" for each in asked})
        return [None] * len(asked)

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        await deliveries.wait_for(event)
        await deliveries.wait_for(f"{event}/anna")

        async def both() -> bool:
            await deliveries.advance(1.0)
            return sum(isinstance(each, TicketSettled) for each in deliveries.events) == 2

        await until_async(both, "both verdicts")

    assert tickets == {"": "article.published: to all", "anna": "article.published: to anna"}
    assert [each["state"] for each in rows(inbox_database)] == ["done", "done"]


async def test_a_send_that_failed_is_sent_again_as_its_recipients_handler_has_it(
    inbox_database: str, consumer: Consumer
) -> None:
    """By that one's policy, which may have no attempt left where the event's own has."""
    fanning_out(consumer, "anna", "ben")

    @consumer.each("article.published", retry=Fixed("7s", max_attempts=2))
    async def notify(event: Received[Any]) -> Sent:
        return Sent(event.recipient)

    @consumer.confirm("article.published", every="5s")
    async def confirm(asked: list[Ticket]) -> list[Any]:
        return [Retry("off", "OFF") if each.recipient == "anna" else None for each in asked]

    async with running(inbox_database, consumer) as deliveries:
        deliveries.publish("article.published")

        async def all_over() -> bool:
            await deliveries.advance(1.0)
            return sum(isinstance(each, TicketSettled) for each in deliveries.events) == 3

        await until_async(all_over, "every verdict")

    told = [each for each in deliveries.events if isinstance(each, TicketSettled) and each.recipient == "anna"]
    assert [(each.verdict, each.again_in) for each in told] == [(Verdict.RETRIED, 7.0), (Verdict.DEAD, None)]
    assert (row_of(inbox_database, "anna")["attempt_count"], row_of(inbox_database, "ben")["state"]) == (2, "done")


async def test_recipients_are_divided_among_shards(inbox_database: str, consumer: Consumer) -> None:
    """By themselves: one event's need not all go to the process that has the event."""
    fanning_out(consumer, *(f"u{n}" for n in range(50)))
    async with in_memory(consumer, database=Place(inbox_database)) as deliveries:
        await deliveries.wait_for(deliveries.publish("article.published"))

    assert {each["shard"] % 2 for each in rows(inbox_database) if each["recipient"]} == {0, 1}


def test_who_has_no_inbox_or_no_event_to_fan_out_is_told(consumer: Consumer) -> None:
    """When it registers, or when it starts."""
    with pytest.raises(ConfigurationError, match="choose dedup='inbox'"):
        Consumer("news").each("article.published")
    consumer.each("article.published")(lambda _: None)
    consumer.on("article.printed")(lambda _: None)
    with pytest.raises(ConfigurationError, match=r"register @consumer\.on\('article\.published'\)"):
        consumer.handlers.check()
    consumer.on("article.*")(lambda _: None)
    consumer.handlers.check()
    assert consumer.handlers.patterns() == ("article.printed", "article.*")


def test_an_upcaster_may_lead_to_a_handler_for_recipients_alone(consumer: Consumer) -> None:
    """It is for the event, whoever it is handled for."""
    consumer.on("article.published")(lambda _: None)
    consumer.each("article.published", version=2)(lambda _: None)
    consumer.upcast("article.published", from_version=1)(lambda data: data)
    consumer.handlers.check()


async def test_the_row_of_an_event_is_found_by_its_own_name(inbox_database: str, consumer: Consumer) -> None:
    """The event's delivery has no recipient."""
    fanning_out(consumer)
    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        await deliveries.wait_for(event)
    assert row(inbox_database, event)["recipient"] == ""


async def test_recipients_have_a_revision_of_their_own(inbox_database: str, consumer: Consumer) -> None:
    """A rise has what failed for recipients handled again, and nothing else of that type."""
    fanning_out(consumer, "anna")
    consumer.each("article.published")(refusing)
    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("article.published")
        assert (await deliveries.wait_for(f"{event}/anna")).fate is Fate.DEAD

    later = Consumer("news", dedup="inbox")
    fanning_out(later, "anna")

    @later.each("article.published", revision=2, on_rise="failed")
    async def mended(event: Received[Any]) -> None: ...

    async with running(inbox_database, later) as deliveries:

        async def again() -> bool:
            await deliveries.advance(5.0)
            return bool(row_of(inbox_database, "anna")["state"] == "done")

        await until_async(again, "the recipient's second time")

    versions = {each["recipient"]: each["handler_version"] for each in rows(inbox_database)}
    assert versions == {"": 1, "anna": 2}


async def refusing(event: Received[Any]) -> Dead:
    """Will never work."""
    return Dead("not like this")
