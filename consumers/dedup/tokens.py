"""By which token an event is asked about: again by the same, where nobody knows what became of the last question."""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

_MOST = 100_000


class Tokens:
    """A store that was asked in vain may have answered all the same. Asked by the same token, it says so.

    Otherwise what this process left behind would be somebody else's: a claim for its lease, a mark for good.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._unsure: OrderedDict[UUID, str] = OrderedDict()

    async def ask(self, event: UUID, ask: Callable[[tuple[UUID, str]], Awaitable[Any]]) -> Any:
        """The answer to a question about the event, which is asked with its token."""
        token = self.take(event)
        try:
            return await ask((event, token))
        except BaseException:  # a cancellation, too, leaves open what the store has done
            self.keep(event, token)
            raise

    def take(self, event: UUID) -> str:
        """The token to ask by. Whoever asks beside it gets another one."""
        return (self._unsure.pop(event, None) if self._unsure else None) or secrets.token_hex(16)

    def keep(self, event: UUID, token: str) -> None:
        """What was asked by this token may have been done; the events of longest ago are given up first."""
        self._unsure[event] = token
        self._unsure.move_to_end(event)
        if len(self._unsure) > self._most:
            self._unsure.popitem(last=False)
