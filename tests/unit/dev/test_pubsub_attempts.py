"""How often a delivery has been attempted, who is told what of it, and what follows the last attempt."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from relay.dev.pubsub import wire
from relay.dev.pubsub.catalog import Catalog
from relay.dev.pubsub.delivery import Consumer, Delivery
from relay.dev.pubsub.settlement import INVALID, UNORDERED
from relay.dev.pubsub.subscription import Policy, Subscription


class World:
    """A subscription on a clock of its own, and what it buried."""

    def __init__(self, policy: Policy) -> None:
        self.now = 1_000.0
        self.buried: list[tuple[bytes, int]] = []
        self.has_grave = True
        self.subscription = Subscription(policy, lambda: self.now, bury=self.bury)

    def bury(self, message: bytes, attempts: int) -> bool:
        """Take a dead letter, if there is a topic for it."""
        if self.has_grave:
            self.buried.append((message, attempts))
        return self.has_grave

    def take(self) -> list[Delivery]:
        """Take all there is."""
        return self.subscription.take(Consumer())

    def fail(self, how: str, deliveries: Iterable[Delivery]) -> None:
        """Let deliveries fail together, in the order given."""
        if how == "nack":
            self.subscription.nack([each.ack_id for each in deliveries])
        else:
            self.subscription.extend([each.ack_id for each in deliveries], 5)
            self.now += 5
            self.subscription.expire()


HOW = pytest.mark.parametrize("how", ["nack", "expiry"])
STRICT = Policy(exactly_once=True)


def attempts(deliveries: Iterable[Delivery]) -> dict[bytes, int]:
    """The attempt of each message."""
    return {each.message: each.attempt for each in deliveries}


@HOW
def test_each_failure_is_one_attempt_more(how: str) -> None:
    """The attempt is one more than the nacks and deadlines that there were."""
    world = World(Policy())
    world.subscription.publish([b"a", b"b"])
    for attempt in (1, 2, 3):
        held = world.take()
        assert attempts(held) == {b"a": attempt, b"b": attempt}
        world.fail(how, held)


@HOW
def test_what_a_key_draws_along_has_not_failed(how: str) -> None:
    """A later message of the key comes again without an attempt more, and rests for no pause of its own."""
    world = World(Policy(ordered=True, ack_deadline=600))
    world.subscription.publish([b"0", b"1", b"2"], "k")
    held = world.take()
    world.fail(how, held[:1])
    assert attempts(world.take()) == {b"0": 2, b"1": 1, b"2": 1}


@HOW
@pytest.mark.parametrize("order", [1, -1])
def test_what_fails_beside_an_earlier_one_of_its_key_has_failed_too(how: str, order: int) -> None:
    """In whatever order the failures are told; the key's own order stays."""
    world = World(Policy(ordered=True, ack_deadline=600))
    world.subscription.publish([b"0", b"1", b"2", b"3"], "k")
    held = world.take()
    world.fail(how, [held[0], held[2]][::order])
    again = world.take()
    assert [each.message for each in again] == [b"0", b"1", b"2", b"3"]
    assert attempts(again) == {b"0": 2, b"1": 1, b"2": 2, b"3": 1}


@HOW
def test_pauses_follow_the_attempts_of_each_message(how: str) -> None:
    """One that fails for the second time rests longer than one beside it that fails for the first."""
    world = World(Policy(ack_deadline=600, min_backoff=10, max_backoff=600))
    world.subscription.publish([b"old"])
    world.fail(how, world.take())
    world.now += 10
    world.subscription.publish([b"new"])
    world.fail(how, world.take())
    world.now += 10
    assert attempts(world.take()) == {b"new": 2}
    world.now += 10
    assert attempts(world.take()) == {b"old": 3}


@HOW
def test_the_last_attempt_buries(how: str) -> None:
    """The message goes where dead letters go, with the number of its attempts, and nothing is left of it."""
    world = World(Policy(max_attempts=2, min_backoff=10, max_backoff=10))
    world.subscription.publish([b"a"])
    world.fail(how, world.take())
    world.now += 10
    world.fail(how, world.take())
    assert world.buried == [(b"a", 2)]
    assert world.subscription.outstanding() == 0
    assert world.subscription.next_event() is None


