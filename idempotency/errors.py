"""What the store raises on purpose.

IdempotencyError
├── InvalidKeyError            nothing can be identified by it (a ValueError too)
├── InvalidUrlError            no store can be reached by it (a ValueError too)
├── InProgressError            somebody else is at it; `retry_after` says for how long at most
│   └── LockTimeoutError       a lock was held by others for longer than one wanted to wait
├── AlreadyDoneError           it was done before; `result` is what was kept of it
├── FingerprintConflictError   the same key came with other content
├── LeaseLostError             it is no longer ours to finish
├── ResultError                the effect took place, and its result could not be kept or read
└── StoreUnavailableError      Redis could not be asked, or refused; the cause says why
"""

from datetime import timedelta


class IdempotencyError(Exception):
    """Base of every error of this package."""


class InvalidKeyError(IdempotencyError, ValueError):
    """The consumer, the event id, the name or the fingerprint cannot identify anything."""


class InvalidUrlError(IdempotencyError, ValueError):
    """The URL of the store leads nowhere. Its password is never shown."""


class InProgressError(IdempotencyError):
    """Somebody else is at it, or it rests. Come again after `retry_after`."""

    def __init__(self, message: str, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.retry_after)


class LockTimeoutError(InProgressError):
    """The lock was held by others for as long as the caller was willing to wait."""


class AlreadyDoneError(IdempotencyError):
    """It was done before, and must not be done again. `result` is what was kept, or None."""

    def __init__(self, message: str, result: bytes | str | None = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.result)


class FingerprintConflictError(IdempotencyError):
    """The same key came with other content: two different things bear one identity."""


class LeaseLostError(IdempotencyError):
    """It is no longer ours: the lease ran out, and perhaps somebody else has taken it over."""


class ResultError(IdempotencyError):
    """The effect took place and is marked as done; its result could not be kept, or not be read."""


class StoreUnavailableError(IdempotencyError):
    """Redis could not be asked for as long as it was tried, or refused. The cause is the client's own error."""
