"""Serves the emulator until SIGTERM or SIGINT; prints its `host:port` once it listens.

Example: python -m relay.dev.pubsub --port 8085
"""

import argparse
import asyncio
import gc
import os
import signal
import sys
import threading

from relay.errors import DevError

from .emulator import PubSubEmulator

_STDIN = 0
_CHUNK = 4096


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m relay.dev.pubsub",
        description="Serve an in-memory Google Pub/Sub on 127.0.0.1; print its host:port.",
        epilog="example: python -m relay.dev.pubsub --port 8085",
    )
    parser.add_argument("--port", type=int, default=0, help="0 (the default): any free port")
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when stdin ends, as it does when the process that holds it exits",
    )
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.port, exit_with_parent=arguments.exit_with_parent))
    except DevError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(port: int, *, exit_with_parent: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_parent:
        threading.Thread(target=_await_end_of_stdin, args=(loop, stop), daemon=True).start()
    _collect_rarely()
    async with PubSubEmulator(port) as emulator:
        sys.stdout.write(f"{emulator.address}\n")
        sys.stdout.flush()
        await stop.wait()


def _collect_rarely() -> None:
    """Spare the collector the backlog: a message is in no cycle, and costs a visit each time."""
    gc.freeze()
    gc.set_threshold(100_000)


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Read stdin to its end in a thread, because an event loop cannot watch every kind of it."""
    while os.read(_STDIN, _CHUNK):
        pass
    loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main())
