"""Sends in two steps: taken by a provider, and confirmed later by the ticket that it gave."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from consumers import (
    ConfirmContext,
    Consumer,
    Dead,
    Defer,
    Done,
    Fixed,
    Invalid,
    InvalidRecipient,
    Received,
    Retry,
    Sent,
    Skip,
    Ticket,
)
from consumers.events import ConfirmFailed, Fate, InboxAway, InboxBack, TicketsAsked, TicketSettled, Verdict
from consumers.testing import Deliveries, in_memory
from consumers.testing.database import Place
from tests.support.inbox import history, row
from tests.support.inbox_at_work import goes_by


class Provider:
    """Takes everything, gives tickets, and says of each what the test wants it to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.asked: list[list[str]] = []
        self.answer: Callable[[list[Ticket]], Any] = lambda tickets: [None] * len(tickets)
        self.tickets: list[Ticket] = []
        self.hold: asyncio.Event | None = None

    def send(self, event: Received[Any]) -> Sent:
        """Take it."""
        self.sent.append(str(event.data))
        return Sent(f"ticket {len(self.sent)} of {event.data}")

    async def ask(self, tickets: list[Ticket]) -> Any:
        """What became of these."""
        self.asked.append([each.ticket for each in tickets])
        self.tickets = tickets
        if self.hold is not None:
            await self.hold.wait()
        return self.answer(tickets)


def consumer_of(provider: Provider, **confirm: Any) -> Consumer:
    """A consumer that sends to the provider, and asks it every ten seconds."""
    consumer = Consumer("push", dedup="inbox", retry=Fixed("5s", max_attempts=2))

    @consumer.on("push.due")
    async def send(event: Received[Any]) -> Sent:
        return provider.send(event)

    consumer.confirm("push.due", **{"every": "10s", "unknown_after": "60s", **confirm})(provider.ask)
    return consumer


@pytest.fixture
def provider() -> Provider:
    """A provider of its own."""
    return Provider()


@asynccontextmanager
async def running(database: str, consumer: Consumer) -> AsyncIterator[Deliveries]:
    """That consumer at work."""
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


async def until(deliveries: Deliveries, condition: Callable[[], Any]) -> None:
    """Have time go by until it is so."""
    await goes_by(deliveries, 1.0, condition)


def told(deliveries: Deliveries, kind: type[Any]) -> list[Any]:
    """What was told of this kind."""
    return [event for event in deliveries.events if isinstance(event, kind)]


async def test_what_was_sent_is_done_when_its_provider_says_so(inbox_database: str, provider: Provider) -> None:
    """It waits as sent, with its ticket, holds no lease and no permit, and its history has every step."""
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        event = deliveries.publish("push.due", "a")
        assert (await deliveries.wait_for(event)).fate is Fate.SENT
        found = row(inbox_database, event)
        assert (found["state"], found["outcome"], found["ticket"]) == ("sent", None, "ticket 1 of a")
        assert deliveries.process.runtime.stats(1.0).running == 0
        await until(deliveries, lambda: told(deliveries, TicketSettled))
        assert deliveries.pending == 0

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["attempt_count"]) == ("done", "ok", 1)
    assert found["finished_at"] is not None
    assert history(inbox_database, event) == ["created", "processing", "sent", "confirmed"]
    (asked,) = provider.tickets
    assert (asked.event_id, asked.event_type, asked.recipient, asked.attempt) == (event, "push.due", "", 1)
    assert asked.sent_at == found["sent_at"]
    assert provider.sent == ["a"]


async def test_one_call_asks_about_many_and_each_gets_its_own_answer(inbox_database: str, provider: Provider) -> None:
    """By its place in the list; what failed for now is sent again, what failed for good is not."""
    answers = {
        "ok": Done(),
        "again": Retry("the phone was off", "OFF"),
        "dead": Dead("too large", "TOO_LARGE"),
        "gone": Invalid("no such phone", "UNREGISTERED"),
        "later": Defer("20s"),
    }
    provider.answer = lambda tickets: [answers[each.ticket.split()[-1]] for each in tickets]
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        events = {name: deliveries.publish("push.due", name) for name in answers}
        for event in events.values():
            await deliveries.wait_for(event)
        await until(deliveries, lambda: len(told(deliveries, TicketSettled)) >= 4)
        assert len(provider.asked[0]) == 5
        (asked,) = told(deliveries, TicketsAsked)[:1]
        assert asked.verdicts == {"confirmed": 1, "retried": 1, "dead": 1, "invalid": 1, "open": 1}
        assert row(inbox_database, events["later"])["state"] == "sent"
        answers["later"] = answers["again"] = Done()
        await until(deliveries, lambda: len(told(deliveries, TicketSettled)) >= 6)

    states = {name: row(inbox_database, event) for name, event in events.items()}
    assert {name: (each["state"], each["outcome"]) for name, each in states.items()} == {
        "ok": ("done", "ok"),
        "again": ("done", "ok"),
        "dead": ("failed", "dead"),
        "gone": ("failed", "invalid"),
        "later": ("done", "ok"),
    }
    assert (states["dead"]["error_code"], states["dead"]["error"]) == ("TOO_LARGE", "too large")
    assert history(inbox_database, events["again"]) == [
        "created",
        *["processing", "sent", "retry"],
        *["processing", "sent", "confirmed"],
    ]
    assert history(inbox_database, events["later"]) == ["created", "processing", "sent", "confirmed"]
    assert sorted(provider.sent) == ["again", "again", "dead", "gone", "later", "ok"]
    assert deliveries.dead_letters == []


