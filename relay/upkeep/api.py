"""The internal API that HTTP jobs call, reached with a token that goes there and nowhere else. Needs httpx."""

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from relay.errors import ApiError
from relay.kernel.command import release
from relay.kernel.redaction import storable
from relay.upkeep.http import HttpCall

if TYPE_CHECKING:
    import ssl

TOKEN_HEADER: Final = "x-service-token"  # noqa: S105 -- the name of a header
CONNECT_SECONDS: Final = 10.0
_MOST_SAID = 200


class ServiceApi:
    """Makes one request a call, over a connection of its own: minutes go by between two of them."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = base_url
        self._headers = {TOKEN_HEADER: token, "user-agent": f"outbox-relay/{release()}"}
        self._context: ssl.SSLContext | None = None

    async def __call__(self, call: HttpCall, seconds: float) -> None:
        """Make the call. Raises ApiError for any answer but a success, and where there is none."""
        try:
            # The client's own limits are for each part of an answer, however many there are.
            async with asyncio.timeout(seconds):
                await self._make(call, self._client(seconds))
        except (httpx.HTTPError, TimeoutError) as error:
            raise _unanswered(call, urlsplit(self._base_url).netloc, error) from error

    async def _make(self, call: HttpCall, client: httpx.AsyncClient) -> None:
        async with client, client.stream(call.method, f"{self._base_url}{call.path}") as response:
            if not response.is_success:
                raise _refused(call, response)
            # The server may be at work until its last byte.
            async for _ in response.aiter_raw():
                pass

    def _client(self, seconds: float) -> httpx.AsyncClient:
        if self._context is None:
            self._context = httpx.create_ssl_context()
        return httpx.AsyncClient(
            headers=self._headers,
            timeout=httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            verify=self._context,
            # Neither a redirect nor a proxy of the environment is told the token, and no .netrc speaks for us.
            follow_redirects=False,
            trust_env=False,
        )


def _refused(call: HttpCall, response: httpx.Response) -> ApiError:
    status = response.status_code
    sent_on = ", which is not followed: the token would go along" if response.has_redirect_location else ""
    return ApiError(f"HTTP_{status}", f"{call} was answered with status {status}{sent_on}")


def _unanswered(call: HttpCall, server: str, error: Exception) -> ApiError:
    """What httpx says of a server may be the server's own words; of a connection it is the system's."""
    match error:
        case httpx.TimeoutException() | TimeoutError():
            return ApiError("HTTP_TIMEOUT", f"{call} was not answered in time ({type(error).__name__})")
        case httpx.ConnectError():
            reason = storable(str(error))[:_MOST_SAID]
            return ApiError(
                "HTTP_UNREACHABLE", f"{call}: no connection to {server}, which WORKER_API_BASE_URL names: {reason}"
            )
        case _:
            return ApiError("HTTP_BROKEN", f"{call} got no whole answer ({type(error).__name__})")
