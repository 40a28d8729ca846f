"""What the road of one consumer leads past."""

from dataclasses import dataclass

from consumers.clock import Clock
from consumers.confirmers import Confirmers
from consumers.dead_letters import DeadLetters
from consumers.dedup.protocol import Begun, Dedup, Effects
from consumers.flow import Flow
from consumers.gate import Gate
from consumers.handling import Handling
from consumers.job import Job
from consumers.patience import Patience
from consumers.sources.source import Source
from consumers.tell import Tell
from relay.kernel.observe import Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Each with its own business; the pipeline leads a delivery from one to the next."""

    consumer: str
    source: Source
    dedup: Dedup
    effects: Effects | None
    dead_letters: DeadLetters
    flow: Flow
    gate: Gate
    handling: Handling
    patience: Patience
    confirmers: Confirmers
    observe: Observe
    tell: Tell
    begun: dict[Begun, Job]
    """What is acted on now."""
    clock: Clock