async def test_a_send_fails_when_its_last_attempt_does(inbox_database: str, provider: Provider) -> None:
    """Each send is an attempt of the handler's policy; there is none after the last."""
    provider.answer = lambda tickets: [Retry("off", "OFF")] * len(tickets)
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        event = deliveries.publish("push.due", "a")
        await until(deliveries, lambda: len(told(deliveries, TicketSettled)) == 2)

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["error_code"]) == ("failed", "dead", "OFF")
    assert provider.sent == ["a", "a"]
    assert [each.verdict for each in told(deliveries, TicketSettled)] == [Verdict.RETRIED, Verdict.DEAD]


@pytest.mark.parametrize("silence", ["not yet", "raises"])
async def test_what_nobody_says_in_time_is_unknown_and_never_sent_again(
    inbox_database: str, provider: Provider, silence: str
) -> None:
    """Whether the provider has no verdict or cannot be asked; nothing else bounds it."""

    def answer(tickets: list[Ticket]) -> Any:
        if silence == "raises":
            raise OSError("the provider is away")
        return Defer("10s")

    provider.answer = answer
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        event = deliveries.publish("push.due", "a")
        await until(deliveries, lambda: told(deliveries, TicketSettled))
        assert deliveries.pending == 0
        await deliveries.advance(100.0)

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["error_code"]) == ("failed", "unknown", "UNKNOWN")
    assert found["ticket"] == "ticket 1 of a"
    assert history(inbox_database, event)[-2:] == ["sent", "unknown"]
    assert provider.sent == ["a"]
    assert 2 <= len(provider.asked) <= 8
    assert bool(told(deliveries, ConfirmFailed)) is (silence == "raises")


async def test_a_recipient_that_is_none_is_deactivated_before_its_row_ends(
    inbox_database: str, provider: Provider
) -> None:
    """And again where that failed: at least once."""
    provider.answer = lambda tickets: [Invalid("no such phone", "UNREGISTERED")] * len(tickets)
    consumer = consumer_of(provider)
    deactivated: list[tuple[InvalidRecipient, str]] = []

    @consumer.on_invalid
    async def deactivate(invalid: InvalidRecipient) -> None:
        deactivated.append((invalid, row(inbox_database, invalid.event_id)["state"]))
        if len(deactivated) == 1:
            raise OSError("the users' database is away")

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("push.due", "a")
        await until(deliveries, lambda: told(deliveries, TicketSettled))

    assert [state for _, state in deactivated] == ["sent", "sent"]
    (failed,) = told(deliveries, ConfirmFailed)
    assert (str(failed.error), failed.tickets) == ("the users' database is away", 1)
    assert deactivated[0][0] == InvalidRecipient(
        event_id=event,
        event_type="push.due",
        recipient="",
        ticket="ticket 1 of a",
        code="UNREGISTERED",
        reason="no such phone",
    )
    assert row(inbox_database, event)["outcome"] == "invalid"


