"""How the messages of ordering keys are cut into requests that follow each other."""

from hypothesis import given
from hypothesis import strategies as st

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.outbox.rows import Claimed
from relay.publisher.message import LARGE_BYTES, Sendable, lanes

LIMITS = RequestLimits(messages=10, size_bytes=5_000)


def row(row_id: int, key: str, *, size: int = 100, attempts: int = 0) -> Sendable:
    """A row with its message."""
    claimed = Claimed(row_id, "", "", "", "", None, b"", None, size, "", attempts, key)
    return claimed, Message(b"", {}, size, key)


def ids(lane: list[list[Sendable]]) -> list[list[int]]:
    """What each request carries."""
    return [[claimed.id for claimed, _ in request] for request in lane]


def cut(rows: list[Sendable], suspects: frozenset[int] = frozenset(), part: int = 3) -> list[list[list[int]]]:
    """The requests of every key."""
    return [ids([list(request) for request in lane]) for lane in lanes(rows, suspects, part, LIMITS)]


def test_a_key_has_a_lane_of_its_own() -> None:
    """Whatever stands between its rows."""
    rows = [row(1, "a"), row(2, "b"), row(3, "a")]
    assert cut(rows) == [[[1, 3]], [[2]]]


def test_a_request_is_as_large_as_the_broker_takes() -> None:
    """In messages and in bytes."""
    assert cut([row(number, "a") for number in range(12)]) == [[list(range(10)), [10, 11]]]
    assert cut([row(number, "a", size=2_000) for number in range(3)]) == [[[0, 1], [2]]]


def test_what_failed_before_is_sent_in_small_parts() -> None:
    """Its place in the key stays."""
    rows = [row(number, "a", attempts=number == 2) for number in range(9)]
    assert cut(rows, frozenset({4, 5, 6, 7})) == [[[0, 1], [2], [3], [4, 5, 6], [7], [8]]]


def test_a_large_message_travels_alone() -> None:
    """And in its turn."""
    assert cut([row(1, "a"), row(2, "a", size=LARGE_BYTES + 1), row(3, "a")]) == [[[1], [2], [3]]]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2_000), st.booleans()), max_size=60),
    st.frozensets(st.integers(0, 60)),
)
def test_cutting_changes_no_order_and_loses_nothing(
    rows: list[tuple[str, int, bool]], suspects: frozenset[int]
) -> None:
    """Each lane is its key's rows, one after the other, in requests that carry one key."""
    given_rows = [row(number, key, size=size, attempts=int(tried)) for number, (key, size, tried) in enumerate(rows)]
    found = cut(given_rows, suspects)
    expected = [
        [n for n, (key, _, _) in enumerate(rows) if key == wanted] for wanted in dict.fromkeys(r[0] for r in rows)
    ]
    assert [[number for request in lane for number in request] for lane in found] == expected
    assert all(request for lane in found for request in lane)
