"""How long a pull waits."""

import pytest

from relay.dev.pubsub.streaming import patience


@pytest.mark.parametrize("remaining", [0.5, 5.0, 60.0])
def test_a_pull_is_answered_before_its_caller_gives_up(remaining: float) -> None:
    """The wait ends within the caller's time, and does not give away much of it."""
    assert remaining * 0.9 <= patience(remaining) < remaining


@pytest.mark.parametrize("remaining", [None, 1e9])
def test_a_pull_without_a_deadline_ends_too(remaining: float | None) -> None:
    """A caller with no deadline, or a very late one, is answered after a minute and a half."""
    assert patience(remaining) == 90
