"""Which settings cannot both be meant, each rule with the sentence that says so."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from relay.envelope import topic_fault
from relay.failed_head import FailedHead
from relay.kernel.duration import parse, written
from relay.routes import Routes
from relay.setting_base import ends_too_late

# How long a topic that fails is left alone at first; each next pause is double.
FIRST_OUTAGE = parse("500ms")
SHORTEST_RETENTION = parse("1h")
_BELOW = (("relay_publish_budget_ms", "relay_idle_tx_ms", "or the database ends batches that still wait"),)
_AT_MOST = (
    ("relay_retry_base_ms", "relay_retry_max_ms"),
    ("relay_idle_min_ms", "relay_idle_max_ms"),
    ("relay_runner_max_ms", "relay_tick_max_ms"),
    ("relay_publish_budget_ms", "relay_runner_max_ms"),
)


def inconsistencies(value: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each rule that these settings break; `value` holds every one of them by its name."""
    yield from _disorder(value)
    outage = value["relay_outage_max_ms"]
    if outage < FIRST_OUTAGE:
        yield (
            f"RELAY_OUTAGE_MAX_MS ({written(outage)}) is shorter than the first pause after the broker failed "
            f"({written(FIRST_OUTAGE)}); set it to {written(FIRST_OUTAGE)} or more"
        )
    if timedelta(0) < value["relay_retention"] < SHORTEST_RETENTION:
        yield (
            f"RELAY_RETENTION is {written(value['relay_retention'])}, and nobody would see what became of an event; "
            f"give {written(SHORTEST_RETENTION)} or more, or 0 to keep all"
        )
    yield from ends_too_late("RELAY_SHUTDOWN_MS", value["relay_shutdown_ms"], value["dyno"])
    if fault := topic_fault(value["relay_topic"]):
        yield f"RELAY_TOPIC is {value['relay_topic'][:100]!r}, which {fault}"
    try:
        Routes.parse(value["relay_routes"], value["relay_topic"])
    except ValueError as error:
        yield f"RELAY_ROUTES {error}"
    try:
        FailedHead.parse(value["relay_on_failed_head"])
    except ValueError as error:
        yield f"RELAY_ON_FAILED_HEAD {error}"


def _disorder(value: Mapping[str, Any]) -> Iterator[str]:
    for lower, higher, why in _BELOW:
        if value[lower] >= value[higher]:
            yield f"{_told(lower, value)} must stay below {_told(higher, value)}, {why}"
    for lower, higher in _AT_MOST:
        if value[lower] > value[higher]:
            yield f"{_told(lower, value)} is longer than {_told(higher, value)}; lower the first or raise the second"


def _told(name: str, value: Mapping[str, Any]) -> str:
    return f"{name.upper()} ({written(value[name])})"
