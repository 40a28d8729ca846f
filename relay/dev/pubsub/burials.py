"""Burials: dead letters are made when they are due, also of a subscription where nobody consumes any more.

Elsewhere a deadline that has passed may wait until somebody takes or settles. A dead letter may not: those who wait for
it listen to another subscription.
"""

from collections.abc import Callable

from relay.dev.pubsub.subscription import Subscription
from relay.dev.pubsub.waiting import Waiter


class Burials:
    """The subscriptions with a dead-letter policy, by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._subscriptions: dict[str, Subscription] = {}
        self._listeners: dict[Callable[[], None], None] = {}

    def add(self, name: str, subscription: Subscription) -> None:
        """See to a subscription from now on."""
        self._subscriptions[name] = subscription
        subscription.listen(self.notify)

    def discard(self, name: str) -> None:
        """See to a subscription no longer, if it was seen to."""
        subscription = self._subscriptions.pop(name, None)
        if subscription is not None:
            subscription.unlisten(self.notify)

    async def run(self) -> None:
        """Make dead letters, for ever."""
        with Waiter(self) as waiter:
            while True:
                for subscription in list(self._subscriptions.values()):
                    subscription.expire()
                await waiter.wait()

    def next_event(self) -> float | None:
        """Return the clock's time at which the next attempt may end by itself."""
        events = (subscription.next_event() for subscription in self._subscriptions.values())
        return min((at for at in events if at is not None), default=None)

    def now(self) -> float:
        """Return the clock's time."""
        return self._clock()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever one of the subscriptions changed."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Tell the listeners to look again."""
        for listener in self._listeners:
            listener()
