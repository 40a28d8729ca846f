"""A subscription with ordering under everything that can happen, in any sequence."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relay.dev.pubsub.delivery import Consumer
from relay.dev.pubsub.subscription import Policy, Subscription

KEYS = ("", "a", "b")
CONSUMERS = 3
_choice = st.integers(min_value=0, max_value=1_000)


class OrderedSubscription(RuleBasedStateMachine):
    """Publishes, takes, settles and lets time pass; watches what each delivery follows."""

    policy = Policy(ordered=True, ack_deadline=10, min_backoff=1, max_backoff=4)

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.subscription = Subscription(self.policy, lambda: self.now, bury=self.bury)
        self.attempts: dict[bytes, int] = {}
        self.consumers = [Consumer(max_messages=4) for _ in range(CONSUMERS)]
        self.published: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.acknowledged: set[bytes] = set()
        self.held: dict[str, tuple[bytes, Consumer]] = {}

    def bury(self, message: bytes, attempts: int) -> bool:
        """Take a dead letter, which its subscription is done with."""
        assert attempts == self.policy.max_attempts
        self.acknowledged.add(message)
        return True

    @rule(key=st.sampled_from(KEYS), size=st.integers(min_value=1, max_value=3))
    def publish(self, key: str, size: int) -> None:
        """Publish the next messages of a key."""
        start = self.published[key]
        self.published[key] += size
        messages = [f"{key}:{number}".encode() for number in range(start, start + size)]
        self.subscription.publish(messages, key)

    @rule(
        who=st.integers(min_value=0, max_value=CONSUMERS - 1),
        limit=st.integers(min_value=1, max_value=5),
    )
    def take(self, who: int, limit: int) -> None:
        """Check that each delivery comes when all earlier ones of its key are settled or held."""
        consumer = self.consumers[who]
        batch = self.subscription.take(consumer, limit)
        self.forget_what_ended()
        for delivery in batch:
            self.check_order(delivery.message, consumer)
            assert delivery.message not in self.acknowledged
            assert delivery.attempt >= self.attempts.get(delivery.message, 1)
            self.attempts[delivery.message] = delivery.attempt
            self.held[delivery.ack_id] = (delivery.message, consumer)

    @rule(choice=_choice)
    def acknowledge(self, choice: int) -> None:
        """Settle one delivery."""
        if self.held:
            ack_id = list(self.held)[choice % len(self.held)]
            message = self.held[ack_id][0]
            if not self.subscription.acknowledge([ack_id]):
                self.acknowledged.add(message)
            self.forget_what_ended()

    @rule(choice=_choice)
    def nack(self, choice: int) -> None:
        """Give one delivery back."""
        if self.held:
            self.subscription.nack([list(self.held)[choice % len(self.held)]])
            self.forget_what_ended()

    @rule(choice=_choice, seconds=st.integers(min_value=1, max_value=20))
    def extend(self, choice: int, seconds: int) -> None:
        """Move one deadline."""
        if self.held:
            ack_id = list(self.held)[choice % len(self.held)]
            self.subscription.extend([ack_id], seconds)
            self.forget_what_ended()

    @rule(seconds=st.integers(min_value=1, max_value=12))
    def wait(self, seconds: int) -> None:
        """Let time pass, and everything happen that is due."""
        self.now += seconds
        self.subscription.acknowledge([])
        self.forget_what_ended()

    @invariant()
    def counts_agree(self) -> None:
        """Hold as many deliveries as the consumers believe, none beyond its maximum."""
        held = [consumer.messages for consumer in self.consumers]
        assert sum(held) == self.subscription.outstanding() == len(self.held)
        assert all(0 <= count <= 4 for count in held)

    def teardown(self) -> None:
        """Everything published is delivered in the end, and nothing stays behind."""
        consumer = Consumer()
        for _ in range(4):
            self.now += 30
            batch = self.subscription.take(consumer)
            self.forget_what_ended()
            for delivery in batch:
                self.check_order(delivery.message, consumer)
                self.held[delivery.ack_id] = (delivery.message, consumer)
            self.acknowledged.update(delivery.message for delivery in batch)
            self.subscription.acknowledge([delivery.ack_id for delivery in batch])
            self.held.clear()
        assert len(self.acknowledged) == sum(self.published.values())
        assert self.subscription.outstanding() == 0
        assert not self.subscription._keys

    def forget_what_ended(self) -> None:
        """Drop deliveries that the subscription has taken away or settled."""
        leases = self.subscription._leases._held
        self.held = {ack_id: held for ack_id, held in self.held.items() if ack_id in leases}

    def check_order(self, message: bytes, consumer: Consumer) -> None:
        """Every earlier message of the key is acknowledged, or held by the same consumer."""
        key, number = message.decode().split(":")
        if not key:
            return
        mine = {held for held, holder in self.held.values() if holder is consumer}
        for earlier in range(int(number)):
            assert f"{key}:{earlier}".encode() in self.acknowledged | mine


class StrictSubscription(OrderedSubscription):
    """The same with exactly-once delivery, and a dead-letter topic for what fails twice."""

    policy = replace(OrderedSubscription.policy, exactly_once=True, max_attempts=2)


for machine in (OrderedSubscription, StrictSubscription):
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_a_key_is_never_delivered_out_of_order = OrderedSubscription.TestCase
test_nor_is_one_that_is_strict_or_makes_dead_letters = StrictSubscription.TestCase
