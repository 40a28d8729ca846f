"""Events with an ordering key: first deliveries in commit order, whatever fails, whoever else is at work."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from relay import emit
from relay.envelope import Message
from relay.errors import BrokerError
from relay.failed_head import FailedHead
from relay.kernel.backoff import Retry
from relay.kernel.runner import Next, Report
from relay.outbox.actions import Operator
from relay.outbox.failed import Action, FailedRows, Named
from relay.publisher.delivery import LANES_AT_ONCE
from relay.publisher.events import KeyRests, RowFailed, TopicOpened
from relay.publisher.failures import Attempts
from relay.routes import Routes
from tests.support.bench import Bench
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count, event

ONE_ATTEMPT = Attempts(1, Retry(5, 120, 0))


def deliveries(bench: Bench) -> dict[str, list[int]]:
    """What the broker took, by key: the numbers of the events."""
    taken: dict[str, list[int]] = defaultdict(list)
    for _, messages in bench.broker.requests:
        for message in messages:
            taken[message.ordering_key].append(int(message.attributes["aggregate_id"]))
    return dict(taken)


def poison(numbers: set[int], code: str) -> Callable[[Message], Exception | None]:
    """Refuse the events of these numbers."""
    return lambda message: BrokerError(code, "no") if int(message.attributes["aggregate_id"]) in numbers else None


async def act(bench: Bench, action: Action, number: int) -> None:
    """An operator retries or discards a failed event."""
    connection = await psycopg.AsyncConnection.connect(bench.url, autocommit=True)
    try:
        rows = FailedRows(connection, "public", Routes("domain-events").as_parameters)
        ((row_id,),) = bench.query(f"select id from outbox_events where aggregate_id = '{number}'")  # noqa: S608
        _, action_id, _ = await rows.start()
        chosen = await rows.named(Named([row_id], []))
        assert await rows.act(action, chosen, Operator("ann", "why not"), action_id)
    finally:
        await connection.close()


async def test_a_key_goes_out_in_its_order_and_with_its_key(bench: Bench) -> None:
    """One request for each key, not for each event; what has no key travels beside it."""
    for number in range(0, 60, 3):
        bench.emit(number, ordering_key="a")
        bench.emit(number + 1, ordering_key="b")
        bench.emit(number + 2)
    report = await bench.run_once()
    assert report.updated == 60
    assert report.next is Next.IDLE
    taken = deliveries(bench)
    assert taken["a"] == list(range(0, 60, 3))
    assert taken["b"] == list(range(1, 60, 3))
    assert sorted(taken[""]) == list(range(2, 60, 3))
    assert len(bench.broker.requests) == 3


async def test_a_deep_backlog_is_claimed_by_key(bench: Bench) -> None:
    """Every key's rows in long requests, key after key, in rounds until nothing is left."""
    relay = bench.publisher_on(bench.outbox, batch_size=100)
    for key in range(7):
        bench.emit(*range(key * 1_000, key * 1_000 + 130), ordering_key=f"key-{key}")
    report = await bench.run_once(relay)
    assert report.updated == 7 * 130
    assert deliveries(bench) == {f"key-{key}": list(range(key * 1_000, key * 1_000 + 130)) for key in range(7)}
    assert len(bench.broker.requests) <= 7 * 2 + 2  # some keys are cut where a batch ends


async def test_many_keys_with_one_row_each_are_one_batch(bench: Bench) -> None:
    """The keys' requests go out side by side, a bounded number at once."""
    with psycopg.connect(bench.url) as connection:
        emit(connection, [event(number, ordering_key=f"key-{number}") for number in range(2_500)])
    relay = bench.publisher_on(bench.outbox, batch_size=1_000)
    under_way: list[int] = []
    most = 0
    publish = bench.broker.publish

    async def slowly(topic: str, messages: Any, seconds: float) -> Any:
        nonlocal most
        under_way.append(1)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.pop()
        return await publish(topic, messages, seconds)

    bench.broker.publish = slowly  # type: ignore[method-assign]
    assert (await bench.run_once(relay)).updated == 2_500
    assert most == LANES_AT_ONCE
    assert count(bench.url, PENDING) == 0


