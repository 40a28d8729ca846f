"""What a failed acknowledgement means: which ack ids it is about, and when it is about the call."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from relay.brokers.pubsub_receiving import Receiving
from relay.errors import BrokerError

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
LATER = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"
QUOTA = {"service": "pubsub.googleapis.com", "quota_metric": "pubsub.googleapis.com/regionalsubscriber"}


def failure(code: grpc.StatusCode, details: bytes | None = None) -> grpc.aio.AioRpcError:
    """What gRPC raises."""
    trailing = grpc.aio.Metadata()
    if details is not None:
        trailing.add("grpc-status-details-bin", details)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, "so the service says")


def error_info(code: grpc.StatusCode, metadata: Mapping[str, str]) -> bytes:
    """The details of an error, as the service sends them."""
    packed = Packed()
    packed.Pack(ErrorInfo(reason="A_REASON", domain="pubsub.googleapis.com", metadata=metadata))
    details: bytes = Status(code=code.value[0], message="so the service says", details=[packed]).SerializeToString()
    return details


async def acknowledged(error: BaseException, ack_ids: Sequence[str]) -> Mapping[str, str]:
    """What becomes of ack ids when gRPC raises this."""

    async def call(_: Any, **__: Any) -> None:
        raise error

    return await receiving(call).acknowledge(ack_ids, 1.0)


def receiving(call: Any) -> Receiving:
    """The calls, over a channel on which each of them does this."""

    def unary_unary(*_: Any, **__: Any) -> Any:
        return call

    channel = SimpleNamespace(unary_unary=unary_unary, stream_stream=unary_unary)
    client: Any = SimpleNamespace(transport=SimpleNamespace(grpc_channel=channel))
    return Receiving(client, "projects/p/subscriptions/s")


async def test_the_ack_ids_that_are_not_named_are_settled() -> None:
    """An exactly-once subscription names those that it refused; the call did the others."""
    code = grpc.StatusCode.INVALID_ARGUMENT
    error = failure(code, error_info(code, {"a": INVALID, "b": LATER}))
    assert await acknowledged(error, ["a", "b", "c"]) == {"a": INVALID, "b": LATER}


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE]
)
async def test_an_error_that_tells_of_something_else_acknowledges_nothing(code: grpc.StatusCode) -> None:
    """A spent quota has an ErrorInfo too, which names the quota; taken for ack ids, it would refuse none of ours."""
    with pytest.raises(BrokerError, match="so the service says") as raised:
        await acknowledged(failure(code, error_info(code, QUOTA)), ["a"])
    assert raised.value.code == code.name


async def test_what_a_service_was_unable_to_do_is_done_again() -> None:
    """Of a request that broke off nobody knows what became of the ack ids that it does not name."""
    code = grpc.StatusCode.UNAVAILABLE
    refused = await acknowledged(failure(code, error_info(code, {"a": INVALID})), ["a", "b"])
    assert refused == {"a": INVALID, "b": "TRANSIENT_FAILURE_UNAVAILABLE"}


async def test_details_that_nobody_can_read_leave_the_code() -> None:
    """A proxy may put anything there."""
    with pytest.raises(BrokerError) as raised:
        await acknowledged(failure(grpc.StatusCode.INTERNAL, b"\xff no status"), ["a"])
    assert raised.value.code == "INTERNAL"


async def test_a_connection_that_was_closed_is_a_failure_like_any_other() -> None:
    """Closing cancels the calls, which gRPC shows as if their caller had been cancelled."""
    for raised_by_grpc in (asyncio.CancelledError(), grpc.aio.UsageError("Channel is closed.")):
        with pytest.raises(BrokerError):
            await acknowledged(raised_by_grpc, ["a"])


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    """That is no failure of the call."""
    under_way = asyncio.Event()

    async def call(_: Any, **__: Any) -> None:
        under_way.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(receiving(call).acknowledge(["a"], 1.0))
    await under_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
