"""The Redis store that lets a consumer recognise an event which it has processed before."""

from idempotency.answers import ClaimAnswer, Claimed, Done, InProgress, Locked, MarkAnswer, Marked
from idempotency.connect import connect, connect_sync
from idempotency.errors import (
    AlreadyDoneError,
    FingerprintConflictError,
    IdempotencyError,
    InProgressError,
    InvalidKeyError,
    InvalidUrlError,
    LeaseLostError,
    LockTimeoutError,
    ResultError,
    StoreUnavailableError,
)
from idempotency.idempotent import Codec
from idempotency.keys import identity_of_text
from idempotency.lock import Lock
from idempotency.manager import Manager
from idempotency.memory import MemoryManager
from idempotency.once import Once
from idempotency.settings import Settings
from idempotency.store import Store
from idempotency.sync_lock import SyncLock
from idempotency.sync_manager import SyncManager
from idempotency.sync_once import SyncOnce

__all__ = [
    "AlreadyDoneError",
    "ClaimAnswer",
    "Claimed",
    "Codec",
    "Done",
    "FingerprintConflictError",
    "IdempotencyError",
    "InProgress",
    "InProgressError",
    "InvalidKeyError",
    "InvalidUrlError",
    "LeaseLostError",
    "Lock",
    "LockTimeoutError",
    "Locked",
    "Manager",
    "MarkAnswer",
    "Marked",
    "MemoryManager",
    "Once",
    "ResultError",
    "Settings",
    "Store",
    "StoreUnavailableError",
    "SyncLock",
    "SyncManager",
    "SyncOnce",
    "connect",
    "connect_sync",
    "identity_of_text",
]
