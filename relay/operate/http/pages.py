"""What is answered to whom: no sockets, no protocol."""

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from relay.operate.health import Judge, State, Verdict
from relay.operate.metrics import CONTENT_TYPE, Metrics

_METHODS = ("GET", "HEAD")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """What of a request matters here; `authorization` is its header, None where it has none."""

    method: str
    target: str
    authorization: bytes | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, before it is put into HTTP."""

    status: HTTPStatus
    body: bytes
    content_type: str = _JSON
    headers: dict[str, str] = field(default_factory=dict)
    head_only: bool = False  # the length of the body is told, the body is not sent


class Pages:
    """Answers requests. With a token, whoever does not show it learns yes or no of the probes, and nothing else.

    Probes of platforms can rarely carry a secret; why a relay is not ready names databases and topics.
    """

    def __init__(self, health: Judge, metrics: Metrics, token: str | None) -> None:
        self._health = health
        self._metrics = metrics
        self._token = None if token is None else token.encode()

    @property
    def guarded(self) -> bool:
        """Whether there is a token to show."""
        return self._token is not None

    def answer(self, request: Request) -> Response:
        """The answer to one request."""
        return replace(self._full(request), head_only=request.method == "HEAD")

    def _full(self, request: Request) -> Response:
        page = self._pages().get(request.target.partition("?")[0])
        trusted = self._token is None or _shows(self._token, request.authorization)
        if not trusted and request.authorization is not None:
            return _unauthorized("the token is wrong")
        if page is None:
            return failure(HTTPStatus.NOT_FOUND, "there is /healthz, /readyz and /metrics")
        if request.method not in _METHODS:
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD", Allow=", ".join(_METHODS))
        return page(trusted)

    def _pages(self) -> dict[str, Callable[[bool], Response]]:
        return {
            "/healthz": lambda trusted: _probe(self._health.healthy(), trusted=trusted),
            "/readyz": lambda trusted: _probe(self._health.ready(), trusted=trusted),
            "/metrics": self._rendered,
        }

    def _rendered(self, trusted: bool) -> Response:  # noqa: FBT001 -- a page is called with nothing else
        if not trusted:
            return _unauthorized("metrics are shown to who sends: Authorization: Bearer <RELAY_HTTP_TOKEN>")
        return Response(HTTPStatus.OK, self._metrics.render(), CONTENT_TYPE)


def failure(status: HTTPStatus, error: str, **headers: str) -> Response:
    """An answer that says what is wrong with the request."""
    return Response(status, _json({"error": error}), headers=headers)


def _probe(verdict: Verdict, *, trusted: bool) -> Response:
    status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
    bare = {"status": State.OK.value if verdict.ok else State.FAILED.value}
    return Response(status, _json(verdict.as_json() if trusted else bare))


def _unauthorized(error: str) -> Response:
    return failure(HTTPStatus.UNAUTHORIZED, error, **{"WWW-Authenticate": 'Bearer realm="relay"'})


def _shows(token: bytes, authorization: bytes | None) -> bool:
    scheme, _, shown = (authorization or b"").partition(b" ")
    # Compared in a time that tells nothing about the token.
    return hmac.compare_digest(shown.strip(), token) and scheme.lower() == b"bearer"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
