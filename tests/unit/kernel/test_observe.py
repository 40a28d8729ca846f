"""Listeners that break their promise."""

import logging

import pytest

from relay.kernel.observe import PassSkipped, to_all


def test_a_listener_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The work goes on, the other listeners hear the event, and the fault is logged with its cause."""
    heard: list[object] = []

    def broken(_: object) -> None:
        raise OSError(28, "No space left on device")

    event = PassSkipped("work")
    to_all(heard.append, broken, heard.append)(event)

    assert heard == [event, event]
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "a listener failed on PassSkipped")
    assert record.exc_info
    assert isinstance(record.exc_info[1], OSError)
