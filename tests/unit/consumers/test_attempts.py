"""Attempts counted in the process."""

from uuid import uuid4

from consumers.attempts import Attempts


def test_an_attempt_counts_when_it_was_in_vain() -> None:
    attempts, event = Attempts(), uuid4()
    assert [attempts.begin(event, 0), attempts.begin(event, 0)] == [1, 1]
    attempts.failed(event, 1)
    assert attempts.begin(event, 0) == 2
    attempts.failed(event, 2)
    assert attempts.begin(event, 0) == 3
    assert attempts.begin(uuid4(), 0) == 1


def test_what_is_over_is_forgotten() -> None:
    attempts, event = Attempts(), uuid4()
    attempts.failed(event, 5)
    attempts.forget(event)
    attempts.forget(event)
    assert attempts.begin(event, 0) == 1


def test_the_broker_may_have_seen_more() -> None:
    attempts, event = Attempts(), uuid4()
    assert attempts.begin(event, 4) == 4
    attempts.failed(event, 4)
    assert [attempts.begin(event, 1), attempts.begin(event, 9)] == [5, 9]


def test_so_many_are_remembered_the_latest_failures() -> None:
    attempts, events = Attempts(most=2), [uuid4() for _ in range(3)]
    for event in events:
        attempts.failed(event, 7)
    assert [attempts.begin(event, 0) for event in events] == [1, 8, 8]
