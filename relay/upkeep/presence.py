"""Whether anybody in this process needs the session soon: it is ended while the next slot of all jobs is far away."""

from collections.abc import Callable, Iterable
from typing import Final

from relay.postgres.session import Session

FAR_SECONDS: Final = 60.0


class Presence:
    """Of all jobs that share a session, by their names."""

    def __init__(self, session: Session, names: Iterable[str], monotonic: Callable[[], float]) -> None:
        self._session = session
        self._monotonic = monotonic
        # Until when each rests.
        self._until = dict.fromkeys(names, 0.0)

    async def rests(self, name: str, seconds: float) -> None:
        """Note that this one needs nothing for so long."""
        self._until[name] = self._monotonic() + seconds
        if min(self._until.values()) - self._monotonic() > FAR_SECONDS:
            await self._session.rest()

    def works(self, name: str) -> None:
        """Note that this one may need the session at any time."""
        if name in self._until:
            self._until[name] = 0.0

    async def ends(self, name: str) -> None:
        """Note that this one needs nothing any more; with the last of them the session is closed."""
        self._until.pop(name, None)
        if not self._until:
            await self._session.close()
