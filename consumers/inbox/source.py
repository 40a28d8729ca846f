"""A source behind which deliveries are kept: what comes from upstream is stored, what is stored is claimed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from consumers.delivery import Delivery
from consumers.handlers import EACH
from consumers.inbox.claiming import Claiming
from consumers.inbox.connections import Connections
from consumers.inbox.inbox import Inbox
from consumers.inbox.locks import InboxLocks
from consumers.inbox.rows import Owned
from consumers.inbox.saturation import Saturation
from consumers.inbox.table import Table
from consumers.inbox.upkeep import Upkeep
from consumers.sources.source import Demand, Facts, Take


class Intake(Protocol):
    """What fills the inbox."""

    @property
    def name(self) -> str:
        """The subscription, or what stands for one."""
        ...

    @property
    def held_messages(self) -> int:
        """Deliveries on their way into the inbox."""
        ...

    @property
    def held_bytes(self) -> int:
        """And what they take."""
        ...

    async def open(self) -> Facts:
        """Look at where they come from. Raises what a source does, and StoreUnavailableError."""
        ...

    async def run(self, demand: Demand) -> None:
        """Store what comes until cancelled, however often either side is away."""
        ...

    async def close(self, seconds: float) -> None:
        """Let go of where they come from, in this time."""
        ...


class InboxSource:
    """Hands over rows of the inbox; acknowledging and giving back are words about rows, and `Inbox` says those."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        *,
        intake: Intake,
        claiming: Claiming,
        inbox: Inbox,
        table: Table,
        connections: Connections,
        upkeep: Upkeep,
        saturation: Saturation,
        locks: InboxLocks,
        examine: Callable[[], Awaitable[None]],
        judge: Callable[[Facts], None],
    ) -> None:
        self.name = intake.name
        self._intake = intake
        self._claiming = claiming
        self._inbox = inbox
        self._table = table
        self._connections = connections
        self._upkeep = upkeep
        self._saturation = saturation
        self._locks = locks
        self._examine = examine
        self._judge = judge
        self._held = 0
        self._held_bytes = 0

    @property
    def held_messages(self) -> int:
        """Deliveries that are being received, and rows that are claimed."""
        return self._intake.held_messages + self._held

    @property
    def held_bytes(self) -> int:
        """And what they take."""
        return self._intake.held_bytes + self._held_bytes

    async def open(self) -> Facts:
        """Look at both sides."""
        await self._examine()
        facts = await self._intake.open()
        self._judge(facts)
        return Facts(name=facts.name, topic=facts.topic)

    async def run(self, take: Take, demand: Demand) -> None:
        """Receive and claim until cancelled."""

        def hold(deliveries: Sequence[Delivery]) -> None:
            self._held += len(deliveries)
            self._held_bytes += sum(len(delivery.body) for delivery in deliveries)
            take(deliveries)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._intake.run(demand))
                tasks.create_task(self._claiming.run(hold, demand))
                tasks.create_task(self._upkeep.run())
                tasks.create_task(self._saturation.run())
        except BaseExceptionGroup as ended:
            raise _first(ended) from None

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Its row says so already; or it holds no event, which no handler has said anything about."""
        owned: Owned = delivery.handle
        if not owned.over:
            await self._inbox.refuse(owned)
        self._let_go(delivery, None)
        return True

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Let go of its row, unless that was done with a word about its rest."""
        owned: Owned = delivery.handle
        self._inbox.give_back(owned, delay)
        self._let_go(delivery, delay)

    async def close(self, seconds: float) -> None:
        """Let go of both sides."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._table.close)
            stack.push_async_callback(self._connections.close)
            stack.push_async_callback(self._upkeep.close)
            stack.push_async_callback(self._locks.close)
            stack.push_async_callback(self._intake.close, seconds)

    def _let_go(self, delivery: Delivery, due_in: float | None) -> None:
        self._held -= 1
        self._held_bytes -= len(delivery.body)
        owned: Owned = delivery.handle
        self._claiming.ended(delivery.ordering_key, owned.event_type, due_in)
        if owned.fanned_out:
            self._claiming.ended(delivery.ordering_key, owned.event_type + EACH, 0.0)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
