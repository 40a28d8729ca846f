"""What the store raises on purpose."""


class IdempotencyError(Exception):
    """Base of every error of this package."""


class InvalidKeyError(IdempotencyError, ValueError):
    """The consumer or the event id cannot identify anything."""
