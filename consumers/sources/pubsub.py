"""Deliveries of a Google Pub/Sub subscription, over its asynchronous stream.

The library's own subscriber hands each message to a pool of ten threads, at some 30 microseconds apiece. Here one
stream is read in the event loop; what is held is extended, and what is settled is said, in requests of many ids.
"""

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from google.api_core import exceptions
from google.pubsub_v1.types import StreamingPullRequest

from consumers.delivery import Delivery
from consumers.events import DeliveriesLost
from consumers.sources.pubsub_holding import Holding, Lease
from consumers.sources.pubsub_settling import Settling
from consumers.sources.pubsub_streams import (
    ANSWER_SECONDS,
    HEARTBEAT_SECONDS,
    PROTOCOL_VERSION,
    RECONNECT,
    STEADY_SECONDS,
    Streams,
)
from consumers.sources.source import Demand, Facts, Take
from relay.brokers.pubsub_client import CALL_ERRORS, PubSubAddress, broker_error
from relay.brokers.pubsub_receiving import Receiving
from relay.errors import ConfigurationError
from relay.kernel.backoff import Delay
from relay.kernel.observe import Observe

_LONGEST_DEADLINE: Final = 600
_QUESTION_SECONDS: Final = 10.0
# While so many acknowledgements cannot be said, nothing further is received: it would come again and again.
_MOST_UNSAID: Final = 20_000


