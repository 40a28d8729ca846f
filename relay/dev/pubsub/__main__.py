"""Serves the emulator until SIGTERM or SIGINT; prints its `host:port` once it listens.

Example: python -m relay.dev.pubsub --port 8085
"""

import argparse
import asyncio
import gc
import signal
import sys

from relay.dev.pubsub.emulator import PubSubEmulator
from relay.errors import DevError


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m relay.dev.pubsub",
        description="Serve an in-memory Google Pub/Sub on 127.0.0.1; print its host:port.",
        epilog="example: python -m relay.dev.pubsub --port 8085",
    )
    parser.add_argument("--port", type=int, default=0, help="0 (the default): any free port")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.port))
    except DevError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _collect_rarely()
    async with PubSubEmulator(port) as emulator:
        sys.stdout.write(f"{emulator.address}\n")
        sys.stdout.flush()
        await stop.wait()


def _collect_rarely() -> None:
    """Spare the collector the backlog: a message is in no cycle, and costs a visit each time."""
    gc.freeze()
    gc.set_threshold(100_000)


if __name__ == "__main__":
    sys.exit(main())
