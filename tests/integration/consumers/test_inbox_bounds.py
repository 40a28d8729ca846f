"""What keeps deliveries of an inbox waiting, and for how long: deferrals, pauses, and types that nobody handles."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Context, Received
from consumers.events import Fate
from consumers.inbox.claiming import UNKNOWN_SECONDS
from consumers.testing import Deliveries, in_memory
from tests.support.inbox import history, leases, row
from tests.support.waiting import until_async

DAY = 86_400


@asynccontextmanager
async def running(database: str, **handlers: Any) -> AsyncIterator[Deliveries]:
    """A consumer with a handler for each of these types of orders."""
    consumer = Consumer("billing", dedup="inbox")
    for name, handler in handlers.items():
        consumer.on(f"order.{name}")(handler)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


def async_of(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """The same condition, awaited."""

    async def asked() -> bool:
        return condition()

    return asked


async def said(database: str, event: object, what: str) -> None:
    """Wait for an entry in the history of a delivery."""
    await until_async(async_of(lambda: what in history(database, event)), f"its history has {what}")


class TestDeferrals:
    """`ctx.defer` costs no attempt, and is bounded."""

    async def test_the_last_one_fails_it(self, inbox_database: str) -> None:
        """A thousand by default, counted in the row; an operator's retry begins anew."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            ctx.defer("10s")

        async with running(inbox_database, paid=handler) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.DEFERRED
            with psycopg.connect(inbox_database) as connection:
                connection.execute("update inbox_deliveries set defer_count = 999")
            await deliveries.advance(10.1)
            assert (await deliveries.wait_for(event)).fate is Fate.DEFERRED
            await deliveries.advance(10.1)
            last = await deliveries.wait_for(event)
        assert (last.fate, last.code) == (Fate.DEAD, "DEFERRED_TOO_OFTEN")
        found = row(inbox_database, event)
        assert (found["state"], found["error_code"], found["defer_count"]) == ("failed", "DEFERRED_TOO_OFTEN", 1000)
        assert found["error"] == "deferred 1000 times, and to be deferred once more"

    @pytest.mark.parametrize("days", [31, 40_000])
    async def test_it_is_asked_again_after_thirty_days(self, inbox_database: str, days: int) -> None:
        """However far ahead it was deferred to; then it may be deferred once more."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            ctx.defer(timedelta(days=days))

        async with running(inbox_database, paid=handler) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid"))
        assert (settled.fate, settled.again_in) == (Fate.DEFERRED, 30 * DAY)


class TestThrottling:
    """`ctx.throttle_all` pauses a type in this process."""

    @pytest.mark.parametrize("raises", [False, True], ids=["and returns", "and raises"])
    @pytest.mark.parametrize("key", ["", "k"], ids=["without keys", "with keys"])
    async def test_nothing_of_the_type_is_claimed_meanwhile(
        self, inbox_database: str, *, raises: bool, key: str
    ) -> None:
        """Neither what was claimed with it nor what comes; other types go on, with all permits."""
        calls: list[str] = []

        async def busy(event: Received[Any], ctx: Context) -> None:
            calls.append(event.data)
            if len(calls) == 1:
                ctx.throttle_all(60)
                if raises:
                    raise OSError("503")

        async def other(event: Received[Any]) -> None: ...

        async with running(inbox_database, paid=busy, sent=other) as deliveries:
            events = [deliveries.publish("order.paid", n, ordering_key=f"{key}{n}" if key else "") for n in range(15)]
            await until_async(async_of(lambda: bool(calls)), "one has begun")
            first = events.pop(int(calls[0]))
            assert (await deliveries.wait_for(first)).fate is (Fate.RETRIED if raises else Fate.DONE)
            others = [deliveries.publish("order.sent") for _ in range(20)]
            for each in others:
                assert (await deliveries.wait_for(each)).fate is Fate.DONE
            for _ in range(10):
                await deliveries.advance(5.5)
            assert len(calls) == 1
            assert leases(inbox_database) == []
            assert {row(inbox_database, event)["state"] for event in events} == {"pending"}
            await deliveries.advance(5.1)
            for event in (*events, first) if raises else events:
                assert (await deliveries.wait_for(event)).fate is Fate.DONE
        assert {row(inbox_database, event)["attempt_count"] for event in events} == {1}
        entries = {what for event in events for what in history(inbox_database, event)}
        assert entries == {"created", "processing", "released", "done"}

    async def test_what_its_last_owner_died_with_waits_as_well(self, inbox_database: str) -> None:
        """And holds up nobody else meanwhile, although it runs alone."""
        calls: list[str] = []

        async def busy(event: Received[Any], ctx: Context) -> None:
            calls.append(event.data)
            ctx.throttle_all(60)

        async def other(event: Received[Any]) -> None: ...

        async with running(inbox_database, paid=busy, sent=other) as deliveries:
            await deliveries.wait_for(deliveries.publish("order.paid", "first"))
            suspect = deliveries.publish("order.paid", "suspect")
            await said(inbox_database, suspect, "created")
            with psycopg.connect(inbox_database) as connection:
                connection.execute("update inbox_deliveries set suspect = true where state = 'pending'")
            await deliveries.advance(1)
            assert (await deliveries.wait_for(deliveries.publish("order.sent"))).fate is Fate.DONE
            assert calls == ["first"]
            await deliveries.advance(60)
            assert (await deliveries.wait_for(suspect)).fate is Fate.DONE


class TestUnknownTypes:
    """Rows of a type that no handler here is for."""

    @pytest.mark.parametrize("key", ["", "k"], ids=["without a key", "with a key"])
    @pytest.mark.parametrize("suspect", [False, True], ids=["", "suspect"])
    async def test_they_are_left_to_others_for_ten_minutes(
        self, inbox_database: str, *, key: str, suspect: bool
    ) -> None:
        """Then failed, with a code; the same where the process was started later than they came."""

        async def handler(event: Received[Any]) -> None: ...

        async with running(inbox_database, paid=handler, removed=handler) as deliveries:
            await deliveries.wait_for(deliveries.publish("order.removed", ordering_key=key))
        with psycopg.connect(inbox_database) as connection:
            ((event,),) = connection.execute(
                "update inbox_deliveries set state = 'pending', outcome = null, finished_at = null, token = null, "
                "available_at = now(), suspect = %s returning event_id",
                [suspect],
            ).fetchall()
        async with running(inbox_database, paid=handler) as deliveries:
            await deliveries.advance(UNKNOWN_SECONDS - 20)
            await deliveries.wait_for(deliveries.publish("order.paid"))
            assert row(inbox_database, event)["state"] == "pending"
            await deliveries.advance(21)
            await said(inbox_database, event, "failed")
        found = row(inbox_database, event)
        assert (found["state"], found["error_code"]) == ("failed", "UNKNOWN_EVENT_TYPE")
        assert found["error"] == "no handler is for events of this type"
