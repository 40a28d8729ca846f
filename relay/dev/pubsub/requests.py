"""How often a topic was published to, and how: counted on arrival, whatever the answer was.

In the process `emulator.requests.of(topic)`, from another one `await requests_of(address, topic)`, which calls the
method REQUESTS_OF. A topic goes by its full name and need not exist.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import grpc.aio

REQUESTS_OF: Final = "/relay.dev.Requests/Of"


@dataclass(slots=True)
class Requests:
    """What came for one topic since the emulator was made."""

    requests: int = 0
    messages: int = 0
    alone: int = 0  # requests of one message
    unanswered: int = 0  # not answered yet, or never, or with an error


class RequestCounts:
    """The counts by topic."""

    def __init__(self) -> None:
        self._by_topic: defaultdict[str, Requests] = defaultdict(Requests)

    def of(self, topic: str) -> Requests:
        """What came for the topic so far."""
        return self._by_topic.get(topic, Requests())

    @contextmanager
    def counted(self, topic: str, messages: int) -> Iterator[None]:
        """Count a request; it is answered when the block ends well."""
        counts = self._by_topic[topic]
        counts.requests += 1
        counts.messages += messages
        counts.alone += messages == 1
        counts.unanswered += 1
        yield
        counts.unanswered -= 1

    def of_from(self, body: bytes) -> bytes:
        """Answer REQUESTS_OF: the body is the topic's name."""
        return json.dumps(asdict(self.of(body.decode()))).encode()


async def requests_of(address: str, topic: str) -> Requests:
    """What came for the topic so far at the emulator at `address`."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(REQUESTS_OF)
        return Requests(**json.loads(await call(topic.encode())))
