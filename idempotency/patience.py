"""Which failures are Redis being away, and for how long a request waits for it."""

import re
from collections.abc import Callable
from datetime import timedelta

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency.errors import StoreUnavailableError
from idempotency.settings import Settings

# What a client raises for a request that Redis has not carried out, or has not said that it did.
ASKED_IN_VAIN = (RedisConnectionError, RedisTimeoutError, ResponseError, ClusterError, RedisClusterException)

_AWAY = (
    RedisConnectionError,  # LOADING and a full pool are among them
    RedisTimeoutError,
    ReadOnlyError,
    ClusterError,  # CLUSTERDOWN, MASTERDOWN
    AskError,  # MOVED too
    TryAgainError,
    RedisClusterException,
)
_REFUSING = (AuthenticationError, AuthorizationError)  # connection errors by their class, and they do not pass
# An error inside a script comes as a plain ResponseError from some servers, with the code within its text.
_AWAY_CODES = re.compile(
    r"(?:^|[\s-])(?:READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF|OOM) "
)
_READ_ONLY = re.compile(r"(?:^|[\s-])READONLY ")
_DOUBLINGS = 30


def is_away(error: Exception) -> bool:
    """Whether Redis could not be asked, rather than that the question was wrong."""
    return isinstance(error, _AWAY) or (
        isinstance(error, ResponseError)
        and not isinstance(error, NoScriptError)
        and bool(_AWAY_CODES.search(str(error)))
    )


def is_read_only(error: Exception) -> bool:
    """Whether the server was a master once, so that the connections lead to the wrong one."""
    return isinstance(error, ReadOnlyError) or bool(_READ_ONLY.search(str(error)))


def _hint(error: Exception) -> str:
    if isinstance(error, AskError):
        return "The server is one of a Cluster: connect with redis+cluster:// or cluster=True."
    return "Whether the last of them took effect is not known; try the whole again later."


def refused(error: Exception) -> StoreUnavailableError:
    """What to tell a caller whose request Redis will not carry out, however often it is asked."""
    raised = StoreUnavailableError(
        f"Redis refused the request: {type(error).__name__} ({error}). Trying again does not help: look at the"
        " permissions of the user, and at what other programs write under the prefix."
    )
    raised.__cause__ = error
    return raised


def is_redirection(error: Exception) -> bool:
    """Whether a Cluster has merely named another server."""
    return isinstance(error, AskError | TryAgainError)


class Patience:
    """How long one request is tried again."""

    def __init__(self, settings: Settings, clock: Callable[[], float], chance: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._began = clock()
        self._failures = 0

    def pause(self, error: Exception) -> float | None:
        """For how long to wait after a failure, in seconds; None is to give up."""
        if isinstance(error, _REFUSING):
            return None
        self._failures += 1
        if self._failures == 1:
            # A connection that was idle for too long is the most frequent failure, and gone with it.
            return 0.0 if isinstance(error, RedisConnectionError) else self._jittered(1)
        pause = self._jittered(self._failures - 1)
        over = self._clock() - self._began + pause >= self._settings.retry_for.total_seconds()
        return None if over else pause

    def exhausted(self, error: Exception) -> StoreUnavailableError:
        """What to tell a caller whose request was given up."""
        seconds = self._clock() - self._began
        raised = StoreUnavailableError(
            f"Redis could not be asked: {type(error).__name__} ({error}), after {self._failures or 1} tries in"
            f" {seconds:.1f} s. {_hint(error)}"
        )
        raised.__cause__ = error
        return raised

    def _jittered(self, doublings: int) -> float:
        longest: timedelta = min(
            self._settings.retry_max, self._settings.retry_base * 2 ** min(doublings - 1, _DOUBLINGS)
        )
        return longest.total_seconds() * (0.5 + self._chance() / 2)
