"""Health and metrics of `relay run`, over HTTP where the settings ask for it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from relay.cli.parts import careful, routes
from relay.cli.refusals import site_address
from relay.cli.runners import RUNNERS, chosen, pace, publish_policy
from relay.kernel.clock import Clock
from relay.kernel.observe import Observe
from relay.kernel.runner import Pace
from relay.operate.health import Health, longest_silence
from relay.operate.http import serving
from relay.operate.http.pages import Pages
from relay.operate.metrics import Metrics
from relay.outbox import schema
from relay.settings import Settings

PUBLISH = "publish"


class Site:
    """What is served, and the listeners that it is made from: none where HTTP is off, which then costs nothing."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._address = site_address(settings)
        self.listeners: tuple[Observe, ...] = ()
        if self._address is None:
            return
        pass_seconds = settings.relay_runner_max_ms.total_seconds()
        grace = settings.relay_idle_tx_ms.total_seconds()
        runner, its_pace = _followed(settings)
        asleep = settings.relay_idle_max_ms.total_seconds() if settings.relay_notify else 0.0
        silence = longest_silence(its_pace, pass_seconds, grace, asleep)
        hung = pass_seconds + grace
        health = Health(
            clock.monotonic,
            silence,
            hung,
            topics=routes(settings).topics,
            runner=runner,
            redaction=careful(settings),
        )
        metrics = Metrics(_version(), schema.newest(), time.time, health)
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


def _followed(settings: Settings) -> tuple[str, Pace]:
    """The runner whose passes tell of the process: the publisher, wherever it is one of several."""
    names = chosen(settings, RUNNERS)
    if PUBLISH in names:
        return PUBLISH, publish_policy(settings).pace
    return names[0], pace(settings)


def _version() -> str:
    try:
        return version("outbox-relay")
    except PackageNotFoundError:
        return "checkout"