async def test_a_row_in_backoff_holds_up_its_key_and_no_other(bench: Bench) -> None:
    """The rows before it are out, those behind it wait for it; then they go on in order."""
    bench.emit(*range(10), ordering_key="sick")
    bench.emit(*range(100, 110), ordering_key="well")
    bench.broker.poisoned = poison({4}, "INTERNAL")
    await bench.run_once()
    assert deliveries(bench) == {"sick": [0, 1, 2, 3], "well": list(range(100, 110))}
    assert bench.attempts() == [(4, 1, "INTERNAL")]
    bench.emit(10, ordering_key="sick")
    assert (await bench.run_once()).processed == 0
    bench.broker.poisoned = lambda _: None
    bench.make_due()
    await bench.run_once()
    assert deliveries(bench)["sick"] == list(range(11))


@pytest.mark.parametrize("place", [0, 1, 7, 49, 98, 99])
@pytest.mark.parametrize("code", ["INTERNAL", "INVALID_ARGUMENT"])
async def test_the_row_at_fault_is_found_wherever_it_stands(bench: Bench, place: int, code: str) -> None:
    """What stands before it goes out once, what stands behind it is never sent; a few requests find it."""
    bench.emit(*range(100), ordering_key="k")
    bench.emit(1_000)  # the topic takes others
    sent: list[int] = []

    def poisoned(message: Message) -> Exception | None:
        number = int(message.attributes["aggregate_id"])
        sent.append(number)
        return BrokerError(code, "no") if number == place else None

    bench.broker.poisoned = poisoned
    await bench.run_once()
    assert [row[:2] for row in bench.attempts()] == [(place, 1)]
    assert deliveries(bench).get("k", []) == list(range(place))
    assert len(sent) < 700
    assert len(bench.broker.asked) <= 12  # halves, and not one row after the other


async def test_without_any_other_message_nobody_pays_for_the_first_row(bench: Bench) -> None:
    """A head that fails alone in its topic cannot be told from a sick topic: what is behind it is no control."""
    bench.emit(*range(5), ordering_key="k")
    bench.broker.poisoned = poison({0}, "INTERNAL")
    await bench.run_once()
    assert bench.attempts() == []
    assert deliveries(bench) == {}
    assert [type(seen) for seen in bench.seen if isinstance(seen, TopicOpened)] == [TopicOpened]


async def test_rows_before_it_speak_against_a_row(bench: Bench) -> None:
    """The only key of a topic: those that had failed together with the row were taken without it."""
    bench.emit(*range(8), ordering_key="k")
    bench.broker.poisoned = poison({5}, "INTERNAL")
    await bench.run_once()
    assert bench.attempts() == [(5, 1, "INTERNAL")]
    assert deliveries(bench) == {"k": [0, 1, 2, 3, 4]}


async def test_another_key_is_a_control(bench: Bench) -> None:
    """The first row of a further key, where nothing without a key is there."""
    relay = bench.publisher_on(bench.outbox, batch_size=10)
    bench.emit(*range(10), ordering_key="a")
    bench.emit(*range(100, 105), ordering_key="b")
    bench.broker.poisoned = poison({0}, "INTERNAL")
    await bench.run_once(relay)
    assert bench.attempts() == [(0, 1, "INTERNAL")]
    assert deliveries(bench) == {"b": [100, 101, 102, 103, 104]}


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND"])
async def test_an_outage_costs_no_row_of_a_key(bench: Bench, code: str) -> None:
    """A hundred passes in vain, a few requests each, and the table is as it was."""
    for key in range(20):
        bench.emit(*range(key * 100, key * 100 + 10), ordering_key=f"key-{key}")
    bench.broker.refuse = lambda _: BrokerError(code, "away")
    before = bench.query("select xmin::text, ctid::text from outbox_events order by id")
    await bench.run_once()
    first = len(bench.broker.asked)
    assert first <= 20 + 2  # two keys are searched, the others are not
    for _ in range(100):
        bench.later += 10.25
        await bench.run_once()
    assert bench.query("select xmin::text, ctid::text from outbox_events order by id") == before
    assert len([seen for seen in bench.seen if isinstance(seen, TopicOpened)]) == 1
    assert {messages for _, messages in bench.broker.asked[first:]} == {1}
    assert len(bench.broker.asked) - first <= 300

    bench.broker.refuse = lambda _: None
    bench.later += 10.25
    await bench.run_once()
    assert deliveries(bench) == {f"key-{key}": list(range(key * 100, key * 100 + 10)) for key in range(20)}


