"""A relay dies at every place on the road, under load: nothing is lost, and little goes out twice."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from relay.dev.pubsub import Fault, requests_of, set_faults
from relay.dev.stack import PROJECT_ID, Stack
from relay.operate.audit import AuditReport
from relay.publisher.crash_points import Point
from relay.testing.databases import fresh_database
from tests.support.audits import Audit
from tests.support.chaos import ROUNDS, SECONDS, Load, dying, emit_events, logged, settings, stop, until_drained
from tests.support.commands import Commands
from tests.support.outbox import FAILED, count
from tests.support.pubsub import Channel, PubSubSide
from tests.support.roles_of_tests import ROLES
from tests.support.waiting import until_async

BATCH = 20
AHEAD = 10 * BATCH
AT_ONCE = 3
# From when the broker may have the messages until the commit stands.
IN_DOUBT = {
    Point.PUBLISH_AFTER,
    Point.ACK_BEFORE,
    Point.ACK_AFTER,
    Point.SETTLE_BEFORE,
    Point.SETTLE_AFTER,
    Point.COMMIT_BEFORE,
}
# Passed by a request only, while a claim that finds nothing passes the later ones too.
TAKEN = {Point.ACK_BEFORE, Point.ACK_AFTER}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Trial:
    """One death."""

    point: Point
    number: int

    @property
    def nth(self) -> int:
        """At which passing: another one each time, and the same one whenever the tests run."""
        return random.Random(f"{self.point.value} {self.number}").randint(2, 8)  # noqa: S311 -- to repeat

    @property
    def beside(self) -> bool:
        """Whether a second relay works beside it, or one is started after it."""
        return (list(Point).index(self.point) + self.number) % 2 == 0

    @property
    def slots(self) -> int:
        """How many batches it has under way: every third trial of a point has more than one."""
        return 2 if self.number % 3 == 2 else 1

    @property
    def in_doubt(self) -> int:
        """How many messages the broker may have that nobody has settled: all of another slot, wherever this one is."""
        return BATCH * (self.slots if self.slots > 1 or self.point in IN_DOUBT else 0)

    def __str__(self) -> str:
        return f"{self.point.value} {self.number}"


TRIALS = [Trial(point, number) for number in range(ROUNDS) for point in Point]
also = pytest.mark.slow("dies on the other side of a step that make test has it die at")


def die_and_finish(trial: Trial, relay: Commands, database: str, log: Path) -> tuple[int, int, int]:
    """Run the trial; answer with both exit codes and the number of events."""
    with Load(database, AHEAD) as load, dying(relay, trial.point, trial.nth) as victim:
        if trial.beside:
            with logged(relay, log) as survivor:
                died = victim.wait(SECONDS)
                load.stop()
                until_drained(database)
                return died, stop(survivor), load.emitted
        died = victim.wait(SECONDS)
    assert died == -signal.SIGKILL
    with logged(relay, log) as survivor:
        until_drained(database)
        return died, stop(survivor), load.emitted


@asynccontextmanager
async def database_of(stack: Stack, template: str) -> AsyncIterator[str]:
    """A database of its own, made and dropped in a thread.

    Meanwhile the server waits for every session that is logging in, and those of other trials log in on this loop.
    """
    made = fresh_database(stack.database_url, template)
    url = await asyncio.to_thread(made.__enter__)
    try:
        yield url
    finally:
        await asyncio.to_thread(made.__exit__, None, None, None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def side(stack: Stack) -> AsyncIterator[PubSubSide]:
    """The emulator, for all trials."""
    side = PubSubSide(stack.pubsub_emulator_host)
    yield side
    await side.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trials(
    stack: Stack,
    template: str,
    side: PubSubSide,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[dict[Trial, "asyncio.Task[AuditReport]"]]:
    """Every trial that was chosen, each with a database and a topic of its own, some at a time."""
    chosen = {item.callspec.params.get("trial") for item in request.session.items if hasattr(item, "callspec")}
    turns = asyncio.Semaphore(AT_ONCE)

    async def run(trial: Trial) -> AuditReport:
        async with turns:
            folder = tmp_path_factory.mktemp("trial")
            async with database_of(stack, template) as database:
                channel = await side.open()
                relay = relay_on(stack, database, channel, folder, trial.slots)
                died, ended, emitted = await asyncio.to_thread(die_and_finish, trial, relay, database, folder / "log")
                assert (died, ended) == (-signal.SIGKILL, 0), (folder / "log").read_text()[-2000:]
                assert count(database, FAILED) == 0
                report = await Audit(stack.pubsub_emulator_host, database)(channel)
                assert report.expected == emitted
                return report

    tasks = {trial: asyncio.create_task(run(trial)) for trial in TRIALS if trial in chosen}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def relay_on(stack: Stack, database: str, channel: Channel, folder: Path, slots: int = 1) -> Commands:
    """Relays in small batches on this database and topic."""
    return Commands(
        {
            "DATABASE_URL": database,
            "PUBSUB_EMULATOR_HOST": stack.pubsub_emulator_host,
            "PUBSUB_PROJECT_ID": PROJECT_ID,
            "RELAY_TOPIC": channel.topic,
            **settings(BATCH, RELAY_SLOTS=str(slots)),
        },
        folder,
        ROLES,
    )


@pytest.mark.parametrize(
    "trial",
    [pytest.param(trial, marks=also if trial.point.name.endswith("BEFORE") else []) for trial in TRIALS],
    ids=str,
)
async def test_a_relay_that_dies_loses_nothing(trial: Trial, trials: "dict[Trial, asyncio.Task[AuditReport]]") -> None:
    """What it had in doubt goes out twice, one batch a slot at most; before and after that, nothing does."""
    report = await trials[trial]
    assert report.passed, report
    assert report.lost == 0
    assert report.duplicates <= trial.in_doubt, report
    if trial.point in TAKEN:
        assert report.duplicates > 0, "the broker had taken the batch, and nothing was published again"


@pytest.mark.parametrize("stored", [True, False])
async def test_a_relay_that_dies_while_its_request_is_on_the_wire_loses_nothing(
    stack: Stack, template: str, side: PubSubSide, tmp_path: Path, *, stored: bool
) -> None:
    """Whether the broker has taken the messages, which the dead relay cannot have known, or not."""
    broker = stack.pubsub_emulator_host
    channel = await side.open()
    topic = f"projects/{PROJECT_ID}/topics/{channel.topic}"
    async with database_of(stack, template) as database:
        relay = relay_on(stack, database, channel, tmp_path)
        emit_events(database, AHEAD)
        await set_faults(broker, Fault("OK", method="Publish", topic=topic, after=stored, silent=True))

        async def arrived() -> bool:
            return (await requests_of(broker, topic)).requests > 0

        with logged(relay, tmp_path / "log") as victim:
            await until_async(arrived, "the request is at the broker")
            victim.kill()
        await set_faults(broker)
        with logged(relay, tmp_path / "log") as survivor:
            await asyncio.to_thread(until_drained, database)
            assert stop(survivor) == 0
        report = await Audit(broker, database)(channel)
    assert report.passed, report
    assert (report.expected, report.lost, report.duplicates) == (AHEAD, 0, BATCH if stored else 0)