async def test_who_deactivates_has_a_transaction_and_what_the_lifespan_yields(
    inbox_database: str, provider: Provider
) -> None:
    """Whoever asks about tickets in a thread has the transaction, too."""
    rows: list[tuple[str, Any, str]] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "the provider"

    consumer = Consumer("push", dedup="inbox", lifespan=lifespan)

    @consumer.on("push.due")
    async def send(event: Received[Any]) -> Sent:
        return provider.send(event)

    @consumer.confirm("push.due", every="10s")
    def ask(tickets: list[Ticket], ctx: ConfirmContext) -> Invalid:
        with ctx.transaction() as connection:
            ((state,),) = connection.execute("select state from inbox_deliveries").fetchall()
        rows.append(("asked", ctx.state, state))
        return Invalid("no such phone")

    @consumer.on_invalid
    async def deactivate(invalid: InvalidRecipient, ctx: ConfirmContext) -> None:
        async with ctx.transaction() as connection:
            cursor = await connection.execute(
                "update inbox_deliveries set stage = 'deactivated' where event_id = %s returning stage",
                [invalid.event_id],
            )
            rows.extend([(stage, ctx.state, ctx.event_type) async for (stage,) in cursor])

    async with running(inbox_database, consumer) as deliveries:
        event = deliveries.publish("push.due", "a")
        await until(deliveries, lambda: told(deliveries, TicketSettled))

    assert rows == [("asked", "the provider", "sent"), ("deactivated", "the provider", "push.due")]
    assert (row(inbox_database, event)["stage"], row(inbox_database, event)["outcome"]) == ("deactivated", "invalid")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: None, "was called with 2 and answered with nothing"),
        (lambda _: [Done()], "was called with 2 and answered for 1"),
        (lambda _: {"ok": True}, "answered with a dict; return a list"),
        (lambda _: [Skip("x"), "delivered"], "answered with a Skip about one of them"),
    ],
)
async def test_a_wrong_answer_is_told_and_decides_nothing(
    inbox_database: str, provider: Provider, answer: Any, words: str
) -> None:
    """The sends are asked about again."""
    provider.answer = answer
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        events = [deliveries.publish("push.due", name) for name in "ab"]
        for event in events:
            await deliveries.wait_for(event)
        await until(deliveries, lambda: told(deliveries, ConfirmFailed))
        (failed,) = told(deliveries, ConfirmFailed)
        assert words in str(failed.error)
        assert failed.tickets == 2
        assert {row(inbox_database, event)["state"] for event in events} == {"sent"}
        provider.answer = lambda _: Done()
        await until(deliveries, lambda: len(told(deliveries, TicketSettled)) == 2)
        assert deliveries.pending == 0


async def test_a_process_that_dies_over_a_question_sends_nothing_again(inbox_database: str, provider: Provider) -> None:
    """Between its claim and the verdict: the next process asks, when the claim is over."""
    provider.hold = asyncio.Event()
    async with running(inbox_database, consumer_of(provider, timeout="5s")) as deliveries:
        event = deliveries.publish("push.due", "a")
        await until(deliveries, lambda: provider.asked)
        await deliveries.crash()
        assert row(inbox_database, event)["state"] == "sent"
        provider.hold = None
        await deliveries.restart()
        await deliveries.advance(20.0)
        assert len(provider.asked) == 1
        await until(deliveries, lambda: told(deliveries, TicketSettled))

    assert provider.sent == ["a"]
    assert len(provider.asked) == 2
    assert history(inbox_database, event) == ["created", "processing", "sent", "confirmed"]


async def test_a_process_that_stops_over_a_question_leaves_it_to_the_next_at_once(
    inbox_database: str, provider: Provider
) -> None:
    """Its claim is given back."""
    provider.hold = asyncio.Event()
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        deliveries.publish("push.due", "a")
        await until(deliveries, lambda: provider.asked)
        await deliveries.stop()
        provider.hold = None
        await deliveries.restart()
        await until(deliveries, lambda: told(deliveries, TicketSettled))
        assert deliveries.clock.monotonic() < 60

    assert provider.sent == ["a"]


async def test_two_processes_never_ask_about_the_same_send_at_once(inbox_database: str, provider: Provider) -> None:
    """A claim is one process's; what another has is passed over."""
    provider.hold = asyncio.Event()
    other = Provider()
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        deliveries.publish("push.due", "a")
        await until(deliveries, lambda: provider.asked)
        async with in_memory(consumer_of(other), database=Place(inbox_database), clock=deliveries.clock) as others:
            await others.advance(30.0)
            assert other.asked == []
            provider.hold.set()
            await until(deliveries, lambda: told(deliveries, TicketSettled))

    assert len(provider.asked) == 1


async def test_a_late_verdict_of_a_lost_claim_does_not_count(inbox_database: str, provider: Provider) -> None:
    """Somebody else asks by then, whose answer it is."""
    provider.answer = lambda _: Dead("never")
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        event = deliveries.publish("push.due", "a")
        await deliveries.wait_for(event)

        def taken(tickets: list[Ticket]) -> Any:
            with psycopg.connect(inbox_database) as connection:
                connection.execute("update inbox_deliveries set token = gen_random_uuid()")
            return Dead("never")

        provider.answer = taken
        await until(deliveries, lambda: told(deliveries, TicketsAsked))
        assert told(deliveries, TicketsAsked)[0].verdicts == {"lost": 1}

    assert row(inbox_database, event)["state"] == "sent"