@HOW
def test_who_has_nowhere_to_bury_goes_on(how: str) -> None:
    """Attempts are counted on, until there is a topic for dead letters."""
    world = World(Policy(max_attempts=2))
    world.has_grave = False
    world.subscription.publish([b"a"])
    for attempt in (1, 2, 3, 4):
        held = world.take()
        assert attempts(held) == {b"a": attempt}
        world.fail(how, held)
    world.has_grave = True
    world.fail(how, world.take())
    assert world.buried == [(b"a", 5)]


@HOW
def test_a_key_goes_on_without_what_was_buried(how: str) -> None:
    """At once: the pause was the dead letter's; and a key of which nothing is left costs nothing."""
    world = World(Policy(ordered=True, max_attempts=1, ack_deadline=600, min_backoff=60, max_backoff=60))
    world.subscription.publish([b"0", b"1"], "k")
    world.fail(how, world.take()[:1])
    again = world.take()
    assert attempts(again) == {b"1": 1}
    world.fail(how, again)
    assert world.buried == [(b"0", 1), (b"1", 1)]
    assert not world.subscription._keys


@HOW
def test_an_acknowledgement_too_late_is_told(how: str) -> None:
    """Every ack id but that of the latest delivery, of an exactly-once subscription, for every use."""
    world = World(STRICT)
    world.subscription.publish([b"a"])
    held = world.take()
    old = held[0].ack_id
    world.fail(how, held)
    (new,) = [each.ack_id for each in world.take()]
    refused = {old: INVALID}
    assert world.subscription.extend([old, new], 10) == refused
    assert world.subscription.acknowledge([old, new]) == refused
    assert world.subscription.nack([old]) == refused
    assert world.take() == []


def test_an_ack_id_said_twice_is_one() -> None:
    """A request that repeats itself has not failed."""
    world = World(STRICT)
    world.subscription.publish([b"a", b"b"])
    first, second = [each.ack_id for each in world.take()]
    assert world.subscription.acknowledge([first, first]) == {}
    assert world.subscription.nack([second, second]) == {}
    assert attempts(world.take()) == {b"b": 2}


def test_what_was_never_an_ack_id_is_told_as_such() -> None:
    """Beside good ones, which are settled."""
    world = World(STRICT)
    world.subscription.publish([b"a"])
    (held,) = world.take()
    assert world.subscription.acknowledge([held.ack_id, "made up"]) == {"made up": INVALID}
    assert world.subscription.outstanding() == 0


def test_keys_are_acknowledged_in_order_each_by_itself() -> None:
    """An early acknowledgement changes nothing, and fails for now."""
    world = World(Policy(exactly_once=True, ordered=True))
    world.subscription.publish([b"0", b"1"], "a")
    world.subscription.publish([b"0"], "b")
    a0, a1, b0 = [each.ack_id for each in world.take()]
    assert world.subscription.acknowledge([a1, b0]) == {a1: UNORDERED}
    assert world.subscription.outstanding() == 2
    assert world.subscription.acknowledge([a0, a1]) == {}


def test_an_ordinary_subscription_tells_nothing() -> None:
    """Neither of ack ids that are too late nor of an order."""
    world = World(Policy(ordered=True))
    world.subscription.publish([b"0", b"1"], "k")
    first, second = [each.ack_id for each in world.take()]
    assert world.subscription.acknowledge([second]) == {}
    assert world.subscription.acknowledge([second, first]) == {}
    for settle in (world.subscription.acknowledge, world.subscription.nack):
        assert settle([first]) == {}
    assert world.subscription.extend([first], 10) == {}


def test_a_deleted_subscription_buries_nothing() -> None:
    """A stream may still settle what it held when the subscription went."""
    catalog = Catalog(lambda: 1_000.0)
    topic, name = "projects/p/topics/topic", "projects/p/subscriptions/subscription"
    catalog.create_topic(wire.Topic(name=topic))
    policy = {"dead_letter_topic": topic, "max_delivery_attempts": 5}
    catalog.create_subscription(wire.Subscription(name=name, topic=topic, dead_letter_policy=policy))
    subscription = catalog.subscription(name)
    subscription.publish([b"a"])
    (held,) = subscription.take(Consumer())
    held.attempt = 5
    catalog.delete_subscription(name)
    subscription.nack([held.ack_id])
    assert [each.attempt for each in subscription.take(Consumer())] == [6]
