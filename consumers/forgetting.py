"""Having a consumer's store forget an event of which nothing was made but a dead letter."""

import json
from typing import Protocol
from uuid import UUID

from consumers.dead_letters import BURIED
from idempotency import Store

# As mode claim writes it, and as mode mark does.
_WRITTEN = (json.dumps(BURIED, separators=(",", ":")).encode(), json.dumps(BURIED))


class Memory(Protocol):
    """What a replay asks of the store."""

    async def forget(self, consumer: str, event_id: UUID) -> None:
        """Have the event begun anew when it comes again. Raises IdempotencyError where the store is away."""
        ...


class StoreMemory:
    """Forgets what a dead letter completed, and nothing else.

    An event that had its effect meanwhile, because it was replayed before by a run that was killed, or because it
    became two dead letters, stays known: its replay is acknowledged without acting on it a second time. The store
    looks and forgets in one step, so that no effect comes in between, whoever else replays.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def forget(self, consumer: str, event_id: UUID) -> None:
        """Have the dead letter's completion forgotten; whoever acts on the event now is left alone."""
        for result in _WRITTEN:
            if await self._store.forget(consumer, event_id, only_result=result):
                return


class NoMemory:
    """For consumers without deduplication: there is nothing that could be forgotten."""

    async def forget(self, consumer: str, event_id: UUID) -> None:
        """Nothing is known."""
