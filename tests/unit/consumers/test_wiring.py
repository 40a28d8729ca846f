"""One consumer inside of a service, several as a process: what is checked before, shared, and told."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from consumers import ConfigurationError, Consumer, Exponential, Fixed, app_jobs, wiring
from consumers.backstage import Backstage
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.none import NoDedup
from consumers.events import ConsumerStarted, DeliverySettled
from consumers.handlers import Defaults
from consumers.inbox import building
from consumers.metrics import Metrics
from consumers.scratch import default_root
from consumers.settings import Settings, load
from consumers.testing import FakeClock
from consumers.wiring import run_all, run_one
from relay import errors as relay_errors
from relay.kernel.shutdown import Shutdown
from tests.unit.consumers.companions import FakeSource, FakeSupplies, brings

COMPLETE: dict[str, Any] = {
    "pubsub_project_id": "acme",
    "pubsub_emulator_host": "127.0.0.1:1",
    "redis_url": "redis://127.0.0.1:1",
}


class Supplies(FakeSupplies):
    """As a process has them: they are closed in the end."""

    closed = False

    async def close(self) -> None:
        """Write it down."""
        self.closed = True


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def supplies(monkeypatch: pytest.MonkeyPatch) -> Supplies:
    """What all consumers of a test work with."""
    made = Supplies({"billing": FakeSource("billing", brings("order.paid"))})
    monkeypatch.setattr(wiring, "Backstage", lambda _settings, **_how: made)
    return made


@pytest.fixture
def billing() -> Consumer:
    """A consumer that raises for whatever comes."""
    consumer = Consumer("billing")

    @consumer.fallback
    async def book(_: object) -> None:
        raise OSError("no answer")

    return consumer


async def test_inside_of_a_service_lines_go_where_its_own_go(supplies: Supplies, billing: Consumer) -> None:
    """By its configuration of structlog, which stays as it is; and events to whoever listens."""
    heard: list[object] = []
    stopping, before = asyncio.Event(), structlog.get_config()

    def listen(event: object) -> None:
        heard.append(event)
        if isinstance(event, DeliverySettled):
            stopping.set()

    with capture_logs() as lines:
        await run_one(billing, load(**COMPLETE), stopping, listen)

    assert structlog.get_config() == before
    assert [line["event"] for line in lines] == [
        "start_warning",
        "consumer_started",
        "delivery_failed",
        "consumer_stopped",
        "consumer_stats",
    ]
    assert lines[2]["code"] == "OSError"
    assert [type(event) for event in heard[1:3]] == [ConsumerStarted, DeliverySettled]
    assert supplies.closed


async def test_a_service_reads_its_settings_from_the_environment(
    supplies: Supplies, billing: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Consumer.run` without arguments; lines of events, and a listener of the user's own that counts."""
    for name, value in COMPLETE.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("CONSUMERS_LOG_REDACT", "no_such_module:hook")
    with pytest.raises(ConfigurationError, match="CONSUMERS_LOG_REDACT is 'no_such_module:hook'"):
        await billing.run()

    monkeypatch.delenv("CONSUMERS_LOG_REDACT")
    metrics, settled = Metrics(), asyncio.Event()

    def listen(event: object) -> None:
        metrics(event)
        if isinstance(event, DeliverySettled):
            settled.set()

    with capture_logs():
        async with billing.running(observe=listen):
            await settled.wait()
    assert b'outcome="retried"' in metrics.render()
    assert supplies.closed


@pytest.mark.parametrize("missing", ["pubsub_project_id", "redis_url"])
async def test_what_is_missing_is_said_before_anything_is_built(
    missing: str, supplies: Supplies, billing: Consumer
) -> None:
    """For `run_one` and `run_all` alike."""
    settings = load(**{name: value for name, value in COMPLETE.items() if name != missing})
    with pytest.raises(ConfigurationError, match=f"^{missing.upper()} is not set; "):
        await run_one(billing, settings, asyncio.Event())
    with pytest.raises(ConfigurationError, match=f"^{missing.upper()} is not set; "):
        await run_all([billing], settings, Shutdown(), lambda _: None)
    assert not supplies.closed


async def test_two_of_one_name_are_refused(supplies: Supplies, billing: Consumer) -> None:
    """Each would take the other's events for processed."""
    with pytest.raises(ConfigurationError, match="2 consumers are named 'billing', and each would take"):
        await run_all([billing, Consumer("billing", subscription="other")], load(**COMPLETE), Shutdown(), print)
    assert not supplies.closed


async def test_a_refusal_of_the_brokers_is_an_error_of_the_sdk(supplies: Supplies, billing: Consumer) -> None:
    """Whoever catches `consumers.ConfigurationError` catches all of them."""
    supplies.sources["billing"].refusal = relay_errors.ConfigurationError("there is no subscription billing")
    with pytest.raises(ConfigurationError, match="there is no subscription billing"), capture_logs() as lines:
        await run_one(billing, load(**COMPLETE), asyncio.Event())
    assert [line["event"] for line in lines] == ["consumer_died"]
    assert supplies.closed


async def test_several_run_until_shutdown(supplies: Supplies, billing: Consumer) -> None:
    """And what they shared is closed when the last one has ended."""
    shutdown, heard = Shutdown(), list[object]()
    shipping = Consumer("shipping")
    shipping.fallback(print)

    def observe(event: object) -> None:
        heard.append(event)
        if len([each for each in heard if isinstance(each, ConsumerStarted)]) == 2:
            shutdown.request("SIGTERM")

    assert await run_all([billing, shipping], load(**COMPLETE), shutdown, observe) == ()

    assert [event.consumer for event in heard if isinstance(event, ConsumerStarted)] == ["billing", "shipping"]
    assert supplies.closed


