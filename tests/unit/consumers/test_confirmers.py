"""Registering who asks what became of sends: what cannot be meant is refused, with what to write instead."""

from typing import Any

import pytest

from consumers import (
    ConfigurationError,
    ConfirmContext,
    Consumer,
    Defer,
    Done,
    InvalidRecipient,
    Sent,
    Ticket,
    UsageError,
)
from consumers.answers import for_each


@pytest.fixture
def consumer() -> Consumer:
    """One with an inbox."""
    return Consumer("push", dedup="inbox")


async def ask(tickets: list[Ticket]) -> Done:
    """All have arrived."""
    return Done()


@pytest.mark.parametrize("dedup", ["claim", "mark", "none"])
def test_a_consumer_without_an_inbox_confirms_nothing(dedup: Any) -> None:
    """It is told when it registers, not when it has sent."""
    consumer = Consumer("push", dedup=dedup)
    remedy = f"has dedup='{dedup}'; choose dedup='inbox'"
    with pytest.raises(ConfigurationError, match=remedy):
        consumer.confirm("push.due")(ask)
    with pytest.raises(ConfigurationError, match=remedy):
        consumer.on_invalid(ask)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"event_type": "push.*"}, "name one event type"),
        ({"event_type": ""}, "name one event type"),
        ({"event_type": "push.due@each"}, "for its recipients as well"),
        ({"batch": 0}, "has batch=0; write how many tickets"),
        ({"batch": True}, "has batch=True"),
        ({"batch": 10_001}, "1 to 10000"),
        ({"every": "soon"}, "every "),
        ({"every": 0}, "has every=0"),
        ({"every": "10ms"}, "write 1s or more"),
        ({"timeout": -1}, "timeout "),
        ({"every": "1h", "unknown_after": "1h"}, "would be unknown before it is asked about"),
    ],
)
def test_what_cannot_be_meant_is_refused(consumer: Consumer, options: dict[str, Any], words: str) -> None:
    """With the value, and what to write."""
    with pytest.raises(ConfigurationError, match=words):
        consumer.confirm(**{"event_type": "push.due", **options})(ask)


def test_a_type_is_confirmed_by_one_function(consumer: Consumer) -> None:
    """And recipients are deactivated by one."""
    consumer.confirm("push.due")(ask)
    consumer.confirm("mail.due")(ask)
    with pytest.raises(ConfigurationError, match=r"'push.due' is confirmed already, by ask"):
        consumer.confirm("push.due")(ask)

    @consumer.on_invalid
    async def deactivate(invalid: InvalidRecipient) -> None: ...

    with pytest.raises(ConfigurationError, match=r"there is an @consumer\.on_invalid already"):
        consumer.on_invalid(deactivate)


def test_what_is_no_function_of_tickets_is_refused(consumer: Consumer) -> None:
    """As a handler's shape is."""
    with pytest.raises(ConfigurationError, match=r"has to take \(tickets\) or \(tickets, context\)"):
        consumer.confirm("push.due")(lambda: None)
    with pytest.raises(ConfigurationError, match="has to be async def"):
        consumer.on_invalid(lambda _: None)

    async def deactivate(invalid: InvalidRecipient, ctx: ConfirmContext, more: object) -> None: ...

    with pytest.raises(ConfigurationError, match=r"has to take \(invalid\) or \(invalid, context\)"):
        consumer.on_invalid(deactivate)


@pytest.mark.parametrize(
    ("ticket", "words"),
    [("", "is empty"), (" ", "is empty"), ("a\0b", "cannot be kept"), ("x" * 4_001, "4000"), ("\ud800", "UTF-8")],
)
def test_a_ticket_that_cannot_be_kept_is_a_fault(consumer: Consumer, ticket: str, words: str) -> None:
    """It is found before it is written, where others are written with it."""
    consumer.confirm("push.due")(ask)
    assert words in (consumer.confirmers.fault(Sent(ticket), "push.due") or "")
    assert consumer.confirmers.fault(Sent("x" * 4_000), "push.due") is None


def test_a_ticket_is_a_text_whatever_the_provider_gives() -> None:
    """A number stands for itself: a send must not fail over it."""
    assert Sent(17).ticket == "17"  # type: ignore[arg-type]


async def test_an_answer_is_taken_apart_only_where_it_is_plain_which_is_whose() -> None:
    """A list of as many; or one outcome, or nothing where that is enough."""
    assert for_each([1, None], 2, "f", silence_is_done=True) == [1, None]
    assert for_each((1,), 1, "f", silence_is_done=True) == [1]
    assert for_each(Defer(3), 2, "f", silence_is_done=False) == [Defer(3)] * 2
    assert for_each(None, 2, "f", silence_is_done=True) == [None, None]

    async def late() -> None: ...

    for answer in ("ab", {1: 2, 3: 4}, 7, [], [1], [1, 2, 3], iter([1, 2]), late()):
        with pytest.raises(UsageError, match=r"^f (was called with 2 and answered|answered with an awaitable)"):
            for_each(answer, 2, "f", silence_is_done=True)
    with pytest.raises(UsageError, match="answered with nothing"):
        for_each(None, 2, "f", silence_is_done=False)
