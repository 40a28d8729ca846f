"""A subscription with dead letters, read to its end once and held meanwhile; what is not taken stays on it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from consumers.dead_letters import PREFIX
from consumers.decode import moment
from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_reader import PubSubReader, Received
from relay.brokers.pubsub_subscriptions import PubSubSubscriptions
from relay.errors import BrokerError, ConfigurationError

# Renewed three times in its length: two failures in a row lose nothing. Of a process that was killed, the messages
# come again after it.
_HOLD_SECONDS = 60
_RENEW_SECONDS = 20.0
_GIVE_BACK_SECONDS = 10.0
_QUESTION_SECONDS = 10.0


class PubSubDeadLetterBox:
    """Hands over each dead letter once, holds it until it is taken, and gives the rest back in the end.

    Args:
        address: Where Pub/Sub is.
        subscription: The one to read, by its short or full name.
        quiet: It is at its end after so many seconds without a message that was there when the reading began.
    """

    def __init__(
        self,
        address: PubSubAddress,
        subscription: str,
        quiet: float,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._subscription = address.subscription(subscription)
        self._reader: PubSubReader
        self._quiet = quiet
        self._wall = wall
        self._monotonic = monotonic
        self._held: dict[str, Received] = {}
        self._keeper: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many are held."""
        return len(self._held)

    async def read(self) -> AsyncGenerator[Received, None]:
        """Every message, once, until there is no further one."""
        began = self._wall()
        last = self._monotonic()
        try:
            while (seconds := last + self._quiet - self._monotonic()) > 0:
                received = await self._reader.next(seconds)
                if not received:
                    return
                fresh = await self._hold(received)
                # Events go on failing while we read: waiting for the end of those, we might never come to ours.
                if any(_is_older(each, began) for each in fresh):
                    last = self._monotonic()
                for each in fresh:
                    yield each
        finally:
            await self._stop()

    async def take(self, message_id: str) -> None:
        """Acknowledge a message. Raises BrokerError where the service was not told."""
        await self._reader.acknowledge([self._held[message_id]])
        del self._held[message_id]

    async def __aenter__(self) -> Self:
        async with PubSubSubscriptions(self._address) as subscriptions:
            if await subscriptions.look(self._subscription, _QUESTION_SECONDS) is None:
                raise ConfigurationError(
                    f"the subscription {self._subscription} does not exist; that of a consumer's dead letters has the "
                    "name of their topic, unless somebody chose another one"
                )
        self._reader = PubSubReader(self._address, self._subscription)
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give back what was not taken; where the service cannot be told, it comes again by itself in a minute."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._stop()
        with suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(_GIVE_BACK_SECONDS):
                await self._reader.hold(list(self._held.values()), 0)
        await self._reader.__aexit__()

    async def _stop(self) -> None:
        """Ask for nothing more: what fails from now on, and what is given back, is the next run's at once."""
        with suppress(BrokerError):
            await self._reader.hold(await self._reader.stop(), 0)

    async def _hold(self, received: Sequence[Received]) -> list[Received]:
        """Hold these deliveries, and answer with those whose message is new."""
        fresh = []
        for each in received:
            if each.message_id not in self._held:
                fresh.append(each)
            # Of a message that was delivered again, the last delivery is the one that counts. Of others, too, all but
            # what names it can go.
            self._held[each.message_id] = each._replace(attributes={}, body=b"")
        # Where it fails the subscription's own deadline holds, and the keeper tries again.
        with suppress(BrokerError):
            await self._reader.hold(received, _HOLD_SECONDS)
        return fresh

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(BrokerError):
                await self._reader.hold(list(self._held.values()), _HOLD_SECONDS)


def _is_older(received: Received, began: datetime) -> bool:
    failed_at = moment(received.attributes.get(f"{PREFIX}at"))
    return failed_at is None or failed_at < began
