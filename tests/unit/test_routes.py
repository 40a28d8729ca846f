"""Which topic an event goes to, and what is no route."""

import pytest

from relay.patterns import _REMEMBERED
from relay.routes import Routes

FULL = "projects/acme/topics/billing"


def test_without_routes_everything_goes_to_the_default() -> None:
    """Unless its row names a topic."""
    routes = Routes.parse("", "domain-events")

    assert routes.topic_of(None, "order.paid") == "domain-events"
    assert routes.topic_of("special", "order.paid") == "special"
    assert routes.topics == ("domain-events",)
    assert (routes.patterns, routes.pattern_topics) == ([], [])


@pytest.mark.parametrize(
    ("event_type", "topic"),
    [
        ("order.paid", "orders"),
        ("order.", "orders"),
        ("order", "domain-events"),
        ("orders.paid", "domain-events"),
        ("Order.paid", "domain-events"),
        ("order.refund.made", "refunds"),
        ("order.refund.lost", FULL),
        ("order.refund.lost.again", "refunds"),
        ("invoice", "domain-events"),
    ],
)
def test_the_most_specific_route_decides(event_type: str, topic: str) -> None:
    """An exact type before every beginning, the longest beginning before the others, wherever they stand."""
    parts = ["order.*=orders", "order.refund.*=refunds", f"order.refund.lost={FULL}"]
    for text in (",".join(parts), ",".join(reversed(parts)), "\n".join(parts)):
        routes = Routes.parse(text, "domain-events")
        # Twice: the second answer is one that was remembered.
        assert [routes.topic_of(None, event_type) for _ in range(2)] == [topic, topic]
        assert routes.topic_of("special", event_type) == "special"


@pytest.mark.parametrize(
    "text",
    [
        " a.*=one-topic , b=two-topic ",
        "a.*=one-topic\nb=two-topic",
        "\n a.* = one-topic,\r\n\r\n  b = two-topic\n",
        "b=two-topic,a.*=one-topic",
    ],
)
def test_one_list_may_be_written_in_many_ways(text: str) -> None:
    """With commas or a route a line, as a file of settings has it; equal lists are equal."""
    routes = Routes.parse(text, "domain-events")

    assert routes == Routes.parse("a.*=one-topic,b=two-topic", "domain-events")
    assert hash(routes) == hash(Routes.parse("a.*=one-topic,b=two-topic", "domain-events"))
    assert routes.topics == ("domain-events", "two-topic", "one-topic")


def test_an_event_type_may_have_an_equals_sign() -> None:
    """A topic may not, so the last one divides."""
    assert Routes.parse("a=b=orders", "domain-events").topic_of(None, "a=b") == "orders"


def test_an_event_type_may_have_a_space_or_a_semicolon() -> None:
    """Before an `=` of its own too."""
    routes = Routes.parse("order paid=orders, order; x*=other, a b=c=third", "domain-events")
    topics = [routes.topic_of(None, name) for name in ("order paid", "order; xy", "a b=c")]
    assert topics == ["orders", "other", "third"]


@pytest.mark.parametrize(
    "part",
    [
        "a=orders b=billing",
        "a = orders b = billing",
        "a=orders;b=billing",
        "a=orders ; b*=billing",
        "order.*=orders invoice.*=billing",
        "a=b=orders b=billing",
    ],
)
def test_a_comma_that_is_missing_is_no_part_of_a_type(part: str) -> None:
    """It would be a type that no event has, and what was meant would go to the default."""
    with pytest.raises(ValueError, match="comma") as refused:
        Routes.parse(f"x.*=orders, {part}", "domain-events")
    assert str(refused.value) == (
        f"has the route {part!r}, which looks like several; "
        "put a comma between routes, like order.*=orders, invoice.*=billing"
    )


def test_a_topic_of_several_routes_is_named_once() -> None:
    """Whoever creates them asks for each once."""
    assert Routes.parse("a=orders,b=orders,c=domain-events", "domain-events").topics == ("domain-events", "orders")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=orders,,b=orders", "has an empty part in 'a=orders,,b=orders'; remove the comma that is too many"),
        ("a=orders,", "has an empty part in 'a=orders,'; remove"),
        (",a=orders", "has an empty part in ',a=orders'; remove"),
        ("order.*", "has the part 'order.*', which is no route; write it like order.*=orders"),
        ("=orders", "has the part '=orders', which is no route"),
        ("order.*=", "has the part 'order.*=', which is no route"),
        ("*=orders", "has the route '*=orders', whose pattern would match every event type; name the topic for all"),
        ("order.*.paid=orders", "has the route 'order.*.paid=orders', whose pattern has a * before its end"),
        ("order.**=orders", "whose pattern has a * before its end"),
        ("a=orders\na=orders", "routes 'a' twice, to orders and to orders; keep one"),
        ("a=orders,b=other,a=third", "routes 'a' twice, to orders and to third; keep one"),
        ("a=ab", "has the route 'a=ab', whose topic 'ab' has 2 character(s), a topic's name has 3 to 255"),
        ("a=google-topic", "whose topic 'google-topic' begins with goog, which Google keeps for itself"),
        ("a=1orders", "whose topic '1orders' is no topic's name: those begin with a letter"),
        ("a=or ders", "whose topic 'or ders' is no topic's name"),
        ("a=topics/orders", "whose topic 'topics/orders' is neither the name of a topic nor projects/<project>"),
        ("a=projects/p/topics/x", "whose topic 'projects/p/topics/x' has 1 character(s)"),
        (f"{'a' * 256}=orders", "whose pattern has 256 bytes, an event type has 255 at most"),
        ("a\udcff=orders", "whose pattern is not UTF-8"),
        ("a\0=orders", "whose pattern contains a NUL character"),
    ],
)
def test_what_is_no_route_is_refused_with_the_part_that_is_not(text: str, words: str) -> None:
    """In one sentence that follows the setting's name."""
    with pytest.raises(ValueError, match=r"^has |^routes ") as refused:
        Routes.parse(text, "domain-events")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_longest_pattern_is_as_long_as_the_longest_event_type() -> None:
    """The star does not count."""
    longest = "a" * 255
    assert Routes.parse(f"{longest}=orders", "domain-events").topic_of(None, longest) == "orders"
    assert Routes.parse(f"{longest}*=orders", "domain-events").topic_of(None, longest) == "orders"


def test_a_long_part_is_not_repeated_whole() -> None:
    """A log line stays a line."""
    with pytest.raises(ValueError, match="…") as refused:
        Routes.parse("x" * 5_000, "domain-events")
    assert len(str(refused.value)) < 250


def test_patterns_are_what_like_takes() -> None:
    """What LIKE means by a character is escaped; the most specific comes first."""
    routes = Routes.parse("a_b%*=one-topic,a\\b=two-topic,a_b%c*=three-topic", "domain-events")
    assert routes.patterns == ["a\\\\b", "a\\_b\\%c%", "a\\_b\\%%"]
    assert routes.pattern_topics == ["two-topic", "three-topic", "one-topic"]


def test_event_types_without_end_are_not_remembered_without_end() -> None:
    """A service that counts in its event types costs its relay no memory."""
    routes = Routes.parse("order.*=orders", "domain-events")
    for number in range(_REMEMBERED + 2):
        assert routes.topic_of(None, f"order.{number}") == "orders"
    assert len(routes._known) <= _REMEMBERED
