"""The emulator as a server: started and stopped, in this process."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Self

import grpc
import grpc.aio

from relay.dev.pubsub.catalog import Catalog
from relay.dev.pubsub.faults import Faults
from relay.dev.pubsub.requests import RequestCounts
from relay.dev.pubsub.service import PubSubService
from relay.errors import DevError

_HOST: Final = "127.0.0.1"
# Larger than the service's limit, so that a request too large meets the service's answer rather
# than gRPC's; bounded, so that a mistake does not take all memory.
_MAX_RECEIVED_BYTES: Final = 64 * 1024 * 1024
_STOP_GRACE_SECONDS: Final = 1.0


class PubSubEmulator:
    """Google Pub/Sub on 127.0.0.1, in memory, within the running event loop.

    Stopped and started again it is the same, on the same port, as a service that was cut off: topics, backlog and
    faults are kept. With `clear` in between it is one that restarted empty.

    Example:
        async with PubSubEmulator() as emulator:
            os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address

    Args:
        port: 0 lets the system choose a free one.
        clock: seconds, by which ack deadlines and pauses end. After moving one of your own,
            call `wake` for the consumers that wait.
    """

    def __init__(self, port: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.port = port
        self._catalog = Catalog(clock)
        self.faults = Faults(changed=self._catalog.wake)
        self.requests = RequestCounts()
        self._server: grpc.aio.Server | None = None
        self._burials: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The `host:port` to connect to; known once the emulator has started."""
        return f"{_HOST}:{self.port}"

    async def start(self) -> None:
        """Listen."""
        if self._server is not None:
            raise DevError(f"the Pub/Sub emulator listens on {self.address} already; stop it first")
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", _MAX_RECEIVED_BYTES),
                ("grpc.max_send_message_length", -1),
                # Clients ping open streams every 30 s; a server allows one in 5 minutes by default.
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.so_reuseport", 0),  # two emulators on one port would share its calls
            ]
        )
        server.add_generic_rpc_handlers((PubSubService(self._catalog, self.faults, self.requests),))
        try:
            self.port = server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise DevError(f"the Pub/Sub emulator cannot listen on {self.address}") from error
        self.faults.resume()
        await server.start()
        self._server = server
        self._burials = asyncio.create_task(self._catalog.burials.run())

    async def stop(self) -> None:
        """End open calls with UNAVAILABLE and close the port. What is stored stays for the next start."""
        if self._server is None or self._burials is None:
            return
        self.faults.stop()
        await self._server.stop(_STOP_GRACE_SECONDS)
        self._server = None
        self._burials.cancel()
        await asyncio.wait({self._burials})
        if not self._burials.cancelled():
            self._burials.result()  # raises what ended it before

    def clear(self) -> None:
        """Forget every topic, subscription and message."""
        self._catalog.clear()

    def wake(self) -> None:
        """Let waiting consumers look at the clock again."""
        self._catalog.wake()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
