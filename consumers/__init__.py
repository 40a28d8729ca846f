"""Acts on the events of a subscription, each once in effect."""

from consumers.app import Consumer
from consumers.classification import Classification
from consumers.context import Context
from consumers.errors import ConfigurationError, ConsumerError, FatalError, TransientError, UsageError
from consumers.missing import Missing
from consumers.outcome import Dead, Defer, Done, Invalid, Retry, Skip
from consumers.received import Received
from consumers.retry import Cron, Exponential, Fixed, Linear, RetryPolicy, Series

__all__ = [
    "Classification",
    "ConfigurationError",
    "Consumer",
    "ConsumerError",
    "Context",
    "Cron",
    "Dead",
    "Defer",
    "Done",
    "Exponential",
    "FatalError",
    "Fixed",
    "Invalid",
    "Linear",
    "Missing",
    "Received",
    "Retry",
    "RetryPolicy",
    "Series",
    "Skip",
    "TransientError",
    "UsageError",
]
