"""What a subscription of the emulator owes to its consumers, without gRPC and without waiting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import pytest

from relay.dev.pubsub.delivery import Consumer, Delivery
from relay.dev.pubsub.subscription import Policy, Subscription


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    """Stopped."""
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[[Policy], Subscription]:
    """Return what builds a subscription on the stopped clock."""
    return lambda policy: Subscription(policy, clock)


def data(deliveries: Iterable[Delivery]) -> list[bytes]:
    """Return the messages of deliveries."""
    return [each.message for each in deliveries]


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    """Return the ack ids of deliveries."""
    return [each.ack_id for each in deliveries]


PLAIN = Policy()
ORDERED = Policy(ordered=True)


def test_messages_without_a_key_come_once_each(make: Callable[[Policy], Subscription]) -> None:
    """While a message is held, no consumer is given it again."""
    subscription = make(PLAIN)
    subscription.publish([b"a", b"b"])
    assert data(subscription.take(Consumer())) == [b"a", b"b"]
    assert subscription.take(Consumer()) == []


def test_a_lease_ends_with_its_deadline(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """A message comes again at its deadline, not before, with a new ack id and the next attempt."""
    subscription = make(Policy(ack_deadline=10))
    subscription.publish([b"a"])
    (first,) = ids(subscription.take(Consumer()))
    clock.advance(9.9)
    assert subscription.take(Consumer()) == []
    clock.advance(0.1)
    (again,) = subscription.take(Consumer())
    assert again.ack_id != first
    assert again.attempt == 2


def test_a_late_acknowledgement_changes_nothing(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """An ack id whose lease ended neither settles the message nor its next delivery."""
    subscription = make(PLAIN)
    subscription.publish([b"a"])
    late = ids(subscription.take(Consumer()))
    clock.advance(10)
    subscription.acknowledge(late)
    assert data(subscription.take(Consumer())) == [b"a"]
    subscription.acknowledge(late)
    assert subscription.outstanding() == 1


def test_a_deadline_moves_both_ways(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """An extension counts from now, whether the deadline comes later or sooner by it."""
    subscription = make(Policy(ack_deadline=10))
    subscription.publish([b"later", b"sooner"])
    later, sooner = ids(subscription.take(Consumer()))
    subscription.extend([later], 60)
    subscription.extend([sooner], 2)
    assert subscription.next_event() == clock.now + 2
    clock.advance(2)
    assert data(subscription.take(Consumer())) == [b"sooner"]
    clock.advance(57)
    assert data(subscription.take(Consumer())) == [b"sooner"]
    clock.advance(1)
    assert data(subscription.take(Consumer())) == [b"later"]


def test_a_stream_may_set_its_own_deadline(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """A deadline asked for with the take replaces the subscription's."""
    subscription = make(Policy(ack_deadline=10))
    subscription.publish([b"a"])
    subscription.take(Consumer(), ack_deadline=30)
    assert subscription.next_event() == clock.now + 30


def test_an_acknowledged_message_is_freed(make: Callable[[Policy], Subscription]) -> None:
    """Nothing keeps a message in memory once its last delivery is acknowledged."""
    for policy in (PLAIN, ORDERED):
        subscription = make(policy)
        message = bytes(1_000)
        references = sys.getrefcount(message)
        subscription.publish([message], "k")
        assert sys.getrefcount(message) > references
        subscription.acknowledge(ids(subscription.take(Consumer(), ack_deadline=600)))
        assert sys.getrefcount(message) == references


def test_a_key_that_is_settled_leaves_nothing_behind(
    make: Callable[[Policy], Subscription],
) -> None:
    """Keys cost memory only while messages of theirs are around."""
    subscription = make(ORDERED)
    for number in range(100):
        subscription.publish([b"a"], f"key-{number}")
    subscription.acknowledge(ids(subscription.take(Consumer())))
    assert not subscription._keys
    assert not subscription._lanes


def test_a_nack_repeats_at_once(make: Callable[[Policy], Subscription]) -> None:
    """Without a retry policy, a message given back can be taken again at once."""
    subscription = make(PLAIN)
    subscription.publish([b"a"])
    subscription.nack(ids(subscription.take(Consumer())))
    assert data(subscription.take(Consumer())) == [b"a"]


