"""What a consumer works with, whoever has built it."""

from dataclasses import dataclass, field
from pathlib import Path

from consumers.backlog import Backlog
from consumers.clock import Clock, SystemClock
from consumers.context import Locks
from consumers.dead_letters import DeadLetters
from consumers.dedup.protocol import Dedup, Effects
from consumers.handlers import Defaults
from consumers.retry import UNLIMITED
from consumers.scratch import default_root
from consumers.sends import Sends
from consumers.sources.source import Source
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.observe import Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a consumer works with, built from settings or by a test."""

    source: Source
    dedup: Dedup
    dead_letters: DeadLetters
    observe: Observe
    locks: Locks | None = None
    effects: Effects | None = None
    """Where handlers can complete an event in a transaction of their own."""
    sends: Sends | None = None
    """Who asks what became of what was sent, of a consumer that has an inbox."""
    backlog: Backlog | None = None
    """How the inbox is, of a consumer that has one."""
    defaults: Defaults | None = None
    """What handlers have that say nothing of it; None leaves what their consumer was built with."""
    most_resting: int = 500
    most_deferrals: int = UNLIMITED
    """Of one event, where the mode counts them."""
    outlived: bool = False
    """Whether the process goes on when the consumer has ended: a service."""
    scratch_root: Path = field(default_factory=default_root)
    sweeps: bool = False
    """Whether what dead processes have left there is removed at the start."""
    clock: Clock = field(default_factory=SystemClock)
    jitter: Jitter = uniform
