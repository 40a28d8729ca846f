"""A publisher and all that surrounds it: a real outbox, a broker in the test's hand, a clock that may be stopped."""

import asyncio
import time
from typing import Any

from relay import emit
from relay.kernel.runner import Budget, Report
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.publisher import Publisher
from tests.support.brokers import BrokerInHand
from tests.support.looking import asked, session
from tests.support.outbox import event
from tests.support.policies import policy
from tests.support.roles_of_tests import as_emitter, as_relay

TOPIC = "domain-events"


class Bench:
    """A publisher and all that surrounds it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.broker = BrokerInHand()
        self.seen: list[object] = []
        self.later = 0.0
        self._stopped: float | None = None
        self.outbox = self.open_outbox()
        self.publisher = self.publisher_on(self.outbox)

    def open_outbox(self, skew: float = 0.0, idle_tx_ms: int = 20_000) -> Outbox:
        """Another relay's connection to the same table."""
        return Outbox(lambda: connect_async(as_relay(self.url)), "public", idle_tx_ms, skew, self.monotonic)

    def publisher_on(self, outbox: Outbox, **values: Any) -> Publisher:
        """Another relay."""
        return Publisher(outbox, self.broker, policy(**values), self.seen.append)

    async def run_once(self, publisher: Publisher | None = None, seconds: float = 30.0) -> Report:
        """One pass with a budget of this many seconds, as much later as `self.later` says."""
        budget = Budget(self.monotonic() + seconds, self.monotonic, asyncio.Event())
        return await (publisher or self.publisher).run_once(budget)

    def monotonic(self) -> float:
        """The clock of its relays."""
        return (time.monotonic() if self._stopped is None else self._stopped) + self.later

    def stop_clock(self) -> None:
        """From now on only `later` moves it: what is not due yet stays so, however slow the machine is.

        Do not stop it where the relay measures how long something took, or a pass is to end with its budget.
        """
        self._stopped = time.monotonic()

    def emit(self, *numbers: int, **fields: Any) -> list[str]:
        """Commit events; answer with their ids."""
        connection = session(as_emitter(self.url))
        with connection.transaction():
            return [str(emitted.event_id) for emitted in emit(connection, [event(n, **fields) for n in numbers])]

    def attempts(self) -> list[Any]:
        """The rows that paid: number, attempts, code."""
        return self.query(
            "select aggregate_id::int, attempt_count, last_error_code from outbox_events "
            "where attempt_count > 0 order by id"
        )

    def make_due(self) -> None:
        """What waits for its next attempt has waited long enough."""
        self.query("update outbox_events set available_at = now() where available_at > now() returning 1")

    def query(self, text: str) -> list[Any]:
        """Ask the database."""
        return asked(self.url, text.encode())
