"""Waiting over HTTP: a client asks `GET …?waitMs=`, and is told what its work has come to. Imports no web server."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from pydantic_core import to_json

from consumers.errors import ConfigurationError, UnknownDeliveryError
from consumers.waiting.answers import Answer, Failed, Pending, Ready
from consumers.waiting.waiter import Delivery
from idempotency import StoreUnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from consumers.waiting.waiting import Waiting

PARAMETER: Final = "waitMs"
# What a client is told of a failure that its resource has no word for.
UNNAMED: Final = "FAILED"
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_SHOWN: Final = 40
_LETTING_GO_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client is told of a failure: a code of the resource's own, and a sentence where it has one."""

    code: str
    message: str = ""


# By the consumer's code; or a function, which may make a sentence of the reason.
Failures = Mapping[str, str | Refusal] | Callable[[Failed], str | Refusal | None]
Show = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, for whichever framework."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The body as JSON, as pydantic writes it; empty for None where there is nobody to read it."""
        return b"" if self.status == Status.LEFT else to_json(self.body, inf_nan_mode="null")


class Status:
    """The codes that a reply has."""

    READY = 200
    PENDING = 202
    BAD_WAIT = 400
    UNKNOWN = 404
    FAILED = 422
    LEFT = 499
    AWAY = 503


class HttpRequest(Protocol):
    """What is asked of a request: Starlette's has it, and so has FastAPI's."""

    @property
    def query_params(self) -> Mapping[str, str]:
        """The parameters behind the question mark."""
        ...

    @property
    def receive(self) -> Callable[[], Awaitable[Any]]:
        """The messages of ASGI."""
        ...


async def wait_response(
    waiting: "Waiting",
    request: HttpRequest,
    delivery: Delivery,
    *,
    failures: Failures | None = None,
    ready: Show | None = None,
) -> "Response":
    """Wait for a delivery as long as the request's `waitMs` says, or until its client goes; answer as Starlette does.

    200 with `{"status": "ready", "result": …}`, or what `ready` makes of the result; 202 with a Retry-After; 422 with
    a code from `failures`. Who may see the delivery is for the caller to decide, before. Nothing of the database is to
    be held meanwhile, neither a transaction nor a connection.
    """
    try:
        seconds = wait_of(request.query_params.get(PARAMETER), waiting)
    except ValueError as error:
        return _response(_bad_wait(error))
    return _response(await _reply(waiting, request, delivery, seconds, failures, ready))


def wait_endpoint(
    waiting: "Waiting",
    begin: "Callable[[Request], Awaitable[Delivery]]",
    *,
    failures: Failures | None = None,
    ready: Show | None = None,
) -> "Callable[[Request], Awaitable[Response]]":
    """An endpoint for a route of Starlette's or FastAPI's, which answers as `wait_response` does.

    `begin` decides whether the client may have it, enqueues the work, commits, and returns which delivery it is. It
    is not called where `waitMs` is wrong.
    """

    async def endpoint(request: "Request") -> "Response":
        try:
            seconds = wait_of(request.query_params.get(PARAMETER), waiting)
        except ValueError as error:
            return _response(_bad_wait(error))
        delivery = await begin(request)
        return _response(await _reply(waiting, request, delivery, seconds, failures, ready))

    # By it FastAPI knows what to pass; as a text it would look the name up here.
    endpoint.__annotations__ = {"request": _starlette("requests").Request}
    return endpoint


def wait_of(text: str | None, waiting: "Waiting") -> float:
    """How many seconds a client wants to wait, as far as it may. Raises ValueError for what is no wait."""
    if text is None:
        return waiting.default
    if not _WHOLE.fullmatch(text):
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise ValueError(
            f"{PARAMETER} is {shown!r}; give a whole number of milliseconds, from 0 to {round(waiting.most * 1000)}"
        )
    return min(int(text) / 1000, waiting.most)


