"""What a dead letter says beside the message that it was."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.dead_letters import LEFT_OUT, CarefulDeadLetters, attributes_of, original_attributes
from consumers.delivery import Delivery
from consumers.outcome import Dead, Invalid
from consumers.sources.pubsub_dead_letters import fitting
from relay.kernel.line_redaction import Redaction

NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)
RELAYS = {
    "event_id": "0194b6a0-0000-7000-8000-000000000001",
    "event_type": "order.paid",
    "aggregate_type": "order",
    "aggregate_id": "42",
    "created_at": "2025-01-31T11:00:00+00:00",
    "sequence": "7",
}


def of(attributes: dict[str, str], why: Dead | Invalid | None = None, ordering_key: str = "k") -> dict[str, str]:
    """The attributes of a dead letter of billing."""
    return attributes_of(
        Delivery(body=b"{}", attributes=attributes, message_id="4711", ordering_key=ordering_key),
        why or Dead("no such account", "NO_ACCOUNT"),
        consumer="billing",
        subscription="billing-orders",
        attempts=3,
        now=NOW,
    )


def test_a_dead_letter_is_the_message_and_why() -> None:
    """Whoever reads it knows what failed, whose it was, how often it was tried, and what its key had been."""
    assert of(RELAYS) == {
        **RELAYS,
        "dead_letter_consumer": "billing",
        "dead_letter_subscription": "billing-orders",
        "dead_letter_code": "NO_ACCOUNT",
        "dead_letter_reason": "no such account",
        "dead_letter_kind": "dead",
        "dead_letter_attempts": "3",
        "dead_letter_message_id": "4711",
        "dead_letter_ordering_key": "k",
        "dead_letter_at": "2025-01-31T12:00:00+00:00",
    }
    assert "dead_letter_ordering_key" not in of(RELAYS, ordering_key="")
    assert of(RELAYS, Invalid("no amount"))["dead_letter_kind"] == "invalid"


def test_the_broker_takes_a_hundred_attributes_and_the_relays_stay() -> None:
    """The reason comes first, then what makes the message an event; the publisher's own are left out, and counted."""
    own = {f"own-{number:02}": "x" for number in range(94)}

    found = of({**own, **RELAYS})

    assert len(found) == 100
    assert RELAYS.items() <= found.items()
    assert int(found[LEFT_OUT]) == 100 - sum(name in RELAYS or name in own for name in found) == 10


@pytest.mark.parametrize("count", range(84, 95))
def test_nothing_is_left_out_while_there_is_room(count: int) -> None:
    """Nine are ours here; the tenth is the count, which is there only where something is missing."""
    found = of({f"own-{number:02}": "x" for number in range(count)})

    assert len(found) == min(count + 9, 100)
    assert found.get(LEFT_OUT) == (None if count <= 91 else str(count - 90))


def test_values_end_where_the_broker_ends_them_and_between_characters() -> None:
    """1,024 bytes, not characters."""
    found = of({}, Dead("€" * 1_000, "Ö" * 1_000))

    assert found["dead_letter_reason"] == "€" * 341
    assert found["dead_letter_code"] == "Ö" * 512


def test_names_that_are_the_brokers_are_not_sent_back_to_it() -> None:
    """It refuses `goog…` of anybody else; what its dead-letter policy says of a message is not the publisher's."""
    brokers = {
        "googclient_schemaencoding": "JSON",
        "CloudPubSubDeadLetterSourceSubscription": "s",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
    }

    found = of({**RELAYS, **brokers})

    assert RELAYS.items() <= found.items()
    assert not brokers.keys() & found.keys()
    assert LEFT_OUT not in found


def test_what_another_source_took_and_this_broker_does_not_is_left_out() -> None:
    """Refused, it would hold up the delivery for ever."""
    found = of({"": "x", "n" * 257: "x", "long": "x" * 1_025, "fits": "x"})

    assert found["fits"] == "x"
    assert found[LEFT_OUT] == "3"
    assert not {"", "n" * 257, "long"} & found.keys()


