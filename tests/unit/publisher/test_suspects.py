"""What is remembered of rows that failed among others, and how a topic's share of a batch is cut."""

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.outbox.rows import Claimed
from relay.publisher.delivered import Delivered
from relay.publisher.message import Sendable
from relay.publisher.suspects import SHRINK, SUSPECT_LANES, Suspects

TOPIC = "orders"
LIMITS = RequestLimits(messages=1_000, size_bytes=9_000_000)


def row(row_id: int, key: str | None = None, attempts: int = 0) -> Sendable:
    """A row with its message."""
    claimed = Claimed(row_id, "", "", "", "", None, b"", None, 100, "", attempts, key)
    return claimed, Message(b"", {}, 100, key or "")


def test_keys_with_a_suspect_have_their_turn_some_at_a_time() -> None:
    """What hangs leaves room for others; those that wait stay suspect. They go first: others are their control."""
    rows = [row(number, f"well-{number}") for number in range(5)]
    rows += [row(number, f"sick-{number}", attempts=1) for number in range(100, 160)]
    suspects = Suspects(1_000)
    cut = suspects.cut(TOPIC, rows, LIMITS)
    assert len(cut.lanes) == SUSPECT_LANES + 5
    assert [lane[0][0][0].ordering_key for lane in cut.lanes[-5:]] == [f"well-{number}" for number in range(5)]
    assert len(cut.unsent) == 60 - SUSPECT_LANES


def test_suspects_are_sent_in_smaller_parts_each_time_they_fail_among_others() -> None:
    """An eighth of what they failed in, and an eighth of that."""
    suspects = Suspects(800)
    rows = [row(number) for number in range(800)]
    sizes = []
    for _ in range(4):
        cut = suspects.cut(TOPIC, rows, LIMITS)
        sizes.append(max(map(len, cut.requests)))
        suspects.learn(Delivered(TOPIC, suspects=cut.ids), cut)
    assert sizes == [800, 100, 100 // SHRINK + 1, 2]


def test_a_batch_without_a_suspect_does_not_clear_it() -> None:
    """Its key comes by in another batch."""
    suspects = Suspects(100)
    first = suspects.cut(TOPIC, [row(number, "a") for number in range(50)], LIMITS)
    suspects.learn(Delivered(TOPIC, suspects=first.ids), first)
    between = suspects.cut(TOPIC, [row(100, "b")], LIMITS)
    suspects.learn(Delivered(TOPIC), between)
    again = suspects.cut(TOPIC, [row(number, "a") for number in range(50)], LIMITS)
    assert len(again.lanes[0]) > 1
    suspects.learn(Delivered(TOPIC), again)
    assert len(suspects.cut(TOPIC, [row(number, "a") for number in range(50)], LIMITS).lanes[0]) == 1


def test_a_topic_without_rows_is_forgotten() -> None:
    """Nothing of it is suspect any more."""
    suspects = Suspects(100)
    rows = [row(number) for number in range(50)]
    cut = suspects.cut(TOPIC, rows, LIMITS)
    suspects.learn(Delivered(TOPIC, suspects=cut.ids), cut)
    suspects.forget(TOPIC)
    assert len(suspects.cut(TOPIC, rows, LIMITS).requests) == 1
