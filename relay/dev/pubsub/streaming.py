"""Pull and StreamingPull: consumers that wait for deliveries."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from relay.dev.pubsub import limits, wire
from relay.dev.pubsub.catalog import Catalog
from relay.dev.pubsub.delivery import Consumer, Delivery
from relay.dev.pubsub.status import InvalidArgumentError, NotFoundError
from relay.dev.pubsub.subscription import BATCH_MESSAGES, Subscription

_LONGEST_PULL = 90.0
_EARLY_FRACTION = 0.1
_EARLY_AT_MOST = 1.0

_ORDERED: bytes = wire.StreamingPullResponse(
    subscription_properties={"message_ordering_enabled": True}
).SerializeToString()


class Waiter:
    """Waits until trying again is worth it: a listener's call, a lease's end, or a timeout."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._subscription.listen(self.wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._subscription.unlisten(self.wake)

    def wake(self) -> None:
        """End the wait, or the next one."""
        self._changed.set()

    async def wait(self, at_most: float | None = None) -> None:
        """Wait."""
        due = self._subscription.next_event()
        if due is not None:
            pause = max(0.0, due - self._subscription.now())
            at_most = pause if at_most is None else min(at_most, pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        self._changed.clear()


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
        check: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._requests = requests
        self._write = write
        self._check = check

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
        self._settle(first)
        tail = _ORDERED if subscription.policy.ordered else b""
        with Waiter(subscription) as waiter:
            reader = asyncio.create_task(self._read())
            reader.add_done_callback(lambda _: waiter.wake())
            try:
                while not reader.done():
                    self._check()
                    _check_alive(subscription)
                    batch = subscription.take(consumer, ack_deadline=self._ack_deadline)
                    if batch:
                        await self._write(_framed(batch, subscription) + tail)
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
            self._subscription.acknowledge(request.ack_ids)
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True):
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, ack_ids in by_seconds.items():
            modify(self._subscription, ack_ids, seconds)


def modify(subscription: Subscription, ack_ids: Sequence[str], seconds: int) -> None:
    """Apply a new deadline to ack ids; 0 gives the deliveries back."""
    limits.check_extension(seconds)
    if seconds:
        subscription.extend(ack_ids, seconds)
    else:
        subscription.nack(ack_ids)


def _limit(requested: int) -> int:
    return requested if requested > 0 else sys.maxsize


def _check_alive(subscription: Subscription) -> None:
    if subscription.deleted:
        raise NotFoundError("the subscription was deleted")


def _framed(batch: Iterable[Delivery], subscription: Subscription) -> bytes:
    counts = subscription.policy.counts_attempts
    return b"".join([wire.received_message(each.ack_id, each.message, each.attempt if counts else 0) for each in batch])
