"""What a service answers a readiness probe with."""

import pytest

from consumers.events import (
    ConnectionsFree,
    ConnectionsSpent,
    ConsumerStarted,
    ConsumerStopped,
    InboxAway,
    InboxBack,
    SourceAway,
    StoreAway,
    StoreBack,
    Throttled,
)
from consumers.readiness import Readiness
from relay.kernel.observe import LoopDied

GONE = OSError("gone")


def started(consumer: str = "billing") -> ConsumerStarted:
    """A consumer that has begun."""
    return ConsumerStarted(consumer, "orders", "inbox", "", ("*",), 10)


@pytest.fixture
def readiness() -> Readiness:
    """Nothing has happened yet."""
    return Readiness()


def test_it_is_not_ready_before_a_consumer_has_begun(readiness: Readiness) -> None:
    """And is as soon as it has, whatever else goes on."""
    assert not readiness.receiving
    for event in (started(), SourceAway("billing", "orders", GONE, 1.0), Throttled("billing", "x", 1.0)):
        readiness(event)
    assert readiness.receiving
    assert readiness.away() == {}


def test_an_inbox_is_back_when_all_of_it_is(readiness: Readiness) -> None:
    """Storing, claiming, and the words about what was claimed."""
    for event in (
        started(),
        InboxAway("billing", "receive", GONE, 1.0),
        InboxAway("billing", "claim", GONE, 1.0),
        StoreAway("billing", GONE, 1.0),
    ):
        readiness(event)
    assert not readiness.receiving
    assert readiness.away() == {"billing": ["claim", "receive", "store"]}

    for operation in ("receive", "claim"):
        readiness(InboxBack("billing", operation, 1.0))
        assert not readiness.receiving
    readiness(StoreBack("billing", 1.0))
    assert readiness.receiving


def test_one_that_is_away_is_enough(readiness: Readiness) -> None:
    """A service is as ready as the least ready of its consumers."""
    readiness(started())
    readiness(started("shipping"))
    readiness(StoreAway("shipping", GONE, 1.0))

    assert not readiness.receiving
    assert readiness.away() == {"shipping": ["store"]}


@pytest.mark.parametrize("end", [ConsumerStopped("billing", 1.0, 0, ()), LoopDied("billing", GONE)])
def test_one_that_has_ended_is_not_ready_until_it_begins_again(readiness: Readiness, end: object) -> None:
    """Whatever it ended by."""
    for event in (started(), started("shipping"), end):
        readiness(event)
    assert not readiness.receiving
    assert readiness.away() == {"billing": ["ended"]}

    readiness(started())
    assert readiness.receiving


def test_handlers_that_wait_for_connections_are_no_place_for_more(readiness: Readiness) -> None:
    """Whoever sends work to this process had better send it elsewhere, until one is free."""
    readiness(started())
    readiness(ConnectionsSpent("billing", 4, 2))
    assert not readiness.receiving
    assert readiness.away() == {"billing": ["connections"]}
    readiness(ConnectionsFree("billing", 3.0))
    assert readiness.receiving
