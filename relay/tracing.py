"""The trace that an event belongs to: the W3C trace context of the span in which it is emitted."""

import logging
import sys
from collections.abc import Mapping
from itertools import islice

from relay.envelope import OWN_ATTRIBUTES, attributes_fault

# In the order of their worth: a tracestate says nothing without its traceparent.
NAMES = ("traceparent", "tracestate")

_log = logging.getLogger(__name__)


def current() -> dict[str, str]:
    """Return the attributes that name the current span; none outside a span, or where nobody uses OpenTelemetry.

    A service that traces has OpenTelemetry loaded; for all others it stays unloaded. Never raises.
    """
    if sys.modules.get("opentelemetry.trace") is None:
        return {}
    try:
        return _injected()
    except Exception:  # noqa: BLE001 -- whatever tracing runs into, the event is worth more than its trace
        _log.warning("the event is emitted without the trace context, which could not be read", exc_info=True)
        return {}


def joined(own: dict[str, str], trace: Mapping[str, str]) -> dict[str, str]:
    """Return an event's own attributes with the trace's.

    An event that names any of the trace's attributes keeps its own trace, whole. Where the limit of own attributes
    leaves no room, the trace stays behind: first its tracestate, then all of it.
    """
    if not trace or not own.keys().isdisjoint(NAMES):
        return own
    return own | dict(islice(trace.items(), max(OWN_ATTRIBUTES - len(own), 0)))


def _injected() -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 -- only for who uses it already
        TraceContextTextMapPropagator,
    )

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {name: carrier[name] for name in NAMES if name in carrier and not attributes_fault({name: carrier[name]})}
