"""The other end of Google Pub/Sub: one subscription, read to its end."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from google.api_core import exceptions
from google.pubsub_v1.types import AcknowledgeRequest, ModifyAckDeadlineRequest, PullRequest, PullResponse, Subscription

from relay.brokers.pubsub_client import CALL_ERRORS, PubSubAddress, broker_error
from relay.errors import ConfigurationError

# As many as the service hands out in one answer.
_MESSAGES = 1_000
# How long one question may stay open; the service answers a pull earlier, empty, when it likes.
_PULL_SECONDS = 60.0
_QUESTION_SECONDS = 10.0
_OUTAGE_SECONDS = 60.0
_PAUSE_SECONDS = 0.5

_TRANSIENT = (
    exceptions.Aborted,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.ServiceUnavailable,
    exceptions.Unknown,
)
_MISUSE = (exceptions.NotFound, exceptions.InvalidArgument, exceptions.Forbidden, exceptions.Unauthenticated)


class Received(NamedTuple):
    """One delivery of one message; a message that is delivered again keeps its `message_id`."""

    ack_id: str
    message_id: str
    ordering_key: str
    attributes: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """What a subscription says about itself, in full names."""

    subscription: str
    topic: str
    ordered: bool


class PubSubReader:
    """Takes everything off a subscription, in the order in which it is delivered.

    A service that fails for longer than `outage_seconds` (60) is not waited for.
    """

    def __init__(self, address: PubSubAddress, subscription: str, outage_seconds: float = _OUTAGE_SECONDS) -> None:
        self._name = address.subscription(subscription)
        self._client = address.subscriber()
        self._outage_seconds = outage_seconds
        self._pull = PullRequest(subscription=self._name, max_messages=_MESSAGES)
        self._pending: asyncio.Task[PullResponse] | None = None

    async def source(self) -> Source:
        """Ask what is read. Raises ConfigurationError where it cannot be read, or not all of it."""
        try:
            found = await self._describe()
        except _MISUSE as error:
            raise ConfigurationError(
                f"subscription {self._name} cannot be read: {error.message}; it takes the name of a pull subscription "
                "and the permissions pubsub.subscriptions.get and pubsub.subscriptions.consume"
            ) from error
        except CALL_ERRORS as error:
            raise broker_error(error) from error
        if found.filter:
            raise ConfigurationError(
                f"subscription {self._name} filters with {found.filter!r}: it never shows the rest"
            )
        return Source(found.name, found.topic, found.enable_message_ordering)

    async def next(self, seconds: float) -> Sequence[Received]:
        """Return the next messages, or none once `seconds` have passed without any and without a failure."""
        failing_since: float | None = None
        while True:
            try:
                return await self._next(seconds)
            except _TRANSIENT as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > self._outage_seconds:
                    raise broker_error(error) from error
                await asyncio.sleep(_PAUSE_SECONDS)
            except CALL_ERRORS as error:
                raise broker_error(error) from error

    async def acknowledge(self, received: Sequence[Received]) -> None:
        """Have the service forget these deliveries."""
        request = AcknowledgeRequest(subscription=self._name, ack_ids=[each.ack_id for each in received])
        try:
            await self._client.acknowledge(request)
        except CALL_ERRORS as error:
            raise broker_error(error) from error

    async def hold(self, received: Sequence[Received], seconds: int) -> None:
        """Have these deliveries come again after so many seconds, and not before; 0 gives them back at once."""
        for start in range(0, len(received), _MESSAGES):
            ack_ids = [each.ack_id for each in received[start : start + _MESSAGES]]
            request = ModifyAckDeadlineRequest(subscription=self._name, ack_ids=ack_ids, ack_deadline_seconds=seconds)
            try:
                await self._client.modify_ack_deadline(request, retry=None, timeout=_QUESTION_SECONDS)
            except CALL_ERRORS as error:
                raise broker_error(error) from error

    async def stop(self) -> Sequence[Received]:
        """Ask for nothing more, and answer with what has come without being asked for.

        What is given back after this is for others, and not the answer to a question of our own.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return ()
        pending.cancel()
        (answer,) = await asyncio.gather(pending, return_exceptions=True)
        return _all_of(answer) if isinstance(answer, PullResponse) else ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel; deliveries that were on their way come back after their deadline."""
        await self.stop()
        await self._client.transport.close()  # type: ignore[no-untyped-call]

    async def _next(self, seconds: float) -> Sequence[Received]:
        end = time.monotonic() + seconds
        while True:
            # The question outlives this wait: were it given up, its answer would be lost until the ack deadline.
            pending = self._pending = self._pending or asyncio.create_task(self._ask())
            half = max(0.0, end - time.monotonic()) / 2
            await asyncio.wait([pending], timeout=half)
            if not pending.done():
                # A slow service is not an empty one: half of the silence must follow its answer to a later question.
                await self._describe()
                await asyncio.wait([pending], timeout=half)
            if not pending.done():
                return ()
            self._pending = None
            received = _all_of(pending.result())
            if received or time.monotonic() >= end:
                return received

    async def _ask(self) -> PullResponse:
        try:
            return await self._client.pull(self._pull, retry=None, timeout=_PULL_SECONDS)
        except exceptions.DeadlineExceeded:
            return PullResponse()

    async def _describe(self) -> Subscription:
        return await self._client.get_subscription(subscription=self._name, retry=None, timeout=_QUESTION_SECONDS)


def _all_of(response: PullResponse) -> list[Received]:
    return [_received(each) for each in PullResponse.pb(response).received_messages]


def _received(raw: Any) -> Received:
    # Of the class that protobuf made; the wrapper around it costs ten times as much a message.
    message = raw.message
    return Received(raw.ack_id, message.message_id, message.ordering_key, dict(message.attributes), message.data)
