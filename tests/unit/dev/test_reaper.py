"""The orders that the reaper follows."""

from relay.dev.reaper import follow


def test_a_process_that_ended_is_left_alone() -> None:
    """Its number may belong to another process by then."""
    assert follow(["+ 11 3\n", "+ 12 15\n", "- 11\n", "- 13\n"]) == {12: 15}


def test_orders_end_with_the_owner() -> None:
    """What a fork of the owner might still write is not an order."""
    assert follow(["+ 11 3\n", "end\n", "+ 12 15\n"]) == {11: 3}
