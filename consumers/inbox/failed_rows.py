"""In place of a dead-letter topic, where there is none: what is no event stays in the inbox, as a row that failed."""

from collections.abc import Mapping

from consumers.dead_letters import PREFIX
from consumers.delivery import Delivery
from consumers.inbox.inbox import Inbox
from consumers.outcome import Invalid
from idempotency import LeaseLostError, StoreUnavailableError
from relay.errors import BrokerError


class FailedRows:
    """Keeps what the pipeline cannot read. What a handler fails on is such a row already, by its own end."""

    topic = ""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def open(self) -> None:
        """The inbox is looked at as the source is."""

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Fail its row. Raises BrokerError where that was not written: it comes again."""
        why = Invalid(attributes.get(f"{PREFIX}reason", ""), attributes.get(f"{PREFIX}code", ""))
        try:
            await self._inbox.fail(delivery.handle, why)
        except StoreUnavailableError as error:
            raise BrokerError("UNAVAILABLE", str(error)) from error
        except LeaseLostError as error:
            raise BrokerError("ABORTED", str(error)) from error

    async def close(self) -> None:
        """The inbox is closed as the source is."""
