"""What an account may do with a topic, asked of a service that knows permissions."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.iam.v1.iam_policy_pb2 import (  # type: ignore[import-untyped]
    TestIamPermissionsRequest as PermissionsRequest,
)
from google.iam.v1.iam_policy_pb2 import (
    TestIamPermissionsResponse as PermissionsResponse,
)
from google.pubsub_v1.types import GetTopicRequest, Topic

from relay.brokers.pubsub_access import Access, PubSubAccess
from relay.brokers.pubsub_client import PubSubAddress
from relay.errors import BrokerError

PUBLISH = "pubsub.topics.publish"
SECONDS = 10.0


class Permitting(grpc.GenericRpcHandler):
    """A service that grants what it is told to, and answers GetTopic with a code."""

    def __init__(self) -> None:
        self.granted: list[str] = []
        self.refusal: grpc.StatusCode | None = None
        self.sees = grpc.StatusCode.OK
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop(None)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The two methods that are asked."""
        if handler_call_details.method == "/google.iam.v1.IAMPolicy/TestIamPermissions":
            return grpc.unary_unary_rpc_method_handler(
                self._permissions, PermissionsRequest.FromString, PermissionsResponse.SerializeToString
            )
        return grpc.unary_unary_rpc_method_handler(self._topic, GetTopicRequest.deserialize, Topic.serialize)

    async def _permissions(self, request: Any, context: Any) -> Any:
        if self.refusal:
            await context.abort(self.refusal, "said the service")
        return PermissionsResponse(permissions=[name for name in request.permissions if name in self.granted])

    async def _topic(self, request: Any, context: Any) -> Any:
        if self.sees is not grpc.StatusCode.OK:
            await context.abort(self.sees, "said the service")
        return Topic(name=request.topic)


@pytest.fixture
async def service() -> AsyncIterator[Permitting]:
    """It grants nothing yet, and shows every topic."""
    running = Permitting()
    await running.start()
    yield running
    await running.stop()


async def ask(service: Permitting) -> Access:
    """What it says of a topic."""
    async with PubSubAccess(PubSubAddress("p", emulator=f"127.0.0.1:{service.port}")) as asking:
        known = await asking.ask("t", SECONDS)
    assert known.topic == "projects/p/topics/t"
    return known.access


async def test_the_right_to_publish_is_enough_to_know_that_one_may(service: Permitting) -> None:
    """Nobody has to be allowed to look at topics."""
    service.granted, service.sees = [PUBLISH], grpc.StatusCode.PERMISSION_DENIED

    assert await ask(service) is Access.GRANTED


async def test_an_emulator_is_asked_without_a_proxy(service: Permitting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A company's proxy leads to the world outside, and to no emulator of this machine."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    service.granted = [PUBLISH]

    assert await ask(service) is Access.GRANTED


@pytest.mark.parametrize(
    ("sees", "access"),
    [
        (grpc.StatusCode.OK, Access.REFUSED),
        (grpc.StatusCode.NOT_FOUND, Access.MISSING),
        (grpc.StatusCode.PERMISSION_DENIED, Access.HIDDEN),
    ],
)
@pytest.mark.parametrize("refusal", [None, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED])
async def test_who_may_not_publish_is_told_as_much_as_can_be_seen(
    service: Permitting, sees: grpc.StatusCode, access: Access, refusal: grpc.StatusCode | None
) -> None:
    """Whichever way the service says that nothing is granted."""
    service.sees, service.refusal = sees, refusal

    assert await ask(service) is access


@pytest.mark.parametrize(
    ("sees", "access"),
    [
        (grpc.StatusCode.OK, Access.GRANTED),
        (grpc.StatusCode.NOT_FOUND, Access.MISSING),
        (grpc.StatusCode.PERMISSION_DENIED, Access.UNKNOWN),
    ],
)
async def test_a_service_without_permissions_is_asked_for_the_topic(
    service: Permitting, sees: grpc.StatusCode, access: Access
) -> None:
    """As emulators are."""
    service.sees, service.refusal = sees, grpc.StatusCode.UNIMPLEMENTED

    assert await ask(service) is access


async def test_a_service_that_is_away_is_no_answer(service: Permitting) -> None:
    """It is called as the publisher calls it."""
    service.refusal = grpc.StatusCode.UNAVAILABLE

    with pytest.raises(BrokerError, match="UNAVAILABLE"):
        await ask(service)
