"""What a failure of a handler means for a delivery of the inbox, and what its row keeps of it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from consumers import Classification, Consumer, Dead, Exponential, FatalError, Invalid, Received, Series, TransientError
from consumers.events import Fate
from consumers.testing import in_memory
from tests.support.inbox import history, row


class Paid(BaseModel):
    """What an order's payment is made of."""

    cents: int


class RefusedError(Exception):
    """As the client of a bank has it: with a code."""

    def __init__(self, code: str, *, retryable: bool | None = None) -> None:
        super().__init__(f"the bank says {code}")
        self.code = code
        if retryable is not None:
            self.retryable = retryable


def consumer_of(raised: BaseException | None, **options: Any) -> Consumer:
    """A consumer whose handler raises this; its data are those of a payment."""
    consumer = Consumer("billing", dedup="inbox", **options)

    @consumer.on("order.paid", model=Paid)
    async def handler(event: Received[Paid]) -> None:
        if raised is not None:
            raise raised

    return consumer


CODES = Classification(retry_codes=["BUSY"])


@pytest.mark.parametrize(
    ("raised", "classification", "state", "outcome", "code"),
    [
        (OSError("the bank says nothing"), Classification(), "pending", None, "OSError"),
        (RuntimeError("the bank says nothing"), Classification(), "pending", None, "RuntimeError"),
        (RefusedError("BUSY"), CODES, "pending", None, "BUSY"),
        (RefusedError("CLOSED"), CODES, "failed", "dead", "CLOSED"),
        (OSError("the bank says nothing"), CODES, "failed", "dead", "OSError"),
        (RefusedError("BUSY", retryable=False), CODES, "failed", "dead", "BUSY"),
        (RefusedError("CLOSED", retryable=False), Classification(), "failed", "dead", "CLOSED"),
        (RefusedError("CLOSED", retryable=True), CODES, "pending", None, "CLOSED"),
        (TransientError("the bank says BUSY", "BUSY"), Classification(), "pending", None, "BUSY"),
        (FatalError("the bank says CLOSED", "CLOSED"), Classification(), "failed", "dead", "CLOSED"),
    ],
)
async def test_an_error_is_transient_unless_somebody_says_otherwise_and_its_code_and_words_are_kept(  # noqa: PLR0913, PLR0917 -- a table
    inbox_database: str,
    raised: Exception,
    classification: Classification,
    state: str,
    outcome: str | None,
    code: str,
) -> None:
    """A table of codes may make all others fatal; what the error itself says goes before it."""
    async with in_memory(consumer_of(raised, classification=classification), database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid", {"cents": 1})
        settled = await deliveries.wait_for(event)

    assert settled.fate is (Fate.RETRIED if state == "pending" else Fate.DEAD)
    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["error_code"], found["attempt_count"]) == (state, outcome, code, 1)
    assert "the bank says" in found["error"]
    assert history(inbox_database, event)[-1] == ("retry" if state == "pending" else "failed")


async def test_data_that_the_model_refuses_is_invalid_at_once(inbox_database: str) -> None:
    """The row names the place, and not the value."""
    async with in_memory(consumer_of(None), database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid", {"cents": "a secret"})
        assert (await deliveries.wait_for(event)).fate is Fate.INVALID
        assert deliveries.dead_letters == []

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["error_code"]) == ("failed", "invalid", "INVALID_DATA")
    assert "cents" in found["error"]
    assert "secret" not in found["error"]


async def test_a_timeout_is_transient_whatever_the_consumer_takes_for_fatal(inbox_database: str) -> None:
    """Three quarters of a lease after the handler began it is cancelled, before anybody else may have the delivery."""
    entered: list[float] = []
    consumer = Consumer("billing", dedup="inbox", classification=Classification(retry_codes=[]))

    @consumer.on("order.paid")
    async def handler(event: Received[Any]) -> None:
        entered.append(deliveries.clock.monotonic())
        await asyncio.Event().wait()

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid")
        while not entered:
            await deliveries.advance(0.25)
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.005))])  # the database answers in real time
        await deliveries.advance(entered[0] + 44.9 - deliveries.clock.monotonic())
        assert deliveries.fates(event) == []
        await deliveries.advance(0.1)
        settled = await deliveries.wait_for(event)

    assert (settled.fate, settled.code) == (Fate.RETRIED, "TIMEOUT")
    found = row(inbox_database, event)
    assert (found["state"], found["error_code"], found["attempt_count"]) == ("pending", "TIMEOUT", 1)


async def test_a_policy_says_when_the_next_attempt_is(inbox_database: str) -> None:
    """Series: 1, 2, 4, 8, 16, 32, 60, 60 minutes; the row waits for exactly that."""
    consumer = consumer_of(TransientError("no", "NO"), retry=Series(max_attempts=9))
    waits: list[float | None] = []
    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid", {"cents": 1})
        while (settled := await deliveries.wait_for(event)).fate is Fate.RETRIED:
            waits.append(settled.again_in)
            await deliveries.advance(timedelta(seconds=(settled.again_in or 0.0) + 0.5))

    assert settled.fate is Fate.DEAD
    assert waits == [60.0 * minutes for minutes in (1, 2, 4, 8, 16, 32, 60, 60)]
    assert row(inbox_database, event)["attempt_count"] == 9


async def test_attempts_may_be_without_end(inbox_database: str) -> None:
    """-1; no count in the row ends them."""
    consumer = consumer_of(TransientError("no", "NO"), retry=Exponential(max_attempts=-1))
    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid", {"cents": 1})
        for _ in range(6):
            settled = await deliveries.wait_for(event)
            assert settled.fate is Fate.RETRIED
            await deliveries.advance(timedelta(seconds=(settled.again_in or 0.0) + 0.5))
    assert row(inbox_database, event)["state"] == "pending"


@pytest.mark.parametrize("answer", [Dead("no", "NO"), Invalid("no", "NO")])
async def test_what_a_handler_gives_up_is_tried_no_more(inbox_database: str, answer: Dead | Invalid) -> None:
    """Failed, by the handler's own word."""
    consumer = Consumer("billing", dedup="inbox")
    calls = 0

    @consumer.on("order.paid")
    async def handler(event: Received[Any]) -> Dead | Invalid:
        nonlocal calls
        calls += 1
        return answer

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.wait_for(event)
        await deliveries.advance(timedelta(hours=1))
        later = deliveries.publish("order.paid")
        await deliveries.wait_for(later)

    found = row(inbox_database, event)
    assert (calls, found["state"], found["outcome"]) == (2, "failed", type(answer).__name__.lower())
