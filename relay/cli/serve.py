"""Health and metrics of `relay run`, over HTTP where the settings ask for it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relay.cli.parts import careful, routes
from relay.cli.refusals import site_address
from relay.cli.runners import publish_policy, publishes
from relay.kernel.clock import Clock
from relay.kernel.command import release
from relay.kernel.observe import Observe
from relay.operate.health import Health, longest_silence
from relay.operate.http import serving
from relay.operate.http.pages import Pages
from relay.operate.job_health import JobHealth
from relay.operate.metrics import Metrics
from relay.operate.stats import stats_pace
from relay.outbox import schema
from relay.settings import Settings


class Site:
    """What is served, and the listeners that it is made from: none where HTTP is off, which then costs nothing."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._address = site_address(settings)
        self.listeners: tuple[Observe, ...] = ()
        if self._address is None:
            return
        health = _publishing(settings, clock) if publishes(settings) else _with_jobs_alone(settings, clock)
        metrics = Metrics(release(), schema.newest(), time.time, health)
        self.listeners = (health, metrics)
        self._pages = Pages(health, metrics, self._address.token)

    @asynccontextmanager
    async def open(self, observe: Observe) -> AsyncIterator[None]:
        """Serve for the time of the block. Raises ConfigurationError where it cannot be served."""
        if self._address is None:
            yield
            return
        async with serving(self._address.host, self._address.port, self._pages, observe):
            yield


def _publishing(settings: Settings, clock: Clock) -> Health:
    """Told from the passes of the publisher, wherever it is one of several runners."""
    asleep = settings.relay_idle_max_ms.total_seconds() if settings.relay_notify else 0.0
    silence = longest_silence(publish_policy(settings).pace, *_pass(settings), asleep)
    return Health(
        clock.monotonic, silence, sum(_pass(settings)), topics=routes(settings).topics, redaction=careful(settings)
    )


def _with_jobs_alone(settings: Settings, clock: Clock) -> JobHealth:
    every = stats_pace(settings.relay_stats_ms.total_seconds())
    return JobHealth(clock.monotonic, longest_silence(every, *_pass(settings)), redaction=careful(settings))


def _pass(settings: Settings) -> tuple[float, float]:
    """How long a pass may take, and how much longer until it is cancelled."""
    return settings.relay_runner_max_ms.total_seconds(), settings.relay_idle_tx_ms.total_seconds()
