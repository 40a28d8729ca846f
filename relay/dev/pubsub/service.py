"""The Pub/Sub service over gRPC: which method is answered by what.

Generic handlers over serialised messages, without generated servicers: an answer is bytes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from relay.dev.pubsub import wire
from relay.dev.pubsub.catalog import Catalog
from relay.dev.pubsub.faults import FAULTS_SET, Call, Faults
from relay.dev.pubsub.requests import REQUESTS_OF, RequestCounts
from relay.dev.pubsub.settlement import check_settled
from relay.dev.pubsub.status import InvalidArgumentError, StatusError, UnimplementedError
from relay.dev.pubsub.streaming import Stream, modify, pull

_PUBLISHER = "/google.pubsub.v1.Publisher/"
_SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
_DEFAULT_PAGE = 100
_EMPTY = b""

_Item = TypeVar("_Item")
# In quotes: these are generic in the type stubs alone.
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Answer: TypeAlias = Callable[[Any], bytes]


class PubSubService(grpc.GenericRpcHandler):
    """Finds the handler of a method; those it lacks are answered UNIMPLEMENTED, in words."""

    def __init__(self, catalog: Catalog, faults: Faults, requests: RequestCounts) -> None:
        self._catalog = catalog
        self._faults = faults
        self._requests = requests
        self._handlers: dict[str, _Handler] = {
            FAULTS_SET: grpc.unary_unary_rpc_method_handler(self._set_faults),
            REQUESTS_OF: grpc.unary_unary_rpc_method_handler(self._requests_of),
            _PUBLISHER + "Publish": grpc.unary_unary_rpc_method_handler(self._publish),
            _SUBSCRIBER + "Pull": grpc.unary_unary_rpc_method_handler(
                self._pull, request_deserializer=wire.PullRequest.FromString
            ),
            _SUBSCRIBER + "StreamingPull": grpc.stream_stream_rpc_method_handler(
                self._stream, request_deserializer=wire.StreamingPullRequest.FromString
            ),
        }
        for path, parse, answer in (
            (_PUBLISHER + "CreateTopic", wire.Topic, self._create_topic),
            (_PUBLISHER + "GetTopic", wire.GetTopicRequest, self._get_topic),
            (_PUBLISHER + "ListTopics", wire.ListTopicsRequest, self._list_topics),
            (_PUBLISHER + "DeleteTopic", wire.DeleteTopicRequest, self._delete_topic),
            (
                _PUBLISHER + "ListTopicSubscriptions",
                wire.ListTopicSubscriptionsRequest,
                self._list_topic_subscriptions,
            ),
            (_SUBSCRIBER + "CreateSubscription", wire.Subscription, self._create_subscription),
            (_SUBSCRIBER + "GetSubscription", wire.GetSubscriptionRequest, self._get_subscription),
            (
                _SUBSCRIBER + "ListSubscriptions",
                wire.ListSubscriptionsRequest,
                self._list_subscriptions,
            ),
            (
                _SUBSCRIBER + "DeleteSubscription",
                wire.DeleteSubscriptionRequest,
                self._delete_subscription,
            ),
            (
                _SUBSCRIBER + "UpdateSubscription",
                wire.UpdateSubscriptionRequest,
                self._update_subscription,
            ),
            (_SUBSCRIBER + "Acknowledge", wire.AcknowledgeRequest, self._acknowledge),
            (
                _SUBSCRIBER + "ModifyAckDeadline",
                wire.ModifyAckDeadlineRequest,
                self._modify_ack_deadline,
            ),
        ):
            self._handlers[path] = self._unary(path.rpartition("/")[2], parse.FromString, answer)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "_Handler | None":
        """Return the handler of the method that is called."""
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None and path.startswith("/google."):
            refuse = partial(_refuse, method=path.rpartition("/")[2])
            return grpc.stream_stream_rpc_method_handler(refuse)
        return handler

    def _unary(self, method: str, parse: Callable[[bytes], Any], answer: _Answer) -> _Handler:
        async def handle(request: Any, context: _Context) -> bytes:
            try:
                async with self._faults.around(Call(method, _topic_of(request), ack_ids=_ack_ids_of(request))):
                    return answer(request)
            except StatusError as error:
                return await _abort(context, error)

        return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=parse)

    async def _set_faults(self, request: bytes, context: _Context) -> bytes:
        try:
            return self._faults.set_from(request)
        except StatusError as error:
            return await _abort(context, error)

    async def _requests_of(self, request: bytes, _: _Context) -> bytes:
        return self._requests.of_from(request)

    async def _pull(self, request: Any, context: _Context) -> bytes:
        check = partial(self._faults.check, "Pull")
        try:
            async with self._faults.around(Call("Pull")):
                return await pull(self._catalog, request, context.time_remaining(), check)
        except StatusError as error:
            return await _abort(context, error)

    async def _stream(self, requests: AsyncIterator[Any], context: _Context) -> None:
        write: Callable[[bytes], Awaitable[None]] = context.write
        try:
            async with self._faults.around(Call("StreamingPull")):
                await context.send_initial_metadata(())  # tells the caller that the stream is open
                await Stream(self._catalog, requests, write, self._faults).run()
        except StatusError as error:
            await _abort(context, error)

    async def _publish(self, raw: bytes, context: _Context) -> bytes:
        try:
            request = _parsed(raw)
            with self._requests.counted(request.topic, len(request.messages)):
                async with self._faults.around(Call("Publish", request.topic, request.messages)):
                    message_ids = self._catalog.publish(request, raw)
            return _bytes(wire.PublishResponse(message_ids=message_ids))
        except StatusError as error:
            return await _abort(context, error)

    def _create_topic(self, request: Any) -> bytes:
        return _bytes(self._catalog.create_topic(request))

    def _get_topic(self, request: Any) -> bytes:
        return _bytes(self._catalog.topic(request.topic))

    def _list_topics(self, request: Any) -> bytes:
        page, token = _page(self._catalog.topics(request.project), request)
        return _bytes(wire.ListTopicsResponse(topics=page, next_page_token=token))

    def _delete_topic(self, request: Any) -> bytes:
        self._catalog.delete_topic(request.topic)
        return _EMPTY

    def _list_topic_subscriptions(self, request: Any) -> bytes:
        page, token = _page(self._catalog.subscriptions_of(request.topic), request)
        response = wire.ListTopicSubscriptionsResponse(subscriptions=page, next_page_token=token)
        return _bytes(response)

    def _create_subscription(self, request: Any) -> bytes:
        return _bytes(self._catalog.create_subscription(request))

    def _get_subscription(self, request: Any) -> bytes:
        return _bytes(self._catalog.settings(request.subscription))

    def _list_subscriptions(self, request: Any) -> bytes:
        page, token = _page(self._catalog.subscriptions(request.project), request)
        return _bytes(wire.ListSubscriptionsResponse(subscriptions=page, next_page_token=token))

    def _delete_subscription(self, request: Any) -> bytes:
        self._catalog.delete_subscription(request.subscription)
        return _EMPTY

    def _update_subscription(self, request: Any) -> bytes:
        return _bytes(self._catalog.update_subscription(request))

    def _acknowledge(self, request: Any) -> bytes:
        subscription = self._catalog.subscription(request.subscription)
        _require_ack_ids(request)
        check_settled(subscription.acknowledge(request.ack_ids))
        return _EMPTY

    def _modify_ack_deadline(self, request: Any) -> bytes:
        subscription = self._catalog.subscription(request.subscription)
        _require_ack_ids(request)
        check_settled(modify(subscription, request.ack_ids, request.ack_deadline_seconds))
        return _EMPTY


async def _refuse(requests: Any, context: _Context, method: str) -> None:  # noqa: ARG001 - unread
    await _abort(context, UnimplementedError(f"the emulator does not implement {method}"))


async def _abort(context: _Context, error: StatusError) -> bytes:
    code, message = grpc.StatusCode[error.code], str(error)
    details: tuple[tuple[str, bytes], ...] = ()
    if error.ack_failures:
        details = (("grpc-status-details-bin", wire.ack_errors(code.value[0], message, error.ack_failures)),)
    await context.abort(code, message, details)


def _parsed(raw: bytes) -> Any:
    try:
        return wire.PublishRequest.FromString(raw)
    except DecodeError as error:
        raise InvalidArgumentError("the request is not a serialised PublishRequest") from error


def _topic_of(request: Any) -> str:
    """The topic that a request names: as a field, or because it is one."""
    return str(getattr(request, "name" if isinstance(request, wire.Topic) else "topic", ""))


def _ack_ids_of(request: Any) -> Sequence[str]:
    """The ack ids that a request settles."""
    ack_ids: Sequence[str] = getattr(request, "ack_ids", ())
    return ack_ids


def _require_ack_ids(request: Any) -> None:
    if not request.ack_ids:
        raise InvalidArgumentError("the request has no ack id")


def _page(items: list[_Item], request: Any) -> tuple[list[_Item], str]:
    """Return the page of a list that was asked for, and the token of the next page."""
    token = request.page_token or "0"
    if request.page_size < 0 or not token.isdecimal():
        raise InvalidArgumentError(f"no page of {request.page_size} begins at {token!r}")
    start = int(token)
    end = start + (request.page_size or _DEFAULT_PAGE)
    return items[start:end], str(end) if end < len(items) else ""


def _bytes(message: Any) -> bytes:
    serialised: bytes = message.SerializeToString()
    return serialised