async def test_a_key_that_is_too_fast_rests(bench: Bench) -> None:
    """Nobody pays: the key is left alone for a moment, the others are not."""
    bench.emit(*range(5), ordering_key="hot")
    bench.emit(*range(100, 105), ordering_key="cold")
    bench.emit(200)
    bench.broker.poisoned = lambda message: (
        BrokerError("RESOURCE_EXHAUSTED", "1 MB/s") if message.ordering_key == "hot" else None
    )
    await bench.run_once()
    assert deliveries(bench) == {"cold": [100, 101, 102, 103, 104], "": [200]}
    assert count(bench.url, "attempt_count > 0") == 0
    assert bench.query("select last_error_code from outbox_events where aggregate_id = '0'") == [
        ("RESOURCE_EXHAUSTED",)
    ]
    (rests,) = [seen for seen in bench.seen if isinstance(seen, KeyRests)]
    assert (rests.row.ordering_key, rests.delay_seconds) == ("hot", 1.0)
    bench.broker.poisoned = lambda _: None
    bench.make_due()
    await bench.run_once()
    assert deliveries(bench)["hot"] == [0, 1, 2, 3, 4]


async def test_a_failed_row_blocks_its_key_until_it_is_retried(bench: Bench) -> None:
    """Later rows wait, also those that come later; after the retry the key resumes in its order."""
    relay = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT)
    bench.emit(*range(5), ordering_key="k")
    bench.emit(100)
    bench.broker.poisoned = poison({2}, "INTERNAL")
    await bench.run_once(relay)
    (failed,) = [seen for seen in bench.seen if isinstance(seen, RowFailed)]
    assert (failed.row.aggregate_id, failed.reason, failed.blocks_key) == ("2", "max_attempts", True)
    bench.emit(5, ordering_key="k")
    bench.broker.poisoned = lambda _: None
    assert (await bench.run_once(relay)).processed == 0
    assert deliveries(bench)["k"] == [0, 1]
    await act(bench, Action.RETRY, 2)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [0, 1, 2, 3, 4, 5]


async def test_discarding_the_failed_row_releases_its_key(bench: Bench) -> None:
    """The row is given up; what waited behind it goes out."""
    relay = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT)
    bench.emit(*range(5), ordering_key="k")
    bench.emit(100)
    bench.broker.poisoned = poison({0}, "INVALID_ARGUMENT")
    await bench.run_once(relay)
    assert "k" not in deliveries(bench)
    await act(bench, Action.DISCARD, 0)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 2, 3, 4]


async def test_a_type_that_skips_does_not_hold_up_its_key(bench: Bench) -> None:
    """The policy is that of the failed row's type; a retry of it is out of order, and is sent."""
    relay = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT, failed_head=FailedHead.parse("order.note=skip"))
    bench.emit(0, ordering_key="k", event_type="order.note")
    bench.emit(1, 2, ordering_key="k")
    bench.emit(100)
    bench.broker.poisoned = poison({0, 2}, "INVALID_ARGUMENT")
    await bench.run_once(relay)
    await bench.run_once(relay)
    bench.emit(3, ordering_key="k")
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1]
    assert bench.query(
        "select aggregate_id, blocks_key from outbox_events where failed_at is not null order by id"
    ) == [
        ("0", False),
        ("2", True),
    ]
    bench.broker.poisoned = lambda _: None
    await act(bench, Action.RETRY, 0)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 0]
    await act(bench, Action.RETRY, 2)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 0, 2, 3]


