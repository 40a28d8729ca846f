"""One stream of a subscription after the other: the service ends each of them now and then."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.pubsub_v1.types import StreamingPullRequest

from consumers.events import SourceAway, SourceBack
from relay.brokers.pubsub_receiving import Receiving, call_error, cancelled_from_outside
from relay.errors import BrokerError
from relay.kernel.backoff import Backoff, Delay
from relay.kernel.observe import Observe

# The service ends a stream on which the client says nothing for long.
HEARTBEAT_SECONDS: Final = 30.0
# Of a stream that asks for the protocol's first version, the service answers each heartbeat within this time.
PROTOCOL_VERSION: Final = 1
ANSWER_SECONDS: Final = 15.0
# A stream that lasted as long works; one that ends earlier has failed.
STEADY_SECONDS: Final = 5.0
RECONNECT: Final = Delay(first=0.1, most=10.0, jitter=0.25)
# What no time heals: somebody has to act.
_FINAL: Final = {
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
}


class Streams:
    """Reads a subscription, whatever becomes of the streams, and tells when it cannot be read and when it can again.

    Streams that worked and ended are opened again without a word. So is one that fails once: two in a row, or a
    failure that will not pass by itself, are told of, and then nothing until the subscription is read steadily, or
    cannot be read for another reason.

    A stream may break without a sign. What the service did before, opening a stream before there is a message for it
    and answering heartbeats, it is expected to do again: a stream on which it does not is given up. Emulators do not
    answer heartbeats, and are not asked to.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        calls: Receiving,
        wish: Any,
        *,
        room: Callable[[], Awaitable[None]],
        take: Callable[[Any], Awaitable[None]],
        consumer: str,
        subscription: str,
        observe: Observe,
        heartbeat: float = HEARTBEAT_SECONDS,
        answer: float = ANSWER_SECONDS,
        steady: float = STEADY_SECONDS,
        reconnect: Delay = RECONNECT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wish` opens each stream; nothing is read until there is `room`; `take` gets every response."""
        self._calls = calls
        self._wish = wish
        self._room = room
        self._take = take
        self._consumer = consumer
        self._subscription = subscription
        self._observe = observe
        self._heartbeat = heartbeat
        self._answer = answer
        self._steady_seconds = steady
        self._backoff = Backoff(reconnect)
        self._monotonic = monotonic
        self._steady = False
        self._opened = 0.0
        self._failed_since: float | None = None
        self._told: str | None = None
        # By the loop's clock: since when a response is waited for, while one is; when the last one came; and when the
        # last heartbeat went.
        self._waiting_since: float | None = None
        self._heard = 0.0
        self._said: float | None = None
        self._silent = False
        self._opens_at_once = False
        self._answers = False

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            # What nobody reads would lie in buffers until it is somebody else's.
            await self._room()
            self._opened, self._steady, self._silent = self._monotonic(), False, False
            self._heard, self._said = 0.0, None
            failure = await self._read_stream()
            if not self._steady or failure.code in _FINAL:
                await asyncio.sleep(self._failed(failure))

    async def _read_stream(self) -> BrokerError:
        """Read one stream to its end; answer with why it ended."""
        call: Any = self._calls.stream()
        heart = asyncio.create_task(self._beat(call))
        try:
            await _told_apart(call.write(self._wish))
            while True:
                await self._room()
                response = await self._read(call)
                if response is None:
                    return BrokerError("INTERNAL", "the service sent a response that cannot be read")
                if response is grpc.aio.EOF:
                    return BrokerError("OK", "the service ended the stream")
                await self._take(response)
        except _EndedError as ended:
            return BrokerError("DEADLINE_EXCEEDED", "the service is silent") if self._silent else ended.failure
        finally:
            heart.cancel()
            call.cancel()
            await asyncio.wait([heart])

    async def _read(self, call: Any) -> Any:
        now = asyncio.get_running_loop().time
        self._waiting_since = now()
        try:
            response = await _told_apart(call.read())
        finally:
            self._waiting_since = None
        self._heard = now()
        if self._said is not None and response and not response.received_messages:
            self._answers |= self._heard - self._said <= self._answer
        return response

    async def _beat(self, call: Any) -> None:
        """Say now and then that somebody is here. A stream on which that fails has ended, and its reader is told."""
        loop, request = asyncio.get_running_loop(), StreamingPullRequest.pb()()
        try:
            await self._become_steady(call)
            while not call.done():
                self._works()
                self._said = loop.time()
                await call.write(request)
                await asyncio.sleep(min(self._answer, self._heartbeat))
                if self._answers and self._waited_in_vain(self._said):
                    self._give_up(call)
                await asyncio.sleep(max(0.0, self._heartbeat - self._answer))
        except Exception:  # noqa: BLE001 -- why it ended is the reader's to tell
            call.cancel()

    async def _become_steady(self, call: Any) -> None:
        try:
            # A service may keep even the stream's opening for its first message.
            async with asyncio.timeout(self._answer):
                await call.initial_metadata()
        except TimeoutError:
            if self._opens_at_once:
                self._give_up(call)
        else:
            self._opens_at_once |= not self._heard
        await asyncio.sleep(self._steady_seconds)

    def _waited_in_vain(self, since: float) -> bool:
        """Whether nothing was heard, though somebody listened all the time. Who has no room does not listen."""
        return self._heard < since and self._waiting_since is not None and self._waiting_since <= since

    def _give_up(self, call: Any) -> None:
        self._silent = True
        call.cancel()

    def _works(self) -> None:
        self._steady = True
        self._backoff.reset()
        since, self._failed_since = self._failed_since, None
        told, self._told = self._told, None
        if since is not None and told is not None:
            self._observe(SourceBack(self._consumer, self._subscription, self._opened - since))

    def _failed(self, failure: BrokerError) -> float:
        """Tell of it, where that is news; the seconds until the next attempt."""
        pause = self._backoff.next()
        first = self._failed_since is None
        if first:
            self._failed_since = self._monotonic()
        kind = failure.code if failure.code in _FINAL else "passing"
        if kind != self._told and not (first and kind == "passing"):
            self._told = kind
            self._observe(SourceAway(self._consumer, self._subscription, failure, pause))
        return pause


class _EndedError(Exception):
    def __init__(self, failure: BrokerError) -> None:
        super().__init__(failure)
        self.failure = failure


async def _told_apart(step: Awaitable[Any]) -> Any:
    """The end of a stream, in whichever way gRPC shows it, is not that of the task that reads it."""
    try:
        return await step
    except grpc.aio.AioRpcError as error:
        raise _EndedError(call_error(error)) from error
    except (asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
        raise _EndedError(BrokerError("UNAVAILABLE", str(error))) from error
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        raise _EndedError(BrokerError("CANCELLED", "the stream was ended on this side")) from None
