"""Which runners there are, how each is built, and which of them RELAY_RUNNERS chooses."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from relay.brokers.pubsub import PubSub
from relay.cli.parts import pubsub_address, routes
from relay.errors import ConfigurationError
from relay.kernel.backoff import Delay, Retry
from relay.kernel.clock import Clock
from relay.kernel.observe import Observe
from relay.kernel.runner import Pace
from relay.kernel.worker import Worker
from relay.outbox.outbox import Connect, Outbox
from relay.publisher.failures import Attempts
from relay.publisher.publisher import Publisher, PublishPolicy
from relay.settings import Settings

# How long a topic that fails is left alone at first, and how much longer at most.
FIRST_OUTAGE_SECONDS, OUTAGE_JITTER_SECONDS = 0.5, 0.25

Build = Callable[[Settings, Connect, Clock, Observe], Worker]


def workers(
    settings: Settings, connect: Connect, clock: Clock, observe: Observe, table: Mapping[str, Build] | None = None
) -> list[Worker]:
    """Build the runners that RELAY_RUNNERS names, in its order. Raises ConfigurationError where it names none."""
    known = RUNNERS if table is None else table
    return [known[name](settings, connect, clock, observe) for name in chosen(settings, known)]


def chosen(settings: Settings, known: Mapping[str, Build]) -> Sequence[str]:
    """The known names in RELAY_RUNNERS, each once. Raises ConfigurationError where there is none."""
    names = [name for name in settings.runners if name in known]
    if not names:
        raise ConfigurationError(
            f"RELAY_RUNNERS is {settings.relay_runners!r} and names no runner of this release; "
            f"choose from: {', '.join(known)}"
        )
    return names


def unknown(settings: Settings, known: Mapping[str, Build]) -> list[str]:
    """A sentence for each name in RELAY_RUNNERS that is no runner."""
    return [
        f"RELAY_RUNNERS names {name!r}, which is no runner of this release and is left out; "
        f"{_nearest(name, known)}known: {', '.join(known)}"
        for name in settings.runners
        if name not in known
    ]


def _nearest(name: str, known: Mapping[str, Build]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def pace(settings: Settings) -> Pace:
    """How long the loop of a runner other than publish waits."""
    error = settings.relay_error_backoff_ms.total_seconds()
    return Pace(
        busy=settings.relay_busy_ms.total_seconds(),
        idle=Delay(
            settings.relay_idle_min_ms.total_seconds(),
            settings.relay_idle_max_ms.total_seconds(),
            settings.relay_idle_jitter_ms.total_seconds(),
        ),
        error=Delay(error, error, settings.relay_error_backoff_jitter_ms.total_seconds()),
    )


def publisher(settings: Settings, connect: Connect, clock: Clock, observe: Observe) -> Worker:
    """Build the publisher. It connects in its first pass: a database that is away is the loop's to wait for."""
    idle_tx = settings.relay_idle_tx_ms.total_seconds()
    outbox = Outbox(connect, settings.relay_schema, round(idle_tx * 1000))
    publisher = Publisher(outbox, PubSub(pubsub_address(settings)), publish_policy(settings), observe)
    # The last batch of a pass may begin as its budget ends. The database grants it this long, and so do we.
    return Worker(publisher, clock, observe, grace=idle_tx)


def publish_policy(settings: Settings) -> PublishPolicy:
    """What the settings say about publishing."""
    poll = settings.relay_poll_ms.total_seconds()
    most = settings.relay_outage_max_ms.total_seconds()
    return PublishPolicy(
        routes=routes(settings),
        batch_size=settings.relay_batch_size,
        publish_seconds=settings.relay_publish_budget_ms.total_seconds(),
        attempts=Attempts(
            settings.relay_max_attempts,
            Retry(
                settings.relay_retry_base_ms.total_seconds(),
                settings.relay_retry_max_ms.total_seconds(),
                settings.relay_retry_jitter_ms.total_seconds(),
            ),
        ),
        poll=Delay(poll, poll, settings.relay_poll_jitter_ms.total_seconds()),
        outage=Delay(FIRST_OUTAGE_SECONDS, most, OUTAGE_JITTER_SECONDS),
    )


# Names that RELAY_RUNNERS may hold. Runners other than publish take `pace(settings)`, and give their Worker
# `items=settings.relay_runner_max_items`; publish is bounded by time alone.
RUNNERS: dict[str, Build] = {"publish": publisher}
