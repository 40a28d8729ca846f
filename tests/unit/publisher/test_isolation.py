"""The search for the rows at fault, against brokers of every mood and without one."""

from dataclasses import dataclass, field
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from relay.publisher.isolation import Isolation


@dataclass
class Search:
    """What a search of so many rows came to."""

    sent: list[range] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    unresolved: list[int] = field(default_factory=list)


def search(rows: int, poisonous: set[int], *, control: bool = False, away_after: int | None = None) -> Search:
    """Search for the poisonous rows; the broker goes away after so many requests."""
    isolation, found = Isolation(rows, control=control), Search()
    while (part := isolation.next()) is not None:
        found.sent.append(part.rows)
        away = away_after is not None and len(found.sent) > away_after
        if away or poisonous.intersection(part.rows):
            isolation.failed(part)
            found.alone += part.rows if len(part.rows) == 1 else []
        else:
            isolation.taken(part)
            found.taken += part.rows
    found.unresolved = [row for part in isolation.unresolved for row in part]
    return found


rows_and_poison = st.integers(2, 300).flatmap(
    lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1), min_size=1))
)


@given(rows_and_poison)
def test_every_row_is_accounted_for_once(case: tuple[int, set[int]]) -> None:
    """Taken, isolated or unresolved; nothing is lost, and nothing that was taken is sent again."""
    rows, poisonous = case
    found = search(rows, poisonous)
    assert sorted(found.taken + found.alone + found.unresolved) == list(range(rows))
    assert set(found.alone) <= poisonous
    assert not poisonous.intersection(found.taken)


@given(
    st.integers(2, 300).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1), max_size=3)))
)
def test_with_a_control_all_is_found(case: tuple[int, set[int]]) -> None:
    """When the topic is known to take others, exactly the poisonous rows remain, in their order."""
    rows, poisonous = case
    found = search(rows, poisonous, control=True)
    assert found.alone == sorted(poisonous)
    assert found.unresolved == []


@given(st.integers(2, 2_000).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(0, rows - 1))))
def test_one_row_costs_twice_the_depth(case: tuple[int, int]) -> None:
    """It is found, and nobody else, wherever it stands."""
    rows, poison = case
    found = search(rows, {poison})
    assert found.alone == [poison]
    assert found.unresolved == []
    assert len(found.sent) <= 2 * ceil(log2(rows))


def test_one_row_in_a_thousand_costs_twenty_requests() -> None:
    """Wherever it stands, and including the one that makes sure."""
    assert max(len(search(1_000, {poison}).sent) for poison in range(1_000)) + 1 <= 20


def test_a_blip_costs_two_requests() -> None:
    """Both halves of a request of which nothing is at fault are taken."""
    assert len(search(1_000, set()).sent) == 2


@given(st.integers(2, 10_000))
def test_an_outage_costs_twice_the_depth_too(rows: int) -> None:
    """When nothing is taken the search gives up, and leaves all but the first rows unresolved."""
    found = search(rows, set(range(rows)))
    assert found.taken == []
    assert len(found.alone) <= 3
    assert len(found.sent) <= 2 * ceil(log2(rows))


@given(st.integers(2, 1_000), st.integers(1, 30))
def test_an_outage_that_begins_meanwhile_ends_the_search(rows: int, requests: int) -> None:
    """What was taken until then is known; the rest is left after a bounded number of failures."""
    found = search(rows, {rows - 1}, away_after=requests)
    successes = [number for number, part in enumerate(found.sent, 1) if set(part) <= set(found.taken)]
    assert len(found.sent) - max(successes, default=0) <= 2 * ceil(log2(rows)) + 3
    assert sorted(found.taken + found.alone + found.unresolved) == list(range(rows))
