"""Everything that the SDK raises on purpose, and what a handler may raise, as a tree.

ConsumerError
├── ConfigurationError  what a consumer was built with is wrong; a ValueError as well
├── TransientError      from a handler: not this time. Costs an attempt, comes again
├── FatalError          from a handler: never. Dead-lettered at once
├── UsageError          a handler uses its context in a way that cannot work
└── UnknownDeliveryError  what is waited for is not in the inbox; a LookupError as well
"""

from datetime import timedelta
from enum import Enum
from typing import ClassVar

from relay.kernel.code_duration import LONGEST, Duration, read

ErrorCode = str | int | Enum


class ConsumerError(Exception):
    """Base of every error that the SDK raises on purpose."""


class ConfigurationError(ConsumerError, ValueError):
    """What a consumer was built with is wrong; nothing was started."""


class TransientError(ConsumerError):
    """Raised by a handler: it did not work this time. Costs an attempt, and the event comes again.

    `code` is a short name for the reason; without one it is the name of the class. `delay` is how long to wait, in
    place of what the retry policy says: a timedelta, seconds or a text like "30s", at most 7 days. One that cannot be
    read does not hide the failure that it came with: the policy's delay is used, and the error says so.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, reason: str, code: ErrorCode | None = None, delay: Duration | None = None) -> None:
        self.code = code
        self.delay: timedelta | None = None
        if delay is not None:
            try:
                self.delay = min(read(delay), LONGEST)
            except ValueError as fault:
                reason = f"{reason} (and its delay is left to the retry policy: {fault})"
        super().__init__(reason)


class FatalError(ConsumerError):
    """Raised by a handler: it will never work. The event is dead-lettered at once; `code` as for TransientError."""

    retryable: ClassVar[bool] = False

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        self.code = code
        super().__init__(reason)


class UsageError(ConsumerError):
    """A handler uses its context in a way that cannot work; the sentence says how it would."""


class UnknownDeliveryError(ConsumerError, LookupError):
    """What is waited for is not in the inbox: not committed, or removed since."""