class PubSubSource:
    """One subscription, read by one stream, which is opened again whenever it ends.

    `max_messages` and `max_bytes` bound what is held: the service is told, and beyond them nothing further is read.
    What is read last may exceed them; the most is twice as much, after a stream has ended with all of it in hand.

    Args:
        address: the project, and where it is.
        subscription: its last part, or its full name.
        consumer: who reads, in events.
        max_messages: that may be held at once.
        max_bytes: that they may take.
        observe: hears of outages and losses.
        monotonic: the clock by which leases end.
        deadline: how many seconds the service holds a delivery without a word from us; 10 to 600.
        extend_every: how often we say that word.
        linger: how many seconds an acknowledgement may wait for others to share its request.
        heartbeat: how often a stream is told that somebody reads it.
        answer: within how many seconds the service answers that, and opens a stream.
        steady: how many seconds a stream lasts that works.
        reconnect: the pauses between streams that do not.
        call_seconds: how long a request may take.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        address: PubSubAddress,
        subscription: str,
        *,
        consumer: str,
        max_messages: int,
        max_bytes: int,
        observe: Observe,
        monotonic: Callable[[], float] = time.monotonic,
        deadline: int = 60,
        extend_every: float = 15.0,
        linger: float = 0.01,
        heartbeat: float = HEARTBEAT_SECONDS,
        answer: float = ANSWER_SECONDS,
        steady: float = STEADY_SECONDS,
        reconnect: Delay = RECONNECT,
        call_seconds: float = 10.0,
    ) -> None:
        self.name = subscription
        self._full_name = address.subscription(subscription)
        self._client = address.subscriber()
        self._consumer = consumer
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._observe = observe
        self._monotonic = monotonic
        calls = Receiving(self._client, self._full_name)
        self._settling = Settling(
            calls, consumer, subscription, observe, linger=linger, call_seconds=call_seconds, relieved=self._relieved
        )
        self._holding = Holding(
            self._settling, self._lost, deadline=deadline, extend_every=extend_every, monotonic=monotonic
        )
        self._streams = Streams(
            calls,
            StreamingPullRequest.pb()(
                subscription=self._full_name,
                stream_ack_deadline_seconds=deadline,
                # The same for all streams: the service hands one's state on to the next.
                client_id=uuid.uuid4().hex,
                max_outstanding_messages=max_messages,
                max_outstanding_bytes=max_bytes,
                protocol_version=PROTOCOL_VERSION,
            ),
            room=self._wait_for_room,
            take=self._receive,
            consumer=consumer,
            subscription=subscription,
            observe=observe,
            heartbeat=heartbeat,
            answer=answer,
            steady=steady,
            reconnect=reconnect,
            monotonic=monotonic,
        )
        self._room = asyncio.Event()
        self._waited = 0.0
        self._exactly_once = False
        self._take: Take
        self._keeper: asyncio.Task[None] | None = None

    @property
    def held_messages(self) -> int:
        """Deliveries that are held."""
        return len(self._holding)

    @property
    def held_bytes(self) -> int:
        """And what they take."""
        return self._holding.bytes

    async def open(self) -> Facts:
        """Look at the subscription. Where we may not, or it cannot be asked now, reading it will tell."""
        try:
            facts = await self._ask()
        except BaseException:  # whatever ends it, a cancellation too, nobody will close what is open
            await self._disconnect()
            raise
        self._keeper = asyncio.create_task(self._holding.keep())
        return facts

    async def run(self, take: Take, demand: Demand | None = None) -> None:  # noqa: ARG002 -- it holds what waits
        """Read stream after stream, until cancelled."""
        self._take = take
        try:
            await self._streams.run()
        finally:
            self._settling.hurry()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Have the delivery forgotten. On a plain subscription nobody can know whether it was."""
        lease: Lease = delivery.handle
        if not self._exactly_once:
            held = self._let_go(delivery)
            if held:
                self._settling.acknowledge(lease.ack_id)
            return held
        if not self._holding.holds(delivery):
            return False
        lease.settling = True
        try:
            while True:
                ack_id = lease.ack_id
                done = await self._settling.confirm(ack_id)
                if done or ack_id == lease.ack_id:
                    return done
                # It has come again meanwhile: only the latest ack id counts.
        finally:
            self._let_go(delivery)

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Have the delivery come again, after up to 600 seconds."""
        if self._let_go(delivery):
            seconds = math.ceil(min(max(delay, 0.0), _LONGEST_DEADLINE))
            self._settling.give_back(delivery.handle.ack_id, seconds)

    async def close(self, seconds: float) -> None:
        """Say what is still to be said, extend nothing any longer, and close the connection."""
        try:
            await self._settling.flush(seconds)
        finally:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait([self._keeper])
            await self._disconnect()

    async def _ask(self) -> Facts:
        try:
            found = await self._client.get_subscription(
                subscription=self._full_name, retry=None, timeout=_QUESTION_SECONDS
            )
        except exceptions.NotFound:
            raise ConfigurationError(
                f"there is no subscription {self._full_name}; create it on the topic of the events, with message "
                "ordering where they have ordering keys"
            ) from None
        except exceptions.InvalidArgument as error:
            raise ConfigurationError(f"{self._full_name!r} is no subscription: {error.message}") from None
        except CALL_ERRORS as error:
            if broker_error(error).code == "UNAUTHENTICATED":
                raise ConfigurationError(f"subscription {self._full_name} cannot be read: {error}") from error
            return Facts(self.name)
        if found.push_config.push_endpoint or found.bigquery_config.table or found.cloud_storage_config.bucket:
            raise ConfigurationError(
                f"subscription {self._full_name} pushes its messages elsewhere; a consumer reads a pull subscription"
            )
        retention: Any = found.message_retention_duration
        self._exactly_once = found.enable_exactly_once_delivery
        return Facts(
            name=self.name,
            topic=found.topic,
            retention=retention or None,
            ordered=found.enable_message_ordering,
            exactly_once=found.enable_exactly_once_delivery,
            counts_attempts=bool(found.dead_letter_policy.dead_letter_topic),
        )

    async def _wait_for_room(self) -> None:
        self._waited = 0.0
        if self._full():
            began = self._monotonic()
            while self._full():
                self._room.clear()
                await self._room.wait()
            # What is read next may have lain in buffers as long, and the service has counted from its beginning.
            self._waited = self._monotonic() - began

    async def _receive(self, response: Any) -> None:
        if response.HasField("subscription_properties"):
            self._exactly_once = response.subscription_properties.exactly_once_delivery_enabled
        fresh, again = self._holding.receive(response.received_messages, self._waited)
        if self._exactly_once and (fresh or again):
            try:
                fresh = await self._holding.confirm_receipt(fresh, again)
            except asyncio.CancelledError:
                # Nobody has seen them.
                for delivery in fresh:
                    self.give_back(delivery)
                raise
        if fresh:
            self._take(fresh)

    def _let_go(self, delivery: Delivery) -> bool:
        held = self._holding.let_go(delivery)
        if held and not self._room.is_set():
            self._room.set()
        return held

    def _relieved(self) -> None:
        if not self._room.is_set():
            self._room.set()

    def _full(self) -> bool:
        return (
            len(self._holding) >= self._max_messages
            or self._holding.bytes >= self._max_bytes
            or self._settling.unsaid >= _MOST_UNSAID
        )

    def _lost(self, messages: int, reason: str) -> None:
        self._observe(DeliveriesLost(self._consumer, self.name, messages, reason))

    async def _disconnect(self) -> None:
        with suppress(Exception):  # it may be closed already, or broken
            await self._client.transport.close()  # type: ignore[no-untyped-call]
