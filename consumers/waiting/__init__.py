"""Has a consumer with an inbox do work, and waits for it: for services that serve requests.

It rests on the tables of the inbox alone, in whatever process the consumer runs.
"""

from typing import TYPE_CHECKING

from consumers.errors import UnknownDeliveryError
from consumers.waiting.answers import Answer, Failed, Pending, Ready
from consumers.waiting.enqueue import Enqueued, enqueue, enqueue_sync
from relay.lazy import names_of

if TYPE_CHECKING:
    from consumers.waiting.waiting import Waiting
    from consumers.waiting.web import Refusal, Reply, reply_to, wait_endpoint, wait_response

__all__ = [
    "Answer",
    "Enqueued",
    "Failed",
    "Pending",
    "Ready",
    "Refusal",
    "Reply",
    "UnknownDeliveryError",
    "Waiting",
    "enqueue",
    "enqueue_sync",
    "reply_to",
    "wait_endpoint",
    "wait_response",
]

# Whoever only enqueues, over a driver of their own, does without libpq.
__getattr__ = names_of(
    __name__,
    {
        "Refusal": "consumers.waiting.web",
        "Reply": "consumers.waiting.web",
        "Waiting": "consumers.waiting.waiting",
        "reply_to": "consumers.waiting.web",
        "wait_endpoint": "consumers.waiting.web",
        "wait_response": "consumers.waiting.web",
    },
)
