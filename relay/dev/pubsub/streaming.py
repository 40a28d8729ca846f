"""Pull and StreamingPull: consumers that wait for deliveries."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from relay.dev.pubsub import limits, settlement, wire
from relay.dev.pubsub.catalog import Catalog
from relay.dev.pubsub.delivery import Consumer, Delivery
from relay.dev.pubsub.faults import Faults
from relay.dev.pubsub.settlement import AckFailures
from relay.dev.pubsub.status import InvalidArgumentError, NotFoundError
from relay.dev.pubsub.subscription import BATCH_MESSAGES, Subscription
from relay.dev.pubsub.waiting import Waiter

_LONGEST_PULL = 90.0
_EARLY_FRACTION = 0.1
_EARLY_AT_MOST = 1.0


async def pull(
    catalog: Catalog,
    request: Any,
    time_remaining: float | None,
    check: Callable[[], None],
) -> bytes:
    """Answer a PullRequest: at once with what there is, else with what comes before its time."""
    subscription = catalog.subscription(request.subscription)
    if request.max_messages <= 0:
        raise InvalidArgumentError(f"max_messages is {request.max_messages}; it must be positive")
    consumer = Consumer()
    limit = min(request.max_messages, BATCH_MESSAGES)
    end = asyncio.get_running_loop().time()
    if not request.return_immediately:
        end += patience(time_remaining)
    with Waiter(subscription) as waiter:
        while True:
            batch = subscription.take(consumer, limit)
            left = end - asyncio.get_running_loop().time()
            if batch or left <= 0:
                return _framed(batch, subscription)
            await waiter.wait(left)
            check()
            _check_alive(subscription)


def patience(time_remaining: float | None) -> float:
    """Return how long a pull may wait, to be answered before its caller gives up."""
    if time_remaining is None:
        return _LONGEST_PULL
    early = min(_EARLY_AT_MOST, time_remaining * _EARLY_FRACTION)
    return min(_LONGEST_PULL, time_remaining - early)


class Stream:
    """One StreamingPull: deliveries go out while acknowledgements come in."""

    def __init__(
        self,
        catalog: Catalog,
        requests: AsyncIterator[Any],
        write: Callable[[bytes], Awaitable[None]],
        faults: Faults,
    ) -> None:
        self._catalog = catalog
        self._requests = requests
        self._write = write
        self._faults = faults
        self._confirmations = wire.StreamingPullResponse()

    async def run(self) -> None:
        """Serve the stream until its caller ends it, or something raises a StatusError."""
        async for first in self._requests:
            await self._serve(first)
            return

    async def _serve(self, first: Any) -> None:
        limits.check_subscription_name(first.subscription)
        self._subscription = subscription = self._catalog.subscription(first.subscription)
        self._ack_deadline = limits.ack_deadline(first.stream_ack_deadline_seconds)
        consumer = Consumer(
            max_messages=_limit(first.max_outstanding_messages),
            max_bytes=_limit(first.max_outstanding_bytes),
        )
        self._waiter = waiter = Waiter(subscription)
        self._settle(first)
        with waiter:
            reader = asyncio.create_task(self._read())
            reader.add_done_callback(lambda _: waiter.wake())
            try:
                while not reader.done():
                    self._faults.check("StreamingPull")
                    _check_alive(subscription)
                    batch = subscription.take(consumer, ack_deadline=self._ack_deadline)
                    confirmed = self._confirmed()
                    if batch or confirmed:
                        await self._write(_framed(batch, subscription) + confirmed + _properties(subscription))
                    else:
                        await waiter.wait()
                reader.result()
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def _read(self) -> None:
        async for request in self._requests:
            if request.subscription:
                raise InvalidArgumentError("only a stream's first request names the subscription")
            if request.stream_ack_deadline_seconds:
                self._ack_deadline = limits.ack_deadline(request.stream_ack_deadline_seconds)
            self._settle(request)

    def _settle(self, request: Any) -> None:
        """Apply the acknowledgements and new deadlines of one request."""
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise InvalidArgumentError(
                f"{len(request.modify_deadline_ack_ids)} ack ids to modify and"
                f" {len(request.modify_deadline_seconds)} deadlines for them"
            )
        if request.ack_ids:
            self._acknowledge(request.ack_ids)
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True):
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, ack_ids in by_seconds.items():
            self._modify(ack_ids, seconds)

    def _acknowledge(self, ack_ids: Sequence[str]) -> None:
        failures = self._asked_for("Acknowledge", ack_ids) or self._subscription.acknowledge(ack_ids)
        if self._subscription.policy.exactly_once:
            self._confirm(settlement.acknowledged(ack_ids, failures))

    def _modify(self, ack_ids: Sequence[str], seconds: int) -> None:
        failures = self._asked_for("ModifyAckDeadline", ack_ids) or modify(self._subscription, ack_ids, seconds)
        if self._subscription.policy.exactly_once:
            self._confirm(settlement.modified(ack_ids, failures))

    def _asked_for(self, method: str, ack_ids: Sequence[str]) -> AckFailures:
        """Return what a fault has for ack ids, of which the subscription then does not hear."""
        reason = self._faults.ack_failure(method) if self._subscription.policy.exactly_once else ""
        return dict.fromkeys(ack_ids, reason) if reason else {}

    def _confirm(self, confirmation: Any) -> None:
        """Add to what the next response confirms, and send one soon."""
        self._confirmations.MergeFrom(confirmation)
        self._waiter.wake()

    def _confirmed(self) -> bytes:
        """Return what there is to confirm since the last response, if anything."""
        serialised: bytes = self._confirmations.SerializeToString()
        self._confirmations.Clear()
        return serialised


def modify(subscription: Subscription, ack_ids: Sequence[str], seconds: int) -> AckFailures:
    """Apply a new deadline to ack ids; 0 gives the deliveries back."""
    limits.check_extension(seconds)
    return subscription.extend(ack_ids, seconds) if seconds else subscription.nack(ack_ids)


def _limit(requested: int) -> int:
    return requested if requested > 0 else sys.maxsize


def _check_alive(subscription: Subscription) -> None:
    if subscription.deleted:
        raise NotFoundError("the subscription was deleted")


def _properties(subscription: Subscription) -> bytes:
    policy = subscription.policy
    return wire.subscription_properties(ordered=policy.ordered, exactly_once=policy.exactly_once)


def _framed(batch: Iterable[Delivery], subscription: Subscription) -> bytes:
    counts = subscription.policy.counts_attempts
    return b"".join([wire.received_message(each.ack_id, each.message, each.attempt if counts else 0) for each in batch])
