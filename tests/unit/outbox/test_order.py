"""What a claim takes of a key, and where the walk over the keys goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.outbox.order import KEYS_A_CLAIM, ROWS_A_KEY, Standing, Visited, Walk, prefix, share


@pytest.mark.parametrize(
    ("standings", "taken"),
    [
        ({}, []),
        ({1: "next", 2: "next", 3: "next"}, [1, 2, 3]),
        ({2: "next", 3: "next"}, []),  # another holds the first
        ({1: "next", 3: "next"}, [1]),
        ({1: "out", 2: "out", 3: "next"}, [3]),
        ({1: "stop", 2: "next"}, []),
        ({1: "next", 2: "stop", 3: "next"}, [1]),
    ],
)
def test_a_key_is_taken_up_to_the_first_row_that_cannot_be_had(
    standings: dict[int, Standing], taken: list[int]
) -> None:
    """Whatever the reason is."""
    assert list(prefix([1, 2, 3], standings)) == taken


@given(
    ids=st.lists(st.integers(1, 50), unique=True).map(sorted),
    standings=st.dictionaries(st.integers(1, 50), st.sampled_from(["next", "out", "stop"])),
)
def test_nothing_is_taken_before_what_waits(ids: list[int], standings: dict[int, Standing]) -> None:
    """Of every row before one that is taken it is known that it is taken too, or out."""
    taken = list(prefix(ids, standings))
    before = ids[: ids.index(taken[-1]) + 1] if taken else []
    assert [row_id for row_id in before if standings.get(row_id) != "out"] == taken


def keys(*counts: int, first: int = 0) -> list[Visited]:
    """Keys that can go on with so many rows each; of one with 0 rows none can."""
    found, rows = [], 0
    for number, ids in enumerate(counts):
        rows += min(ids, ROWS_A_KEY)
        found.append(Visited(f"key-{first + number:04}", rows, list(range(ids))))
    return found


def test_a_walk_that_comes_to_the_end_begins_anew() -> None:
    """All keys were visited, and of each all was read: nothing is left behind."""
    walk = Walk()
    walk.visited(keys(3, 0, 99), 1_000)
    assert (walk.after, walk.unseen, walk.round_ends()) == ("", False, False)


def test_a_walk_that_has_found_enough_goes_on_behind_it() -> None:
    """The last key's name is where the next claim begins."""
    walk = Walk()
    walk.visited(keys(*[100] * 10), 1_000)
    assert (walk.after, walk.unseen) == ("key-0009", True)


def test_a_walk_over_keys_that_cannot_go_on_ends_too() -> None:
    """After so many keys, found or not."""
    walk = Walk()
    walk.visited(keys(*[0] * KEYS_A_CLAIM), 1_000)
    assert walk.unseen


def test_a_round_remembers_what_it_left_behind() -> None:
    """A key with more rows than a claim takes of it has another turn, though the end of the round found nothing."""
    walk = Walk()
    walk.visited(keys(*[100] * 10), 1_000)
    walk.visited(keys(5, first=10), 1_000)
    assert not walk.unseen
    assert walk.round_ends()
    assert not walk.round_ends()


def test_a_key_alone_may_fill_a_claim() -> None:
    """Fewer keys than a claim has room for: each gives more."""
    walk = Walk()
    walk.visited(keys(499, 0), 1_000)
    assert not walk.round_ends()
    walk.visited(keys(1_000), 1_000)
    assert walk.round_ends()


def test_more_rows_than_a_claim_takes_are_left_behind() -> None:
    """The last key may bring more than there is room for."""
    walk = Walk()
    walk.visited(keys(*[99] * 11), 1_000)
    assert walk.left_behind


def test_a_small_claim_takes_less_of_a_key() -> None:
    """Never more than the whole claim."""
    assert (share(50), share(1_000)) == (50, ROWS_A_KEY)
