"""What an alert says, and when."""

from datetime import timedelta
from typing import Any

import pytest

from relay.operate.check import Limits, breaches
from relay.outbox.queue import COUNT_LIMIT, Keys, Queue

KEYS = Keys(
    due=0,
    later=0,
    behind=0,
    blocked=0,
    is_least=False,
    more_keys=False,
    oldest_due_seconds=0.0,
    oldest_blocked_seconds=0.0,
)
CALM = Queue(
    fresh=1,
    delayed_due=0,
    scheduled=0,
    retrying=0,
    max_attempts=0,
    non_retryable=0,
    blocking=0,
    failed_last_hour=0,
    oldest_unordered_seconds=1.0,
    keys=KEYS,
)
LIMITS = Limits(failed=0, age=timedelta(minutes=5), blocked_keys=0, retrying=10, pending=100)


def test_within_the_limits_nothing_is_said() -> None:
    """Each limit itself is fine."""
    edge = CALM._replace(oldest_unordered_seconds=300.0, retrying=10, fresh=100)
    assert breaches(CALM, LIMITS) == []
    assert breaches(edge, LIMITS) == []


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [
        ({"max_attempts": 1, "non_retryable": 1}, "failed", ("2 row(s)", "limit is 0", "relay failed list")),
        (
            {"keys": KEYS._replace(blocked=2, behind=7, is_least=True)},
            "blocked_keys",
            ("at least 2 key(s)", "with at least 7 row(s)", "limit is 0", "relay status"),
        ),
        (
            {"keys": KEYS._replace(blocked=1)},
            "blocked_keys",
            ("1 key is blocked by a failed row, and nothing waits behind it yet, the limit is 0",),
        ),
        ({"oldest_unordered_seconds": 301.0}, "oldest_due_seconds", ("0:05:01", "limit is 0:05:00", "relay status")),
        ({"retrying": 11}, "retrying", ("11 pending", "limit is 10", "relay status")),
        ({"fresh": COUNT_LIMIT}, "pending", ("at least 100,000", "limit is 100", "relay status --watch")),
    ],
)
def test_each_limit_has_its_sentence(change: dict[str, Any], what: str, words: tuple[str, ...]) -> None:
    """With the value, the limit and the next command."""
    (breach,) = breaches(CALM._replace(**change), LIMITS)
    assert breach.what == what
    assert all(word in breach.sentence for word in words)


def test_nothing_due_is_not_old() -> None:
    """Whatever the age says."""
    assert breaches(CALM._replace(fresh=0, oldest_unordered_seconds=999.0), LIMITS) == []


def test_limits_that_are_not_given_are_not_looked_at() -> None:
    """Each is the caller's choice."""
    busy = CALM._replace(fresh=COUNT_LIMIT, retrying=COUNT_LIMIT, max_attempts=9, oldest_unordered_seconds=9e9)
    busy = busy._replace(keys=KEYS._replace(blocked=9))
    assert breaches(busy, Limits(failed=None, age=None)) == []