async def test_relays_with_different_settings_agree(bench: Bench) -> None:
    """What the relay that failed the row decided is in the row: another that would skip waits too."""
    blocking = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT)
    outbox = bench.open_outbox()
    skipping = bench.publisher_on(outbox, attempts=ONE_ATTEMPT, failed_head=FailedHead.parse("skip"))
    bench.emit(0, 1, ordering_key="k")
    bench.emit(100)
    bench.broker.poisoned = poison({0}, "INTERNAL")
    await bench.run_once(blocking)
    assert (await bench.run_once(skipping)).processed == 0
    assert "k" not in deliveries(bench)
    await outbox.close()


async def test_a_locked_row_holds_up_its_key(bench: Bench) -> None:
    """Whoever holds it: what stands before it goes out, what stands behind it waits."""
    bench.emit(*range(6), ordering_key="k")
    with psycopg.connect(bench.url) as operator:
        operator.execute("select from outbox_events where aggregate_id = '3' for update")
        await bench.run_once()
        assert deliveries(bench) == {"k": [0, 1, 2]}
        assert (await bench.run_once()).processed == 0
        operator.rollback()
    await bench.run_once()
    assert deliveries(bench) == {"k": [0, 1, 2, 3, 4, 5]}


async def test_two_relays_never_share_a_key(bench: Bench) -> None:
    """While one publishes a key, another that visits it gets none of it; new rows of it included."""
    bench.emit(*range(4), ordering_key="k")
    other_outbox = bench.open_outbox()
    other = bench.publisher_on(other_outbox)
    reports: list[Report] = []
    publish = bench.broker.publish

    async def meanwhile(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        bench.broker.publish = publish  # type: ignore[method-assign]
        bench.emit(4, ordering_key="k")
        reports.append(await bench.run_once(other))
        return await publish(topic, messages, seconds)

    bench.broker.publish = meanwhile  # type: ignore[method-assign]
    await bench.run_once()
    assert [report.processed for report in reports] == [0]
    await bench.run_once(other)
    assert deliveries(bench) == {"k": [0, 1, 2, 3, 4]}
    assert count(bench.url, PUBLISHED) == 5
    await other_outbox.close()


async def test_a_message_that_cannot_be_built_stops_its_key(bench: Bench) -> None:
    """It fails for good by itself; the rows before it go out, those behind it wait."""
    bench.emit(*range(5), ordering_key="k")
    bench.query("""update outbox_events set attributes = '{"googwhat": "x"}' where aggregate_id = '2' returning 1""")
    await bench.run_once()
    assert deliveries(bench) == {"k": [0, 1]}
    assert bench.query("select aggregate_id, blocks_key from outbox_events where failed_at is not null") == [
        ("2", True)
    ]
    await act(bench, Action.DISCARD, 2)
    await bench.run_once()
    assert deliveries(bench) == {"k": [0, 1, 3, 4]}


async def test_a_key_keeps_its_order_across_topics(bench: Bench) -> None:
    """A key whose types are routed to two topics: each part waits for the one before it."""
    relay = bench.publisher_on(bench.outbox, routes=Routes.parse("note.*=notes", "domain-events"))
    for number in range(9):
        bench.emit(number, ordering_key="k", event_type="note.made" if number % 3 == 2 else "order.paid")
    report = await bench.run_once(relay)
    assert report.updated == 9
    assert deliveries(bench) == {"k": list(range(9))}
    assert [(topic, len(messages)) for topic, messages in bench.broker.requests] == [
        ("domain-events", 2),
        ("notes", 1),
    ] * 3

    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "away") if topic == "notes" else None
    for number in range(9, 15):
        bench.emit(number, ordering_key="k", event_type="note.made" if number % 3 == 2 else "order.paid")
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == list(range(11))
    bench.broker.refuse = lambda _: None
    bench.later += 11
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == list(range(15))


