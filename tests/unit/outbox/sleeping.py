"""A sleeper on a session that follows a script."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import psycopg

from relay.outbox.events import Looked
from relay.outbox.listening import GRACE_SECONDS, MOST_ROWS, Listening, Look, Place
from relay.outbox.sleep import Closed, Sleeper

POLL = 0.5
LONGEST = 30.0
NOTHING = Look(1, claimable=(), due_in_seconds=None, settled=True, last_key=None)
UNSETTLED = NOTHING._replace(settled=False)
DUE = NOTHING._replace(claimable=(5,))
SILENT = TimeoutError("no answer")
GONE = psycopg.OperationalError("the connection is lost")


class Scripted(Listening):
    """Finds what the test wants, look by look; the last one is repeated. Every step is written down with its time."""

    def __init__(self, *looks: Look | Exception, other_sleeps: int = 0) -> None:
        self.heard = self.called = False
        self.looks: Sequence[Look | Exception] = looks or (NOTHING,)
        self.other_sleeps = other_sleeps
        self.steps: list[str] = []
        self.looked_at: list[float] = []
        self.places: list[Place] = []
        self.turn = 0
        self.news = asyncio.Event()
        self.noisy = False
        self.unlocking: Exception | None = None
        self.cut_off = asyncio.Event()

    @property
    def database(self) -> str:
        """A place and a name."""
        return "db:5432/app"

    async def begin(self, seconds: float) -> str | None:
        """Take the lock, unless another has it so many times."""
        assert seconds == LONGEST
        if self.other_sleeps:
            self.other_sleeps -= 1
            self.steps.append("refused")
            return None
        self.steps.append("lock")
        return "7"

    async def end(self) -> None:
        """Give it back."""
        if self.unlocking:
            raise self.unlocking
        self.steps.append("unlock")

    async def look(self, place: Place, rows: int, mark: str | None = None) -> Look:
        """Find what comes next."""
        assert (place.fresh_safe, place.ordered_safe) == (3, 4)
        assert rows == (MOST_ROWS if mark else 1)
        self.places.append(place)
        self.looked_at.append(asyncio.get_running_loop().time())
        found = self.looks[min(self.turn, len(self.looks) - 1)]
        self.turn += 1
        if found is SILENT:
            await self.cut_off.wait()
            raise GONE
        if isinstance(found, Exception):
            self.steps.append("error")
            raise found
        self.steps.append("look" if mark else "glance")
        return found

    async def wait(self, wake: asyncio.Event, seconds: float) -> bool:
        """Wait for `tell`, for the wake-up, or for the time."""
        if self.noisy:
            seconds = 0
        waiting = {asyncio.ensure_future(event.wait()) for event in (wake, self.news)}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        arrived = self.noisy or self.news.is_set()
        self.news.clear()
        return arrived

    def tell(self, *found: Look, called: bool = False) -> None:
        """Let a notification arrive, and the looks from then on find this."""
        self.called, self.heard = called, not called
        if found:
            self.looks, self.turn = found, 0
        self.news.set()

    def emit(self) -> None:
        """Let one arrive that is about a row that is due."""
        self.tell(DUE)

    def cut(self) -> None:
        """Lose the connection."""
        self.cut_off.set()

    async def close(self) -> None:
        """End the session."""
        self.steps.append("close")


class Hung(Scripted):
    """Its process is stopped while it waits, for so long that the server ends the session."""

    async def wait(self, wake: asyncio.Event, seconds: float) -> bool:  # noqa: ARG002 -- nothing is awake
        """Go on when all is over."""
        await asyncio.sleep(LONGEST + GRACE_SECONDS)
        raise GONE


# Whatever can be seen, a pass is due then.
PASS_SECONDS = 600.0


class Bench:
    """A sleeper, and all that it touches."""

    def __init__(self, *sessions: Listening | Exception) -> None:
        self.sessions = list(sessions)
        self.seen: list[object] = []
        self.rewound: list[list[str]] = []
        self.restarted = 0
        self.restarts_in = PASS_SECONDS
        self.closed: Closed = ((), ())
        self.wake = asyncio.Event()
        self.fresh_safe, self.ordered_safe = 3, 4
        self.opened = 0
        self.opening: Callable[[], Awaitable[None]] | None = None
        self.sleeper = Sleeper(self.open, self, LONGEST, self.seen.append, lambda: self.closed)

    async def open(self) -> Listening:
        """Answer with the next session; the last one is repeated."""
        self.opened += 1
        if self.opening:
            await self.opening()
        session = self.sessions[0] if len(self.sessions) == 1 else self.sessions.pop(0)
        if isinstance(session, Exception):
            raise session
        return session

    def rewind(self) -> None:
        """Write down what had been done by then."""
        self.rewound.append(
            [step for session in self.sessions if isinstance(session, Scripted) for step in session.steps]
        )

    def restart(self) -> None:
        """Count."""
        self.restarted += 1

    async def rest(self, *, worked: int = 0) -> float:
        """Rest once, and tell for how long."""
        began = asyncio.get_running_loop().time()
        await self.sleeper.rest(self.wake, POLL, worked=worked)
        return round(asyncio.get_running_loop().time() - began, 6)

    @property
    def told(self) -> list[object]:
        """What was told, but for looks that found nothing."""
        return [event for event in self.seen if not isinstance(event, Looked)]


def later(seconds: float, act: Callable[[], None]) -> None:
    """Do this in so many seconds."""
    asyncio.get_running_loop().call_later(seconds, act)
