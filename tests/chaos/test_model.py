"""Everything at once, in any order: writers, relays that die anywhere, a broker with moods, an operator.

Hypothesis looks for a sequence of steps after which an event is lost, goes out twice for no reason or before an earlier
one of its key, or pays for what others have done. What must hold is in `tests/support/ledger.py`, what may happen in
`steps.py` and who does it in `actors.py` and `writers.py` there. `CHAOS=full` looks for longer, and at random.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as look_for_trouble
from psycopg import IsolationLevel

from relay.failed_head import FailedHead
from relay.kernel.backoff import Delay, Retry
from relay.outbox.failed import Action
from relay.publisher import crash_points, failures
from relay.publisher.failures import Attempts
from relay.routes import Routes
from tests.support.actors import Clock, Desk, MoodyBroker, Relay, Trouble, reached
from tests.support.chaos import FULL, sized
from tests.support.ledger import Ledger
from tests.support.policies import policy
from tests.support.roles_of_tests import acting_as_emitter
from tests.support.steps import (
    CHANGES,
    ENDINGS,
    HEADS,
    MEANWHILE,
    OPERATIONS,
    SECONDS,
    SPECS,
    THIRD,
    Change,
    Deed,
    Mishap,
)
from tests.support.writers import Spec, Writer

ROUTES = Routes.parse("note.*=notes", "domain-events")
RELAYS = 3
WRITERS = 3
# So late that nothing is due by itself.
NEVER = 100_000.0
# By then every circuit has been tried, whatever it has waited for.
ROUNDS = 12


class Model(RuleBasedStateMachine):
    """The steps."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        with psycopg.connect(self.url) as connection:
            connection.execute("truncate outbox_events, outbox_actions restart identity")
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.ledger = Ledger(self.url)
        self.broker = MoodyBroker(self.ledger)
        self.desk = Desk(self.url, ROUTES.as_parameters, self.ledger)
        self.writers: list[Writer] = []
        for _ in range(WRITERS):
            self.writers.append(Writer(psycopg.connect(acting_as_emitter(self.url)), self.ledger, ROUTES, self.writers))
        self.relays: list[Relay] = []
        self.broken = False

    @initialize(
        batch_size=st.sampled_from([2, 3, 5, 20]),
        most=st.integers(1, 3),
        heads=st.lists(st.sampled_from(HEADS), min_size=RELAYS, max_size=RELAYS),
    )
    def start(self, batch_size: int, most: int, heads: list[str]) -> None:
        """Relays of one table need not have the same settings."""
        self.ledger.heads = [FailedHead.parse(head) for head in heads]
        for head in self.ledger.heads:
            values = policy(
                routes=ROUTES,
                batch_size=batch_size,
                attempts=Attempts(most, Retry(NEVER, NEVER, 0)),
                outage=Delay(0.5, 10, 0),
                failed_head=head,
            )
            self.relays.append(Relay(self.url, self.broker, values, self.ledger, self.clock))

    @rule(
        which=THIRD,
        specs=SPECS,
        bulk=st.booleans(),
        bold=st.sampled_from([False, False, True]),
        isolation=st.sampled_from([IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ]),
    )
    def emit(self, which: int, specs: list[Spec], *, bulk: bool, bold: bool, isolation: IsolationLevel) -> None:
        """A service emits, and has not committed."""
        if not self.writers[which].open:
            self.writers[which].begin(isolation)
        self.writers[which].emit(specs, bulk=bulk, bold=bold)

    @precondition(lambda self: any(writer.open for writer in self.writers))
    @rule(which=THIRD, commit=st.sampled_from([True, True, False]))
    def end(self, which: int, commit: bool) -> None:  # noqa: FBT001
        """A service ends its transaction."""
        still = [writer for writer in self.writers if writer.open]
        still[which % len(still)].end(commit=commit)

    @rule(which=THIRD, specs=SPECS)
    def store(self, which: int, specs: list[Spec]) -> None:
        """A service emits and commits."""
        self.wait_for(self.done(Deed("store", which, specs)))

    @rule(which=THIRD, seconds=SECONDS)
    def run(self, which: int, seconds: float) -> None:
        """A relay makes a pass."""
        self.run_into(which, seconds, [])

    @rule(which=THIRD, specs=SPECS, seconds=SECONDS, first=MEANWHILE, then=st.none() | MEANWHILE)
    def run_beside_others(
        self, which: int, specs: list[Spec], seconds: float, first: Mishap, then: Mishap | None
    ) -> None:
        """A relay makes a pass with something to do, in the middle of which others do something."""
        self.wait_for(self.done(Deed("store", which, specs)))
        self.run_into(which, seconds, [each for each in (first, then) if each])

    @rule(which=THIRD, specs=SPECS, seconds=SECONDS, last=ENDINGS, first=st.none() | MEANWHILE)
    def run_to_death(self, which: int, specs: list[Spec], seconds: float, last: Mishap, first: Mishap | None) -> None:
        """A relay dies in the middle of a pass, or does not learn that it has committed."""
        self.wait_for(self.done(Deed("store", which, specs)))
        self.run_into(which, seconds, [each for each in (first, last) if each])

    @rule(change=CHANGES)
    def change(self, change: Change) -> None:
        """The broker has another mood from now on."""
        match change.what:
            case "refuse":
                self.broker.refused |= dict.fromkeys(change.topics, change.code)
            case "recover":
                self.broker.refused.clear()
            case "throttle":
                self.broker.throttled ^= {change.key}
            case "lose":
                self.broker.losing = 1
            case "heal":
                for known in self.ledger.events.values():
                    known.sick = None
            case _:
                raise AssertionError(change)

    @rule(deed=OPERATIONS)
    def operate(self, deed: Deed) -> None:
        """Somebody looks after the outbox."""
        self.wait_for(self.done(deed))

    @rule(seconds=st.sampled_from([0.6, 20.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.now += seconds

    @invariant()
    def nothing_is_wrong(self) -> None:
        """After each step."""
        try:
            self.ledger.check()
        except AssertionError:
            self.broken = True
            raise

    def teardown(self) -> None:
        """All is well again: all goes out but what failed, and what is behind it; and so it is when that is retried."""
        try:
            if self.relays and not self.broken:
                self.drain()
                for remainder in range(3):
                    self.wait_for(self.desk.act(Action.RETRY, remainder))
                self.drain()
                self.ledger.check()
        finally:
            for relay in self.relays:
                self.runner.run(relay.close())
            for writer in self.writers:
                writer.connection.close()
            self.desk.close()
            self.ledger.close()
            self.runner.close()

    def drain(self) -> None:
        """Passes without mishaps, until nothing is left to do."""
        for writer in self.writers:
            writer.end(commit=True)
        self.desk.let_go()
        self.broker.heal()
        for _ in range(ROUNDS):
            self.desk.make_due()
            self.clock.now += 20
            for relay in self.relays:
                self.wait_for(relay.run(2.0))
            if not self.ledger.stranded():
                return
        raise AssertionError(f"stranded: {self.ledger.stranded()}")

    def run_into(self, which: int, seconds: float, mishaps: Sequence[Mishap]) -> None:
        """Make a pass, in which this happens, more than a second after the last one: floors may move."""
        self.clock.now += 1.1
        self.wait_for(self.relays[which].run(seconds, [self.trouble(mishap) for mishap in mishaps]))

    def trouble(self, mishap: Mishap) -> Trouble:
        """The mishap as the relay meets it."""
        deed = mishap.deed
        return Trouble(mishap.place, None if deed is None else lambda: self.done(deed))

    async def done(self, deed: Deed) -> None:
        """Now, even in the middle of a pass."""
        match deed.what:
            case "pass":
                if not self.relays[deed.which].busy:
                    await self.relays[deed.which].run(0.0)
            case "commit":
                if self.writers[deed.which].open:
                    self.writers[deed.which].end(commit=True)
            case "store":
                if not self.writers[deed.which].open:
                    self.writers[deed.which].begin(IsolationLevel.READ_COMMITTED)
                    self.writers[deed.which].emit(deed.specs, bulk=True)
                    self.writers[deed.which].end(commit=True)
            case _:
                await self.desk.does(deed.what, deed.which)

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something asynchronous end."""
        try:
            self.runner.run(work)
        except BaseException:  # a death that was asked for, too, leaves a machine that cannot go on
            self.broken = True
            raise


# When something is found, five minutes are for finding the shortest way to it.
@pytest.mark.timeout(sized(480, 3_600))
@pytest.mark.parametrize(
    "sequences", [sized(8, 500), pytest.param(50, marks=pytest.mark.slow("as many sequences as take half a minute"))]
)
def test_no_sequence_of_steps_loses_repeats_reorders_or_charges_an_event(
    database: str, sequences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor strands one."""
    monkeypatch.setattr(crash_points, "reached", reached)
    # A key rests until somebody makes it due, as all that waits does here.
    monkeypatch.setattr(failures, "REST_SECONDS", NEVER)
    look_for_trouble(
        type("ModelHere", (Model,), {"url": database}),
        settings=settings(
            max_examples=sequences,
            stateful_step_count=sized(40, 80),
            deadline=None,
            # The same sequences each time, but for those who want others.
            derandomize=not FULL,
            suppress_health_check=list(HealthCheck),
        ),
    )