async def test_keys_behind_many_that_are_held_up_are_reached_at_once(bench: Bench) -> None:
    """More blocked keys than one claim visits: the walk goes on behind them in the same pass."""
    with psycopg.connect(bench.url) as connection:
        emit(connection, [event(number, ordering_key=f"blocked-{number:05}") for number in range(2_300)])
        connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = 'max_attempts', blocks_key = true"
        )
    bench.emit(9_000, ordering_key="zz")
    report = await bench.run_once()
    assert deliveries(bench) == {"zz": [9_000]}
    assert report.next is Next.IDLE
    assert count(bench.url, FAILED) == 2_300


async def test_a_request_that_hangs_is_searched_in_smaller_parts_pass_after_pass(bench: Bench) -> None:
    """No pass has time for the whole search; each begins where the one before has come to."""
    bench.emit(*range(100), ordering_key="k")
    relay = bench.publisher_on(
        bench.outbox, attempts=Attempts(2, Retry(5, 120, 0)), publish_seconds=15.0, batch_size=100
    )

    def hangs(message: Message) -> Exception | None:
        if message.attributes["aggregate_id"] != "60":
            return None
        bench.later += 4.7
        return BrokerError("DEADLINE_EXCEEDED", "hangs")

    bench.broker.poisoned = hangs
    for number in range(12):
        bench.emit(1_000 + number)
        await bench.run_once(relay)
        bench.later += 11
        if bench.attempts():
            break
    assert bench.attempts() == [(60, 1, "DEADLINE_EXCEEDED")]
    assert deliveries(bench)["k"] == list(range(60))


async def test_what_is_held_up_asks_for_no_further_pass(bench: Bench) -> None:
    """A deep key whose first row, or one in its middle, is held by somebody: the relay is idle, and not backing off."""
    relay = bench.publisher_on(bench.outbox, batch_size=100)
    bench.emit(*range(200), ordering_key="first")
    bench.emit(*range(300, 500), ordering_key="middle")
    with psycopg.connect(bench.url) as operator:
        operator.execute("select from outbox_events where aggregate_id in ('0', '350') for update")
        reports = [await bench.run_once(relay) for _ in range(3)]
        assert deliveries(bench) == {"middle": list(range(300, 350))}
        assert [report.next for report in reports] == [Next.IDLE] * 3


async def test_large_rows_of_a_key_that_is_held_up_take_no_room(bench: Bench) -> None:
    """Behind a row that somebody holds stands more than a claim may take in bytes: other keys go out."""
    bench.emit(0, ordering_key="a")
    bench.emit(*range(1, 6), ordering_key="a", data="x" * 1_000_000)
    bench.emit(*range(10, 20), ordering_key="b")
    with psycopg.connect(bench.url) as operator:
        operator.execute("select from outbox_events where aggregate_id = '0' for update")
        await bench.run_once()
        assert deliveries(bench) == {"b": list(range(10, 20))}
    await bench.run_once()
    assert deliveries(bench)["a"] == list(range(6))


async def test_a_key_of_large_rows_does_not_starve_the_others(bench: Bench) -> None:
    """A claim is full with the key that comes first; the next claim begins with those for which there was no room."""
    bench.emit(*range(20), ordering_key="a", data="x" * 1_000_000)
    for number in range(100, 110):
        bench.emit(number, ordering_key=f"b-{number}")
    await bench.run_once()
    sent = [message.ordering_key for _, messages in bench.broker.requests for message in messages]
    assert sent.index("b-100") <= 5
    assert deliveries(bench)["a"] == list(range(20))


