"""Where claims begin, by a clock that the test moves."""

import pytest

from relay.outbox.floors import LEAST_SECONDS, RESTART_SECONDS, SHARE, Floors, Look


class Table:
    """An outbox of which only the floors are told: claims take some seconds, and see what the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.floors = Floors(lambda: self.now)
        self.file = 1

    def claim(self, end: int, *open_topics: str, full: bool = False, seconds: float = 0.001) -> int:
        """Claim up to an id; answers with where the claim started."""
        start = self.floors.start(open_topics)
        self.now += seconds
        self.floors.claimed(end, self.file, full=full)
        return start

    def look(self, fresh_safe: int | None, ordered_safe: int | None = None, xid: str | None = "7") -> None:
        """Look for the safe floors, once it is time to."""
        self.now += LEAST_SECONDS
        assert self.floors.question() is not None
        self.floors.answer(Look(xid, fresh_safe, fresh_safe if ordered_safe is None else ordered_safe))


@pytest.fixture
def table() -> Table:
    """Nothing is known of it."""
    return Table()


def drain(table: Table, first: int, last: int) -> list[int]:
    """Full claims of 1,000 rows one after the other; answers with where they started."""
    return [table.claim(end, full=True) for end in range(first, last + 1, 1_000)]


def test_a_drain_goes_on_where_it_was(table: Table) -> None:
    """Each claim starts above the last id that the one before returned."""
    assert drain(table, 1_000, 5_000) == [0, 1_000, 2_000, 3_000, 4_000]
    assert table.floors.fresh == 5_000


def test_a_claim_that_was_not_full_moves_the_floor_to_the_end(table: Table) -> None:
    """Even one that returned nothing, so that an idle relay does not walk over what another publishes."""
    table.claim(10_000)
    assert table.floors.fresh == 10_000


def test_a_drain_sweeps_once_a_second(table: Table) -> None:
    """Short sweeps come no more often; those in between go on."""
    drain(table, 1_000, 900_000)  # 0.9 s
    assert table.claim(901_000, full=True) == 900_000
    table.now += LEAST_SECONDS
    assert table.claim(902_000, full=True) == 0
    assert table.claim(903_000, full=True) == 902_000


def test_a_long_sweep_is_followed_by_the_next_after_twenty_times_as_long(table: Table) -> None:
    """Whatever lies between the floors, sweeps cost one part in twenty."""
    table.claim(1_000, full=True, seconds=0.5)
    table.now += SHARE * 0.5 - 0.1
    assert table.claim(2_000, full=True) == 1_000
    table.now += 0.1
    assert table.claim(3_000, full=True) == 0


def test_an_idle_relay_sweeps_whenever_it_can_be_afforded(table: Table) -> None:
    """What comes late, or becomes free, is found by the next look; a long sweep is waited for all the same."""
    table.claim(1_000, seconds=0.01)
    table.now += 0.25
    assert table.claim(1_000, seconds=0.1) == 0
    table.now += 0.25
    assert table.claim(1_000) == 1_000
    table.now += SHARE * 0.1
    assert table.claim(1_000) == 0


def test_a_sweep_that_is_full_goes_on_from_where_it_ended(table: Table) -> None:
    """It is over once it is where the fast floor had been, and as long as the longest of its claims."""
    drain(table, 1_000, 9_000)
    table.floors.rewind()
    assert table.claim(1_000, full=True) == 0
    assert table.claim(2_000, full=True, seconds=2.0) == 1_000
    assert table.claim(10_000, full=True) == 2_000
    table.now += SHARE * 2.0 - 0.1
    assert table.claim(11_000, full=True) == 10_000
    table.now += 0.1
    assert table.claim(12_000, full=True) == 0


def test_a_rewind_holds_whatever_the_claim_under_way_returns(table: Table) -> None:
    """A wake-up that comes in the middle of a claim is not lost."""
    table.claim(1_000)
    table.floors.start()
    table.floors.rewind()
    table.floors.claimed(2_000, 0, full=False)
    assert table.floors.fresh == 0
    assert table.claim(2_000) == 0


def test_it_says_when_it_starts_from_nothing(table: Table) -> None:
    """So that a relay that sleeps has a claim made then."""
    table.claim(1_000)
    table.now = 400.0
    assert table.floors.restarts_in == RESTART_SECONDS - 300.0
    table.now = 100.0 + RESTART_SECONDS
    assert table.floors.restarts_in == 0.0
    assert table.claim(1_000) == 0
    assert table.floors.restarts_in == pytest.approx(RESTART_SECONDS, abs=0.01)


def test_a_restart_holds_whatever_is_under_way(table: Table) -> None:
    """Neither the claim nor the look that had begun before brings a floor back."""
    table.claim(1_000, full=True)
    table.look(None)
    table.now += LEAST_SECONDS
    assert table.floors.question()
    table.floors.start()
    table.floors.restart()
    table.floors.answer(Look("9", 900, 900))
    table.floors.claimed(2_000, 0, full=True)
    assert (table.floors.fresh, table.floors.fresh_safe, table.floors.ordered_safe) == (0, 0, 0)
    assert table.claim(2_000, full=True) == 0


def test_a_circuit_that_closed_rewinds(table: Table) -> None:
    """Its rows were passed over; those of a topic that is still open stay where they are."""
    table.claim(1_000, "a", "b", full=True, seconds=1.0)
    assert table.claim(2_000, "a", "b", full=True) == 1_000
    assert table.claim(3_000, "b", full=True) == 0


def test_released_rows_come_again_at_once_where_nothing_else_does(table: Table) -> None:
    """In a drain they wait for twenty times as long as a sweep takes; a long sweep is waited for always."""
    table.claim(1_000, full=True, seconds=0.01)
    table.floors.released()
    assert table.claim(2_000, full=True) == 1_000
    assert table.floors.owes
    assert table.claim(2_500) == 2_000
    assert table.claim(2_500) == 0
    assert not table.floors.owes
    table.now += 10
    table.claim(2_500, seconds=1.0)
    table.floors.released()
    assert table.claim(2_500) == 2_500
    table.now += SHARE
    assert table.claim(2_500) == 0


def test_released_rows_do_not_eat_a_drain(table: Table) -> None:
    """Each batch releases rows, and a sweep takes ten times as long as a claim: one claim in two hundred is one."""
    table.claim(1_000, full=True, seconds=0.1)
    starts = []
    for number in range(2, 2_000):
        table.floors.released()
        sweeps = table.floors._sweep_due() <= table.now
        starts.append(table.claim(number * 1_000, full=True, seconds=0.1 if sweeps else 0.01))
    assert 8 <= starts.count(0) <= 11


def test_a_safe_floor_follows_once_older_transactions_have_ended(table: Table) -> None:
    """First an id and a later xid are noted; the floor moves there when nothing older is at work."""
    table.claim(5_000, full=True)
    assert table.floors.question() == {"seen": 0, "xid": None, "fresh_safe": 0, "ordered_safe": 0}
    table.floors.answer(Look("7", None, None))
    table.claim(6_000, full=True)
    assert table.floors.question() is None
    table.now += LEAST_SECONDS
    assert table.floors.question() == {"seen": 5_000, "xid": "7", "fresh_safe": 0, "ordered_safe": 0}
    table.floors.answer(Look("9", 5_000, 4_000))
    assert (table.floors.fresh, table.floors.fresh_safe, table.floors.ordered_safe) == (6_000, 5_000, 4_000)
    table.now += LEAST_SECONDS
    assert table.floors.question() == {"seen": 6_000, "xid": "9", "fresh_safe": 5_000, "ordered_safe": 4_000}


def test_what_is_noted_stays_while_an_older_transaction_is_at_work(table: Table) -> None:
    """A later note would have to wait for later ones too."""
    table.claim(5_000, full=True)
    table.look(None)
    table.claim(9_000, full=True)
    table.look(None, xid=None)
    table.now += LEAST_SECONDS
    question = table.floors.question()
    assert question
    assert (question["seen"], question["xid"]) == (5_000, "7")


def test_an_outbox_in_which_nothing_happens_is_not_looked_at(table: Table) -> None:
    """Both floors are where all that was seen ends."""
    table.claim(5_000)
    table.look(None)
    table.look(5_000)
    table.now += 100
    assert table.floors.question() is None


def test_looks_take_one_part_in_twenty(table: Table) -> None:
    """A look that took long is not repeated each second."""
    table.claim(5_000, full=True)
    assert table.floors.question()
    table.now += 1.0
    table.floors.answer(Look("7", None, None))
    table.now += SHARE - 0.1
    assert table.floors.question() is None
    table.now += 0.1
    assert table.floors.question()


def test_a_sweep_under_way_does_not_stay_behind_the_safe_floor(table: Table) -> None:
    """Nothing is there."""
    drain(table, 1_000, 9_000)
    table.look(None)
    table.floors.rewind()
    table.claim(1_000, full=True)
    table.look(8_000)
    assert table.claim(10_000, full=True) == 8_000


@pytest.mark.parametrize("why", ["time", "truncated", "ids began anew", "connection"])
def test_everything_starts_anew(table: Table, why: str) -> None:
    """After ten minutes, when the table was truncated, when ids are lower than they were, with a connection."""
    table.claim(5_000, full=True)
    table.look(None)
    table.look(4_000)
    if why == "time":
        table.now += RESTART_SECONDS
    elif why == "truncated":
        table.file += 1
        table.claim(6_000, full=True)
    elif why == "ids began anew":
        table.floors.rewind()
        table.claim(3)
        assert table.floors.fresh == 0
    else:
        table.floors.restart()
    assert table.claim(6_000) == 0
    assert (table.floors.fresh_safe, table.floors.ordered_safe) == (0, 0)
    assert table.claim(6_000, full=True) in {0, 6_000}


def test_a_table_that_was_emptied_is_no_reason_to_start_anew_again_and_again(table: Table) -> None:
    """Retention may have removed everything: there is nothing to look for then."""
    table.claim(5_000)
    table.claim(0)
    assert table.floors.fresh == 0
    table.claim(0)
    table.now += LEAST_SECONDS
    assert table.floors.question() is None
    assert table.claim(7_000) == 0
    assert table.floors.fresh == 7_000


def test_a_claim_that_did_not_ask_how_far_the_table_goes_moves_nothing(table: Table) -> None:
    """Behind a full claim nobody asks, and the first that is not full makes the next one ask."""
    drain(table, 1_000, 2_000)
    assert table.floors.busy
    table.floors.claimed(None, table.file, full=False)
    assert (table.floors.busy, table.floors.fresh) == (False, 2_000)


def test_a_sweep_is_not_charged_with_what_was_asked_before_it(table: Table) -> None:
    """In an outage the walk over keys takes long, and the sweep behind it does not."""
    table.floors.start()
    table.now += 5.0
    table.floors.claimed(100, table.file, full=False, seconds_before=4.999)
    table.floors.released()
    table.now += SHARE * 0.002
    assert (table.floors.fresh, table.floors.start()) == (100, 0)
