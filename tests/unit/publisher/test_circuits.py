"""Topics that take nothing, by a clock that the test reads out."""

import pytest

from relay.kernel.backoff import Delay
from relay.outbox.rows import START, Place
from relay.publisher.circuits import MOST_TYPES, Circuits


def test_delays_double_up_to_the_longest() -> None:
    """0.5 s to 10 s, from each probe in vain."""
    circuits, now, waits = Circuits(Delay(0.5, 10, 0)), 100.0, []
    waits.append(circuits.open("t", (), now))
    for probe in range(1, 8):
        now += waits[-1]
        probes, wait = circuits.in_vain("t", START, now)
        assert probes == probe
        waits.append(wait)
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10]


def test_jitter_keeps_relays_apart() -> None:
    """Each delay is up to the jitter longer."""
    waits = {Circuits(Delay(0.5, 10, 0.25)).open("t", (), 0.0) for _ in range(50)}
    assert len(waits) > 1
    assert all(0.5 <= wait <= 0.75 for wait in waits)


def test_each_topic_is_alone() -> None:
    """One is due while the other waits, and a success closes only its own."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", (), 0.0)
    circuits.open("b", (), 5.0)
    assert circuits.due(0.4) == []
    assert circuits.due(1.0) == ["a"]
    circuits.in_vain("a", Place("-infinity", 7), 1.0)
    assert circuits.place("a") == Place("-infinity", 7)
    assert circuits.place("b") == START
    assert circuits.close("a", 11.0) == (1, 11.0)
    assert circuits.open_topics == ("b",)


def test_those_that_wait_longest_are_asked_first() -> None:
    """However many are due, each has its turn."""
    circuits = Circuits(Delay(0.5, 10, 0))
    for number, topic in enumerate("cab"):
        circuits.open(topic, (), float(number))
    assert circuits.due(9.0) == ["c", "a", "b"]
    circuits.in_vain("c", START, 9.0)
    assert circuits.due(99.0) == ["a", "b", "c"]


def test_a_topic_that_fails_again_begins_anew() -> None:
    """A success ended its series."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", (), 0.0)
    circuits.in_vain("a", START, 1.0)
    circuits.close("a", 2.0)
    assert circuits.open("a", (), 3.0) == pytest.approx(0.5)
    assert circuits.place("a") == START


def test_the_place_outlasts_a_success_until_a_batch_goes_out() -> None:
    """Behind many rows that fail, a topic that one probe closed does not begin its search anew."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", (), 0.0)
    circuits.in_vain("a", Place("-infinity", 7), 1.0)
    circuits.close("a", 2.0)
    circuits.open("a", (), 3.0)
    assert circuits.place("a") == Place("-infinity", 7)
    circuits.close("a", 4.0)
    circuits.well("a")
    circuits.open("a", (), 5.0)
    assert circuits.place("a") == START


def test_the_types_of_open_topics_are_known() -> None:
    """So that their rows are told apart where they name no topic themselves."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", {"order.paid"}, 0.0)
    circuits.open("b", {"invoice.sent"}, 0.0)
    assert circuits.learn("a", {"order.made"})
    assert not circuits.learn("a", {"order.paid", "order.made"})
    assert sorted(circuits.open_types) == ["invoice.sent", "order.made", "order.paid"]
    assert sorted(circuits.types("a")) == ["order.made", "order.paid"]
    circuits.close("a", 1.0)
    assert circuits.open_types == ("invoice.sent",)


def test_what_is_remembered_of_a_topic_is_bounded() -> None:
    """Rows that each have a type of their own do not fill the memory."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", map(str, range(MOST_TYPES - 1)), 0.0)
    assert circuits.learn("a", ["one", "two"])
    assert not circuits.learn("a", ["three"])
    assert len(circuits.types("a")) == MOST_TYPES


def test_rows_that_others_hold_are_looked_at_again_soon() -> None:
    """The delay does not grow by it."""
    circuits = Circuits(Delay(0.5, 10, 0))
    circuits.open("a", (), 0.0)
    circuits.not_asked("a", 1.0)
    assert circuits.due(1.4) == []
    assert circuits.due(1.5) == ["a"]
