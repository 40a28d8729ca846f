"""The Redis store that lets a consumer recognise an event which it has processed before."""

from idempotency.errors import IdempotencyError, InvalidKeyError
from idempotency.manager import Manager

__all__ = ["IdempotencyError", "InvalidKeyError", "Manager"]