async def test_each_gets_the_deduplication_that_it_asks_for() -> None:
    """Over one store; handlers have its locks, whatever their mode."""
    backstage = Backstage(load(**COMPLETE), outlived=False)
    try:
        found = [backstage.of(Consumer("a", dedup=mode), lambda _: None) for mode in ("claim", "mark", "none")]
    finally:
        await backstage.close()

    assert [type(outside.dedup) for outside in found] == [ClaimDedup, MarkDedup, NoDedup]
    assert len({id(outside.locks) for outside in found}) == 1
    assert found[0].locks is not None
    assert {outside.most_resting for outside in found} == {500}


@pytest.mark.parametrize(("given", "root"), [("/var/scratch", Path("/var/scratch")), ("", default_root())])
async def test_scratch_directories_are_where_the_settings_say(given: str, root: Path) -> None:
    """And what is left there is swept at the start."""
    settings = load(**COMPLETE | {"scratch_dir": given, "database_url": "postgres://127.0.0.1:1/a"})
    backstage = Backstage(settings, outlived=False)
    found = [backstage.of(Consumer("a", dedup=mode), lambda _: None) for mode in ("none", "inbox")]
    await backstage.close()

    assert [(outside.scratch_root, outside.sweeps) for outside in found] == [(root, True)] * 2


@pytest.mark.parametrize(
    ("given", "standard"),
    [
        ({}, Defaults(concurrency=10, timeout=timedelta(seconds=45), retry=Exponential(max_attempts=3))),
        (
            {
                "inbox_lease_ms": "2m",
                "inbox_concurrency": "3",
                "inbox_retry_base_ms": "1s",
                "inbox_retry_max_ms": "9s",
                "inbox_retry_jitter_ms": "2s",
                "inbox_max_attempts": "-1",
            },
            Defaults(
                concurrency=3,
                timeout=timedelta(seconds=90),
                retry=Exponential("1s", most="9s", jitter="2s", max_attempts=-1),
            ),
        ),
    ],
)
async def test_what_handlers_of_an_inbox_do_not_say_is_in_the_settings(
    given: dict[str, str], standard: Defaults
) -> None:
    """They have three quarters of a lease; what a handler says itself stays."""
    backstage = Backstage(load(**COMPLETE | given | {"database_url": "postgres://127.0.0.1:1/a"}), outlived=False)
    consumer = Consumer("a", dedup="inbox")
    consumer.on("order.paid")(print)
    consumer.on("order.sent", concurrency=2, timeout=None, retry=Fixed("1s"))(print)
    outside = backstage.of(consumer, lambda _: None)
    await backstage.close()

    assert outside.defaults == standard
    silent, talking = consumer.handlers.under(standard).all()
    assert (silent.concurrency, silent.timeout, silent.retry) == (
        standard.concurrency,
        standard.timeout,
        standard.retry,
    )
    assert (talking.concurrency, talking.timeout, talking.retry) == (2, None, Fixed("1s"))
    assert consumer.concurrency_under(standard) == standard.concurrency


async def test_without_redis_there_are_no_locks() -> None:
    """And none are promised."""
    backstage = Backstage(load(**COMPLETE | {"redis_url": "", "consumers_max_messages": 1}), outlived=False)
    outside = backstage.of(Consumer("a", dedup="none"), lambda _: None)
    with pytest.raises(ConfigurationError, match="REDIS_URL is not set"):
        backstage.of(Consumer("a"), lambda _: None)
    await backstage.close()

    assert outside.locks is None
    assert outside.most_resting == 1
    assert outside.dead_letters.topic == "projects/acme/topics/a-dead-letters"


def test_settings_show_no_secret() -> None:
    """Nor does what is built of them."""
    settings = load(**COMPLETE | {"redis_url": "redis://:hunter2@h"})
    assert "hunter2" not in repr(settings) + json.dumps(settings.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, (timedelta(days=90), "nowhere", 4)),
        (
            {"inbox_retention": "12d", "inbox_retention_to": "archive", "inbox_connections": "2"},
            (timedelta(days=12), "archive", 2),
        ),
        ({"inbox_retention": "off"}, (None, "nowhere", 4)),
    ],
)
async def test_an_inbox_is_as_the_settings_say(
    given: dict[str, str], kept: tuple[timedelta | None, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries are kept for ninety days and go nowhere afterwards; handlers have four connections."""
    places: list[building.Place] = []
    build = building.build

    def built(place: building.Place, **named: Any) -> Any:
        places.append(place)
        return build(place, **named)

    monkeypatch.setattr(building, "build", built)
    backstage = Backstage(load(**COMPLETE | given | {"database_url": "postgres://127.0.0.1:1/a"}), outlived=False)
    backstage.of(Consumer("a", dedup="inbox"), lambda _: None)
    await backstage.close()
    assert [(place.retention, place.retention_to, place.connections) for place in places] == [kept]


def test_jobs_of_a_consumer_keep_their_history_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the schema of its inbox."""
    found: list[tuple[str, timedelta]] = []

    def built(_: object, around: Any, *, history_for: timedelta, **__: object) -> list[Any]:
        found.append((around.schema, history_for))
        return []

    monkeypatch.setattr("relay.upkeep.building.job_runners", built)
    (tmp_path / "shop_jobs.py").write_text("from relay.upkeep import Jobs\njobs = Jobs()\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = load(
        database_url="postgres://127.0.0.1:1/a",
        inbox_schema="shop",
        relay_app="shop_jobs:jobs",
        relay_runs_retention="2d",
    )
    assert app_jobs.loops(settings, FakeClock(), lambda _: None) == []
    assert found == [("shop", timedelta(days=2))]
