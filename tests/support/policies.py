"""Policies for publishers in tests."""

from typing import Any

from relay.kernel.backoff import Delay, Retry
from relay.publisher.failures import Attempts
from relay.publisher.policy import PublishPolicy
from relay.routes import Routes


def policy(**values: Any) -> PublishPolicy:
    """Small batches, one at a time, and the product's own delays, without jitter but for that of an outage."""
    defaults = {
        "routes": Routes("domain-events"),
        "batch_size": 100,
        "slots": 1,
        "publish_seconds": 5.0,
        "attempts": Attempts(25, Retry(5, 120, 0)),
        "poll": Delay(0.5, 0.5, 0),
        "outage": Delay(0.5, 10, 0.25),
    }
    return PublishPolicy(**{**defaults, **values})
