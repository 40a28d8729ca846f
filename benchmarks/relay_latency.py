"""`relay run` itself, whose broker notes when it has answered: `python -m benchmarks.relay_latency TOPIC`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from benchmarks.contest import answer, take_part, until_told
from relay.brokers.pubsub import PubSub
from relay.cli.main import main as relay
from relay.cli.parts import pubsub_address
from relay.cli.runners import BROKERS
from relay.envelope import Message

ACKED: dict[str, int] = {}


class Noting(PubSub):
    """Notes when each message was taken."""

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Publish as ever."""
        answers = await super().publish(topic, messages, seconds)
        now = time.monotonic_ns()
        ACKED.update((message.attributes["aggregate_id"], now) for message in messages)
        return answers


def main(topic: str) -> None:
    """Take part in a contest: answer with the moment at which the broker had each event, by its number."""
    os.environ |= {"RELAY_TOPIC": topic, "RELAY_LOG_LEVEL": "error"}
    BROKERS["pubsub"] = lambda settings: Noting(pubsub_address(settings))
    take_part()
    threading.Thread(target=end_when_told, daemon=True).start()
    relay(["run"])
    answer(acked=ACKED)


def end_when_told() -> None:
    """As a platform does it."""
    until_told()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