async def test_a_topic_behind_many_keys_of_others_is_asked_again(bench: Bench) -> None:
    """Its only key stands behind more blocked keys than one look visits, and its circuit is open."""
    relay = bench.publisher_on(bench.outbox, routes=Routes.parse("note.*=notes", "domain-events"))
    with psycopg.connect(bench.url) as connection:
        emit(connection, [event(number, ordering_key=f"blocked-{number:05}") for number in range(1_100)])
        connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = 'max_attempts', blocks_key = true"
        )
    bench.emit(9_000, ordering_key="zz", event_type="note.made")
    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "a blip") if topic == "notes" else None
    await bench.run_once(relay)
    bench.broker.refuse = lambda _: None
    for _ in range(3):
        bench.later += 10.25
        await bench.run_once(relay)
    assert deliveries(bench) == {"zz": [9_000]}


async def test_probes_look_on_behind_keys_that_are_held(bench: Bench) -> None:
    """Somebody holds the first rows of the first keys: the topic is asked with those of others."""
    for number in range(20):
        bench.emit(number, ordering_key=f"key-{number:02}")
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "a blip")
    await bench.run_once()
    bench.broker.refuse = lambda _: None
    with psycopg.connect(bench.url) as operator:
        operator.execute("select from outbox_events where aggregate_id::int < 3 for update")
        for _ in range(2):
            bench.later += 10.25
            await bench.run_once()
        assert len(deliveries(bench)) == 17


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INVALID_ARGUMENT"])
async def test_an_outage_that_begins_among_many_keys_charges_one_row_at_most(bench: Bench, code: str) -> None:
    """Some requests in flight fail, the next is taken, and then nothing is: that is no proof against the first."""
    for key in range(20):
        bench.emit(*range(key * 100, key * 100 + 5), ordering_key=f"key-{key:02}")
    bench.emit(*range(5_000, 5_200))
    requests = 0

    def refuse(_: str) -> Exception | None:
        nonlocal requests
        requests += 1
        return None if requests == 21 else BrokerError(code, "away")

    bench.broker.refuse = refuse
    relay = bench.publisher_on(bench.outbox, batch_size=100)
    for _ in range(20):
        await bench.run_once(relay)
        bench.later += 10.25
    assert bench.attempts() == []
    assert count(bench.url, FAILED) == 0


async def test_many_bad_rows_at_the_head_of_their_keys_pay_with_one_control(bench: Bench) -> None:
    """Thirty keys whose first rows are refused, and healthy traffic beside them."""
    for key in range(30):
        bench.emit(*range(key * 100, key * 100 + 2), ordering_key=f"key-{key:02}")
    bench.emit(*range(5_000, 5_300))
    bench.broker.poisoned = poison({key * 100 for key in range(30)}, "INVALID_ARGUMENT")
    await bench.run_once()
    await bench.run_once()
    assert count(bench.url, FAILED) == 30
    assert count(bench.url, PUBLISHED) == 300


async def test_rows_that_cannot_be_built_and_skip_are_passed_in_one_batch(bench: Bench) -> None:
    """However many of them stand before the next good one."""
    relay = bench.publisher_on(bench.outbox, failed_head=FailedHead.parse("skip"))
    bench.emit(*range(50), ordering_key="k")
    bench.query("""update outbox_events set attributes = '{"googwhat": "x"}' where aggregate_id <> '49' returning 1""")
    report = await bench.run_once(relay)
    assert (report.processed, deliveries(bench)) == (50, {"k": [49]})
    assert count(bench.url, FAILED) == 49


async def test_a_probe_in_vain_at_the_last_key_begins_anew(bench: Bench) -> None:
    """As many keys as a probe asks: the next one looks beyond the last, and then at the first again."""
    for number in range(3):
        bench.emit(number, ordering_key=f"key-{number}")
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "a blip")
    await bench.run_once()
    for _ in range(3):
        bench.later += 10.25
        await bench.run_once()
    bench.broker.refuse = lambda _: None
    for _ in range(2):
        bench.later += 10.25
        await bench.run_once()
    assert count(bench.url, PUBLISHED) == 3