def test_a_second_death_tells_of_the_second_one_alone() -> None:
    """What comes again out of dead letters, and fails again, is not told of twice."""
    first = of(RELAYS)

    second = of({**first, "replayed_for": "billing"}, Dead("gone", "GONE"))

    assert "replayed_for" not in second
    assert second["dead_letter_code"] == "GONE"
    assert original_attributes(second) == RELAYS


@pytest.mark.parametrize(
    ("reason", "hidden"),
    [
        ("connecting to postgresql://app:hunter2@db:5432/orders failed", "hunter2"),
        ("401 with Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("duplicate key value\nDETAIL:  Key (email)=(ann@example.com) already exists.", "ann@example.com"),
        ("card 4111 1111 1111 1111 was declined", "4111"),
        ("api_key=XyZ12345678", "XyZ12345678"),
    ],
)
def test_a_reason_gives_away_no_secret_and_no_data(reason: str, hidden: str) -> None:
    """Topics are read by more people than databases."""
    for why in (Dead(reason, reason), Invalid(reason, reason)):
        assert hidden not in "".join(of({}, why).values())


def test_a_reason_that_is_no_text_is_told_all_the_same() -> None:
    """A handler may have answered with its exception."""
    found = of({}, Dead(ValueError("no such account"), 404))  # type: ignore[arg-type]

    assert found["dead_letter_reason"] == "no such account"
    assert found["dead_letter_code"] == "404"


def size(attributes: dict[str, str]) -> int:
    """As much as they take at most."""
    return sum(len(name) + len(value) + 12 for name, value in attributes.items())


def test_a_message_without_room_gives_up_the_sentence_first() -> None:
    """Cut, as long as that is enough; then without it; then what a replay can do without."""
    whole = of(RELAYS, Dead("x" * 1_000))

    assert fitting(whole, size(whole)) == whole
    cut = fitting(whole, size(whole) - 300)
    assert cut == {**whole, "dead_letter_reason": "x" * 700}
    without = fitting(whole, size(whole) - 1_040)
    assert {name for name in whole if name not in without} == {"dead_letter_reason", "dead_letter_kind"}


@pytest.mark.parametrize("room", range(0, 700, 50))
def test_whatever_the_room_is_what_a_replay_needs_stays_longest(room: int) -> None:
    """It always fits, and the publisher's own goes before whose it is."""
    found = fitting(of(RELAYS), room)

    assert size(found) <= room
    if found:
        assert "dead_letter_ordering_key" in found


async def test_a_reason_goes_through_the_users_own_hook() -> None:
    """Asked as for the delivery's line; what it fails on is sent without a reason's text, and the rest as it was."""
    sent: list[Mapping[str, str]] = []

    class Topic:
        topic = "dead"

        async def open(self) -> None: ...

        async def close(self) -> None: ...

        async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
            assert delivery.message_id == "4711"
            sent.append(attributes)

    asked: list[dict[str, Any]] = []

    def hook(line: dict[str, Any]) -> dict[str, Any]:
        asked.append(line)
        return line | {"error": line["error"].replace("Quuxley", "…")}

    attributes = {
        "event_type": "order.paid",
        "dead_letter_code": "CARD",
        "dead_letter_reason": "customer Quuxley has moved",
        "dead_letter_consumer": "billing",
    }
    for redaction in (Redaction(hook), Redaction(lambda _: {}), Redaction()):
        await CarefulDeadLetters(Topic(), redaction).send(
            Delivery(body=b"{}", attributes={}, message_id="4711"), attributes
        )
    await CarefulDeadLetters(Topic(), Redaction(hook)).send(
        Delivery(body=b"{}", attributes={}, message_id="4711"), {"event_type": "order.paid"}
    )

    reasons = [each.get("dead_letter_reason") for each in sent]
    assert reasons == ["customer … has moved", "(redacted)", "customer Quuxley has moved", None]
    assert {name: sent[0][name] for name in attributes if name != "dead_letter_reason"} == {
        name: value for name, value in attributes.items() if name != "dead_letter_reason"
    }
    assert asked[0] == {
        "event": "delivery_failed",
        "level": "error",
        "event_type": "order.paid",
        "consumer": "billing",
        "subscription": "",
        "code": "CARD",
        "error": "customer Quuxley has moved",
    }
