"""What is said to Google Pub/Sub about a subscription, without what surrounds the calls of the library's own client."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio
from google.api_core.gapic_v1 import routing_header
from google.protobuf.message import DecodeError
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports.base import DEFAULT_CLIENT_INFO
from google.pubsub_v1.types import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    StreamingPullRequest,
    StreamingPullResponse,
)
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from relay.errors import BrokerError

_SERVICE: Final = "/google.pubsub.v1.Subscriber"
_DETAILS: Final = "grpc-status-details-bin"
# How the service begins the reason for an acknowledgement that may work the next time, and for one that never will.
TRANSIENT: Final = "TRANSIENT_"
PERMANENT: Final = "PERMANENT_"
# Answers after which nobody knows what has been done.
_UNABLE: Final = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}


class Receiving:
    """The calls that consuming takes, over a client's connection. Each raises BrokerError where it fails as a whole."""

    def __init__(self, client: SubscriberAsyncClient, subscription: str) -> None:
        transport: Any = client.transport
        channel: grpc.aio.Channel = transport.grpc_channel
        self._subscription = subscription
        self._stream = channel.stream_stream(
            f"{_SERVICE}/StreamingPull",
            request_serializer=StreamingPullRequest.pb().SerializeToString,
            response_deserializer=StreamingPullResponse.pb().FromString,
        )
        self._acknowledge: Any = channel.unary_unary(
            f"{_SERVICE}/Acknowledge", request_serializer=AcknowledgeRequest.pb().SerializeToString
        )
        self._modify: Any = channel.unary_unary(
            f"{_SERVICE}/ModifyAckDeadline", request_serializer=ModifyAckDeadlineRequest.pb().SerializeToString
        )
        where = routing_header.to_grpc_metadata({"subscription": subscription})  # type: ignore[no-untyped-call]
        about_us = DEFAULT_CLIENT_INFO.to_grpc_metadata()  # type: ignore[no-untyped-call]
        self._metadata = (about_us, where)

    def stream(self) -> "grpc.aio.StreamStreamCall[Any, Any]":
        """Open a StreamingPull; its first request says what is wanted."""
        return self._stream(metadata=self._metadata)

    async def acknowledge(self, ack_ids: Sequence[str], seconds: float) -> Mapping[str, str]:
        """Have deliveries forgotten; answer with the reason for each that an exactly-once subscription refused."""
        request = AcknowledgeRequest.pb()(subscription=self._subscription, ack_ids=ack_ids)
        return await self._call(self._acknowledge, request, seconds)

    async def modify(self, ack_ids: Sequence[str], deadline: int, seconds: float) -> Mapping[str, str]:
        """Have deliveries come again in `deadline` seconds, unless they are acknowledged by then; refusals as above."""
        request = ModifyAckDeadlineRequest.pb()(
            subscription=self._subscription, ack_ids=ack_ids, ack_deadline_seconds=deadline
        )
        return await self._call(self._modify, request, seconds)

    async def _call(self, call: Any, request: Any, seconds: float) -> Mapping[str, str]:
        try:
            await call(request, timeout=seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            refused = _refused(error, request.ack_ids)
            if refused is None:
                raise call_error(error) from error
            return refused
        except grpc.aio.UsageError as error:
            raise BrokerError("FAILED_PRECONDITION", str(error)) from error
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            raise BrokerError("CANCELLED", "the connection was closed under the call") from None
        return {}


def call_error(error: grpc.aio.AioRpcError) -> BrokerError:
    """A failed call by its own name."""
    return BrokerError(error.code().name, error.details() or "")


def cancelled_from_outside() -> bool:
    """Whether a CancelledError is meant for the task. gRPC raises it also where a call was cancelled for itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _refused(error: grpc.aio.AioRpcError, ack_ids: Sequence[str]) -> Mapping[str, str] | None:
    """The ack ids that the error is about, each with its reason; None where it is about the call.

    Other errors have an ErrorInfo too: that of a quota names the quota. Of an error that is about ack ids, the others
    have been settled, unless the code itself says that the service was not able to.
    """
    asked = set(ack_ids)
    refused = {
        ack_id: reason
        for ack_id, reason in _error_info(error).items()
        if ack_id in asked and reason.startswith((TRANSIENT, PERMANENT))
    }
    if not refused:
        return None
    if error.code() in _UNABLE:
        others = f"{TRANSIENT}FAILURE_{error.code().name}"
        return {ack_id: refused.get(ack_id, others) for ack_id in ack_ids}
    return refused


def _error_info(error: grpc.aio.AioRpcError) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in error.trailing_metadata() or ():
        if name == _DETAILS and isinstance(value, bytes):
            # What is no Status says nothing; the error has its code all the same.
            with suppress(DecodeError):
                for detail in Status.FromString(value).details:
                    info = ErrorInfo()
                    if detail.Unpack(info):
                        found.update(info.metadata)
    return found