def reply_to(answer: Answer, *, failures: Failures | None = None, ready: Show | None = None) -> Reply:
    """The response to an answer, for a framework other than Starlette and FastAPI."""
    match answer:
        case Ready(result):
            return _reply_of(Status.READY, {"status": "ready", "result": result} if ready is None else ready(result))
        case Pending(retry_after):
            return _later(Status.PENDING, "pending", retry_after)
        case Failed():
            refusal = _refusal(answer, failures)
            message = {"message": refusal.message} if refusal.message else {}
            return _reply_of(Status.FAILED, {"status": "failed", "code": refusal.code, **message})
        case _:
            assert_never(answer)


def _refusal(failed: Failed, failures: Failures | None) -> Refusal:
    match failures:
        case None:
            named = None
        case Mapping():
            named = failures.get(failed.code)
        case _:
            named = failures(failed)
    return Refusal(named) if isinstance(named, str) else named or Refusal(UNNAMED)


async def _reply(  # noqa: PLR0913, PLR0917 -- what the two ways in have in common
    waiting: "Waiting",
    request: HttpRequest,
    delivery: Delivery,
    seconds: float,
    failures: Failures | None,
    ready: Show | None,
) -> Reply:
    try:
        answer = await _unless_gone(request, waiting.wait(delivery, seconds))
    except UnknownDeliveryError:
        return _reply_of(Status.UNKNOWN, {"status": "unknown"})
    except StoreUnavailableError:
        return _later(Status.AWAY, "unavailable", waiting.retry_after)
    if answer is None:
        return Reply(Status.LEFT, None)  # for the access log: nobody reads it
    return reply_to(answer, failures=failures, ready=ready)


async def _unless_gone(request: HttpRequest, answering: Awaitable[Answer]) -> Answer | None:
    """The answer; None where the client goes first, for whom nobody waits any longer."""
    answer = asyncio.ensure_future(answering)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return None
        return await answer
    finally:
        answer.cancel()
        gone.cancel()
        # Not for as long as it takes: what a server or a middleware does when it is cancelled is its own.
        await asyncio.wait({answer, gone}, timeout=_LETTING_GO_SECONDS)


async def _gone(request: HttpRequest) -> None:
    """Return when the client has gone; where nothing is heard of it, never."""
    if not await _heard_to_go(request):
        await asyncio.Event().wait()


async def _heard_to_go(request: HttpRequest) -> bool:
    """Whether the server tells it; what it says for ever instead is not listened to."""
    bodies = 0
    while bodies < 2:  # noqa: PLR2004 -- the end of the body comes once
        try:
            message = await request.receive()
        except Exception:  # noqa: BLE001 -- a middleware's own: whether the client is there is not known then
            return False
        if message["type"] == "http.disconnect":
            return True
        bodies += not message.get("more_body")
    return False


def _bad_wait(error: ValueError) -> Reply:
    return _reply_of(Status.BAD_WAIT, {"status": "invalid", "message": str(error)})


def _later(status: int, word: str, retry_after: float) -> Reply:
    """A reply to come again for. The header counts whole seconds, and never none."""
    body = {"status": word, "retryAfterMs": math.ceil(retry_after * 1000)}
    return _reply_of(status, body, {"retry-after": str(max(1, math.ceil(retry_after)))})


def _reply_of(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    # What is true of a piece of work now is no answer to keep.
    return Reply(status, body, {"cache-control": "no-store", **(headers or {})})


def _response(reply: Reply) -> "Response":
    response: Response = _starlette("responses").Response(
        reply.encoded(), reply.status, reply.headers, media_type="application/json"
    )
    return response


def _starlette(part: str) -> Any:
    """A module of the framework of whoever asks: this package does without it."""
    try:
        return import_module(f"starlette.{part}")
    except ImportError as error:
        raise ConfigurationError(
            f"an endpoint that waits needs Starlette or FastAPI ({error}); with another framework, make a response of "
            "reply_to(await waiting.wait(…))"
        ) from None
