"""The second half of a send: what the runtime asks of whoever confirms, and what a confirming function is given."""

from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from consumers.blocks import Transaction
from consumers.context import Surroundings
from consumers.handlers import Handlers
from consumers.threads import Threads


class Sends(Protocol):
    """Asks what became of what was sent."""

    async def run(self, around: Surroundings, threads: Threads, handlers: Handlers) -> None:
        """Ask until cancelled; survives outages by itself. What was not answered then is anybody's to ask."""
        ...


@dataclass(frozen=True, slots=True)
class ConfirmContext:
    """What whoever confirms or deactivates receives as a second argument, where it takes one."""

    event_type: str
    _around: Surroundings

    @property
    def consumer(self) -> str:
        """The consumer's name."""
        return self._around.consumer

    @property
    def state(self) -> Any:
        """What the consumer's `lifespan` yielded; None without one."""
        return self._around.state

    @property
    def stopping(self) -> bool:
        """Whether the process is asked to stop."""
        return self._around.stopping()

    def transaction(self) -> Transaction:
        """A transaction in the inbox's database: `async with ctx.transaction() as connection:`; `with` in a thread."""
        effects = self._around.effects
        assert effects is not None  # noqa: S101 -- sends are confirmed by an inbox alone, which has them
        return Transaction(effects, None, self._around.loop)

    @property
    def log(self) -> FilteringBoundLogger:
        """A structlog logger that names the consumer and the event type in each line."""
        log: FilteringBoundLogger = structlog.get_logger("consumers").bind(
            consumer=self.consumer, event_type=self.event_type
        )
        return log