async def test_more_than_a_batch_is_asked_about_at_once(inbox_database: str, provider: Provider) -> None:
    """Batch after batch, until nothing is due."""
    async with running(inbox_database, consumer_of(provider, batch=4)) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(10)]
        for event in events:
            await deliveries.wait_for(event)
        await until(deliveries, lambda: len(told(deliveries, TicketSettled)) == 10)

    assert [len(each) for each in provider.asked] == [4, 4, 2]


async def test_a_function_that_takes_too_long_is_asked_again(inbox_database: str, provider: Provider) -> None:
    """It is cancelled at its timeout, and nothing is decided."""
    provider.hold = asyncio.Event()
    async with running(inbox_database, consumer_of(provider, timeout="3s")) as deliveries:
        deliveries.publish("push.due", "a")
        await until(deliveries, lambda: told(deliveries, ConfirmFailed))
        assert "timed out after 3 s" in str(told(deliveries, ConfirmFailed)[0].error)
        provider.hold = None
        await until(deliveries, lambda: told(deliveries, TicketSettled))


async def test_a_plain_function_asks_in_a_thread_with_the_consumers_state(inbox_database: str) -> None:
    """And knows which consumer and type it is about."""
    consumer = Consumer("push", dedup="inbox")
    seen: list[tuple[Any, ...]] = []

    @consumer.on("push.due")
    def send(event: Received[Any]) -> Sent:
        return Sent("t")

    @consumer.confirm("push.due", every="10s")
    def ask(tickets: list[Ticket], ctx: ConfirmContext) -> list[Done]:
        seen.append((ctx.consumer, ctx.event_type, ctx.state, ctx.stopping, threading.current_thread().name))
        return [Done() for _ in tickets]

    async with in_memory(consumer, database=inbox_database, state="a client") as deliveries:
        deliveries.publish("push.due")
        await until(deliveries, lambda: told(deliveries, TicketSettled))

    assert [each[:4] for each in seen] == [("push", "push.due", "a client", False)]
    assert "push-handler" in seen[0][4]


async def test_a_send_that_nobody_asks_about_fails_and_is_not_sent_again(inbox_database: str) -> None:
    """With what to register; so does one whose ticket cannot be kept."""
    consumer = Consumer("push", dedup="inbox")
    sent: list[str] = []

    @consumer.on("push.due")
    @consumer.on("push.other")
    async def send(event: Received[Any]) -> Sent:
        sent.append(event.event_type)
        return Sent("" if event.event_type == "push.due" else "t")

    @consumer.confirm("push.due")
    async def ask(tickets: list[Ticket]) -> None: ...

    async with in_memory(consumer, database=inbox_database) as deliveries:
        empty = await deliveries.wait_for(deliveries.publish("push.due"))
        unasked = await deliveries.wait_for(deliveries.publish("push.other"))
        await deliveries.advance(100.0)

    assert (empty.fate, empty.code, unasked.fate, unasked.code) == (Fate.DEAD, "UNCONFIRMABLE") * 2
    assert "its ticket is empty" in empty.reason
    assert "register @consumer.confirm('push.other')" in unasked.reason
    assert sorted(sent) == ["push.due", "push.other"]


async def test_sends_wait_while_the_inbox_is_away(inbox_database: str, provider: Provider) -> None:
    """It is told, and asked again."""
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        event = deliveries.publish("push.due", "a")
        await deliveries.wait_for(event)
        with psycopg.connect(inbox_database, autocommit=True) as connection:
            connection.execute("alter table inbox_deliveries rename to hidden")
            await until(deliveries, lambda: [e for e in told(deliveries, InboxAway) if e.operation == "confirm"])
            connection.execute("alter table hidden rename to inbox_deliveries")
        await until(deliveries, lambda: told(deliveries, TicketSettled))
        assert [e for e in told(deliveries, InboxBack) if e.operation == "confirm"]


async def test_a_send_with_a_key_lets_the_next_of_its_key_go(inbox_database: str, provider: Provider) -> None:
    """What was sent is out of its hands; one that is sent again is the first of its key once more."""
    provider.answer = lambda tickets: [Retry("off") if "1 of" in each.ticket else None for each in tickets]
    async with running(inbox_database, consumer_of(provider)) as deliveries:
        for name in "ab":
            deliveries.publish("push.due", name, ordering_key="k")
        await until(deliveries, lambda: len(provider.sent) == 2)
        await until(deliveries, lambda: len(provider.sent) == 3)
        await until(deliveries, lambda: deliveries.pending == 0)

    assert provider.sent == ["a", "b", "a"]
