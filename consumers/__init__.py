"""Acts on the events of a subscription, each once in effect."""

from consumers.app import Consumer
from consumers.classification import Classification
from consumers.confirmers import InvalidRecipient, Ticket
from consumers.context import Context
from consumers.errors import ConfigurationError, ConsumerError, FatalError, TransientError, UsageError
from consumers.missing import Missing
from consumers.outcome import Dead, Defer, Done, Invalid, Retry, Sent, Skip
from consumers.received import Received
from consumers.retry import Cron, Exponential, Fixed, Linear, RetryPolicy, Series
from consumers.sends import ConfirmContext

__all__ = [
    "Classification",
    "ConfigurationError",
    "ConfirmContext",
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
    "InvalidRecipient",
    "Linear",
    "Missing",
    "Received",
    "Retry",
    "RetryPolicy",
    "Sent",
    "Series",
    "Skip",
    "Ticket",
    "TransientError",
    "UsageError",
]