async def test_probes_come_to_keys_though_rows_without_one_wait(bench: Bench) -> None:
    """Refused rows without a key have opened the topic; then there are healthy ones with keys alone."""
    bench.emit(*range(300))
    bench.broker.poisoned = poison(set(range(300)), "INTERNAL")
    await bench.run_once()
    for number in range(1_000, 1_020):
        bench.emit(number, ordering_key=f"key-{number}")
    for _ in range(3):
        bench.later += 10.25
        await bench.run_once()
    assert len(deliveries(bench)) == 20


async def test_a_probe_asks_the_newest_key(bench: Bench) -> None:
    """Three hundred keys whose first rows are refused: an event of a healthy one is not their prisoner."""
    for number in range(300):
        bench.emit(number, ordering_key=f"bad-{number}")
    bench.broker.poisoned = poison(set(range(300)), "INTERNAL")
    await bench.run_once()
    bench.emit(1_000, ordering_key="c")
    for _ in range(2):
        bench.later += 10.25
        await bench.run_once()
    assert deliveries(bench)["c"] == [1_000]


async def test_a_row_that_hangs_is_found_among_more_keys_than_a_batch(bench: Bench) -> None:
    """Its key comes by in one batch of several; what is known of it is kept until then."""
    once = Attempts(25, Retry(600, 600, 0))  # it is not tried again meanwhile, however slow the machine is
    relay = bench.publisher_on(bench.outbox, publish_seconds=15.0, batch_size=100, attempts=once)
    bench.emit(*range(80), ordering_key="a")

    def hangs(message: Message) -> Exception | None:
        if message.attributes["aggregate_id"] != "10":
            return None
        bench.later += 4.7
        return BrokerError("DEADLINE_EXCEEDED", "hangs")

    bench.broker.poisoned = hangs
    for number in range(6):
        for key in range(150):
            bench.emit(1_000 + number, ordering_key=f"b-{key:03}")
        await bench.run_once(relay, seconds=60)
    assert bench.attempts() == [(10, 1, "DEADLINE_EXCEEDED")]
    assert deliveries(bench)["a"] == list(range(10))


async def test_a_key_that_is_too_fast_rests_also_when_that_shows_later(bench: Bench) -> None:
    """Its request met a blip; its parts are answered that the key is too fast."""
    bench.emit(*range(8), ordering_key="a-hot")
    bench.emit(*range(100, 108), ordering_key="cold")
    hot = 0

    def poisoned(message: Message) -> Exception | None:
        nonlocal hot
        if message.ordering_key != "a-hot":
            return None
        hot += 1
        return BrokerError("UNAVAILABLE" if hot <= 8 else "RESOURCE_EXHAUSTED", "no")

    bench.broker.poisoned = poisoned
    await bench.run_once()
    assert [type(seen) for seen in bench.seen if isinstance(seen, KeyRests | TopicOpened)] == [KeyRests]
    assert deliveries(bench) == {"cold": list(range(100, 108))}


async def test_a_row_that_was_put_back_holds_up_its_key_below_any_floor(bench: Bench) -> None:
    """It failed, its key went on without it, floors passed it; then it was retried, and failed anew, and blocks."""
    relay = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT)
    bench.emit(*range(3), ordering_key="k")
    bench.emit(*range(100, 110))
    bench.broker.poisoned = poison({0}, "INTERNAL")
    await bench.run_once(relay)
    await act(bench, Action.DISCARD, 0)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 2]
    bench.outbox.floors.ordered_safe = bench.outbox.floors.fresh_safe = 12  # as they are a while later
    await act(bench, Action.RETRY, 0)
    other_outbox = bench.open_outbox()
    bench.emit(*range(200, 210))
    await bench.run_once(bench.publisher_on(other_outbox, attempts=ONE_ATTEMPT))
    assert bench.query("select blocks_key from outbox_events where aggregate_id = '0'") == [(True,)]
    bench.emit(3, ordering_key="k")
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 2]
    bench.broker.poisoned = lambda _: None
    await act(bench, Action.RETRY, 0)
    await bench.run_once(relay)
    assert deliveries(bench)["k"] == [1, 2, 0, 3]
    await other_outbox.close()