def test_a_message_given_back_for_ever_stops_no_other(
    make: Callable[[Policy], Subscription],
) -> None:
    """A consumer of one message at a time gets past one that it always gives back."""
    subscription = make(PLAIN)
    subscription.publish([b"poison", b"a", b"b"])
    seen: list[bytes] = []
    for _ in range(6):
        (delivery,) = subscription.take(Consumer(), limit=1)
        seen.append(delivery.message)
        settle = subscription.nack if delivery.message == b"poison" else subscription.acknowledge
        settle([delivery.ack_id])
    assert {b"a", b"b"} < set(seen)


def test_a_retry_policy_spaces_the_deliveries(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """The pause starts at the minimum, doubles with each failure and stops at the maximum."""
    subscription = make(Policy(min_backoff=10, max_backoff=30))
    subscription.publish([b"a"])
    for pause in (10, 20, 30, 30):
        subscription.nack(ids(subscription.take(Consumer())))
        assert subscription.next_event() == clock.now + pause
        clock.advance(pause - 1)
        assert subscription.take(Consumer()) == []
        clock.advance(1)
    assert data(subscription.take(Consumer())) == [b"a"]


def test_a_resting_key_keeps_its_order(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """While a failed message of a key rests, so do the later ones, and other keys go on."""
    subscription = make(Policy(ordered=True, min_backoff=10, max_backoff=10))
    subscription.publish([b"1", b"2"], "a")
    subscription.publish([b"1"], "b")
    first = subscription.take(Consumer(), limit=1)
    subscription.nack(ids(first))
    subscription.publish([b"3"], "a")
    (other,) = subscription.take(Consumer())
    assert other.lane is not first[0].lane
    clock.advance(10)
    assert data(subscription.take(Consumer())) == [b"1", b"2", b"3"]


def test_a_key_rests_as_long_as_any_of_its_failures_demands(
    make: Callable[[Policy], Subscription], clock: Clock
) -> None:
    """A first failure of an earlier message does not cut short the pause of a later one."""
    subscription = make(Policy(ordered=True, min_backoff=10, max_backoff=40))
    subscription.publish([b"1"], "k")
    held = subscription.take(Consumer())
    subscription.publish([b"2"], "k")
    later = subscription.take(held[0].consumer or Consumer())
    later[0].attempt = 3
    subscription.nack(ids(later))
    subscription.nack(ids(held))
    clock.advance(39)
    assert subscription.take(Consumer()) == []
    clock.advance(1)
    assert data(subscription.take(Consumer())) == [b"1", b"2"]


@pytest.mark.parametrize("fail", ["nack", "expiry"])
def test_a_failure_repeats_the_rest_of_the_key(make: Callable[[Policy], Subscription], clock: Clock, fail: str) -> None:
    """A failed message and all later ones of its key that are held come again in order."""
    subscription = make(ORDERED)
    subscription.publish([b"0", b"1", b"2", b"3"], "k")
    held = ids(subscription.take(Consumer()))
    subscription.acknowledge([held[0]])
    if fail == "nack":
        subscription.nack([held[1]])
    else:
        subscription.extend(held[2:], 60)
        clock.advance(10)
    again = subscription.take(Consumer())
    assert data(again) == [b"1", b"2", b"3"]
    assert not set(ids(again)) & set(held)
    subscription.acknowledge(held)
    assert subscription.outstanding() == 3


def test_nacks_in_any_order_repeat_in_order(make: Callable[[Policy], Subscription]) -> None:
    """A key's order survives nacks that come from the last message to the first."""
    subscription = make(ORDERED)
    subscription.publish([b"0", b"1", b"2"], "k")
    held = ids(subscription.take(Consumer()))
    for ack_id in reversed(held):
        subscription.nack([ack_id])
    assert data(subscription.take(Consumer())) == [b"0", b"1", b"2"]


def test_a_key_belongs_to_the_consumer_that_holds_it(
    make: Callable[[Policy], Subscription],
) -> None:
    """Later messages of a key go to the consumer that holds earlier ones, then to anyone."""
    subscription = make(ORDERED)
    holder, other = Consumer(), Consumer()
    subscription.publish([b"0"], "k")
    first = subscription.take(holder)
    subscription.publish([b"1"], "k")
    assert subscription.take(other) == []
    second = subscription.take(holder)
    assert data(second) == [b"1"]
    subscription.publish([b"2"], "k")
    subscription.acknowledge(ids([*first, *second]))
    assert data(subscription.take(other)) == [b"2"]


def test_keys_are_ignored_without_ordering(make: Callable[[Policy], Subscription]) -> None:
    """A subscription without ordering gives messages of one key to anyone."""
    subscription = make(PLAIN)
    subscription.publish([b"0", b"1"], "k")
    assert len(subscription.take(Consumer(), limit=1)) == 1
    assert len(subscription.take(Consumer(), limit=1)) == 1


def test_a_backlog_without_a_key_does_not_starve_a_key(
    make: Callable[[Policy], Subscription],
) -> None:
    """Messages with and without a key take turns when there are more than a batch of either."""
    subscription = make(ORDERED)
    subscription.publish([b"plain"] * 100)
    subscription.publish([b"keyed"], "k")
    taken = data(subscription.take(Consumer(), limit=10) + subscription.take(Consumer(), limit=10))
    assert b"keyed" in taken


def test_a_consumer_holds_what_it_agreed_to(make: Callable[[Policy], Subscription]) -> None:
    """A consumer gets no message beyond its maximum, and the next as soon as one is settled."""
    subscription = make(PLAIN)
    subscription.publish([b"a", b"b", b"c"])
    consumer = Consumer(max_messages=2)
    held = ids(subscription.take(consumer))
    assert len(held) == 2
    assert subscription.take(consumer) == []
    subscription.acknowledge(held[:1])
    assert data(subscription.take(consumer)) == [b"c"]


def test_a_consumers_bytes_are_exceeded_by_one_message_at_most(
    make: Callable[[Policy], Subscription],
) -> None:
    """A message larger than the maximum is delivered, but alone."""
    subscription = make(PLAIN)
    subscription.publish([b"x" * 100] * 3)
    consumer = Consumer(max_bytes=50)
    for _ in range(3):
        (delivery,) = subscription.take(consumer)
        assert subscription.take(consumer) == []
        subscription.nack([delivery.ack_id])
        (delivery,) = subscription.take(consumer)
        subscription.acknowledge([delivery.ack_id])
    assert (consumer.messages, consumer.bytes) == (0, 0)


def test_what_expires_makes_room(make: Callable[[Policy], Subscription], clock: Clock) -> None:
    """A delivery that is taken away no longer counts against its consumer."""
    subscription = make(PLAIN)
    subscription.publish([b"a", b"b"])
    consumer = Consumer(max_messages=1)
    subscription.take(consumer)
    clock.advance(10)
    assert len(subscription.take(consumer)) == 1
    assert consumer.messages == 1


def test_listeners_hear_of_every_change(make: Callable[[Policy], Subscription]) -> None:
    """Publishing, settling and deleting wake whoever waits, until it stops listening."""
    subscription = make(PLAIN)
    heard: list[str] = []
    listener = lambda: heard.append("!")  # noqa: E731 - the same object is needed twice
    subscription.listen(listener)
    subscription.publish([b"a"])
    held = ids(subscription.take(Consumer()))
    subscription.extend(held, 20)
    subscription.nack(held)
    subscription.acknowledge(ids(subscription.take(Consumer())))
    assert len(heard) == 4
    subscription.unlisten(listener)
    subscription.delete()
    assert len(heard) == 4


def test_listeners_take_turns_to_be_first(make: Callable[[Policy], Subscription]) -> None:
    """Consumers that wait together share what comes message by message."""
    subscription = make(PLAIN)
    shares: dict[str, list[bytes]] = {"a": [], "b": []}

    def listener(share: list[bytes]) -> Callable[[], None]:
        return lambda: share.extend(data(subscription.take(Consumer())))

    for share in shares.values():
        subscription.listen(listener(share))
    for number in range(4):
        subscription.publish([b"%d" % number])
    assert shares == {"a": [b"0", b"2"], "b": [b"1", b"3"]}
