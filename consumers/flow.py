"""What may run next: one at a time of a lane, so many of a handler, so many in all.

A delivery joins its lane (its ordering key, or the event itself, so that two deliveries of one event follow each
other). The first of each lane is ready, and waits in the line of its handler until a worker has a permit for it. One
that failed rests at the head of its lane, which waits behind it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable

from consumers.clock import Clock
from consumers.handlers import Handler
from consumers.job import Job


class Line:
    """The ready deliveries of one handler; those without a handler have a line too."""

    __slots__ = ("handler", "in_batches", "in_thread", "limit", "paused", "ready", "running")

    def __init__(self, handler: Handler | None, limit: int) -> None:
        self.handler = handler
        self.limit = limit
        self.in_thread = handler is not None and handler.in_thread
        self.in_batches = handler is not None and handler.batch > 0
        """Whether its deliveries are in few calls: they take none of the permits that all others share."""
        self.ready: deque[Job] = deque()
        self.running = 0
        self.paused: dict[str, float] = {}
        """Until when which event types begin nothing, by the process's clock."""

    @property
    def active(self) -> int:
        """Deliveries that run, or that nothing but a permit keeps from it."""
        return self.running + len(self.ready)


class Flow:
    """All deliveries that wait, run or rest in this process. Knows no handler's work and no source."""

    def __init__(
        self,
        clock: Clock,
        lines: Iterable[Line],
        wake: Callable[[], None],
        give_back: Callable[[Job, float], None],
        most: int | None = None,
    ) -> None:
        """`most` is how many deliveries run at once that are not in batches."""
        self._most = most
        self._running_apart = 0
        self._clock = clock
        self._wake = wake
        self._give_back = give_back
        self._lines = deque(lines)
        self._lanes: dict[Hashable, deque[Job] | None] = {}
        self._resting: set[Job] = set()
        self._running: set[Job] = set()
        self._paused_until = 0.0
        self._closed = False
        self.freed = asyncio.Event()
        """Set whenever there may be room for more."""

    @property
    def active(self) -> int:
        """Deliveries that run or are ready."""
        return sum(line.active for line in self._lines)

    @property
    def active_apart(self) -> int:
        """Those of them that are not in batches."""
        return sum(line.active for line in self._lines if not line.in_batches)

    @property
    def room_in_batches(self) -> int:
        """How many more the batches of all handlers take."""
        return sum(max(0, line.limit - line.active) for line in self._lines if line.in_batches)

    @property
    def stands_still(self) -> bool:
        """Whether nothing at all is begun now."""
        return self._closed or bool(self._paused_until)

    @property
    def resting(self) -> int:
        """Deliveries that wait for their next attempt."""
        return len(self._resting)

    @property
    def running(self) -> frozenset[Job]:
        """Deliveries that are worked on."""
        return frozenset(self._running)

    @property
    def in_threads(self) -> int:
        """Those whose handlers nobody can end."""
        return sum(job.line.in_thread for job in self._running)

    @property
    def waiting(self) -> int:
        """Deliveries that are ready, or behind another one of their lane."""
        return sum(len(line.ready) for line in self._lines) + sum(len(lane) for lane in self._lanes.values() if lane)

    def offer(self, job: Job) -> None:
        """Take a delivery in."""
        lane = job.lane
        if lane in self._lanes:
            behind = self._lanes[lane]
            if behind is None:
                behind = self._lanes[lane] = deque()
            behind.append(job)
            return
        self._lanes[lane] = None
        self._make_ready(job)

    def take(self) -> Job | None:
        """The next delivery to work on, with its permit; None while there is none."""
        if self._closed or self._paused_until:
            return None
        lines = self._lines
        for _ in range(len(lines)):
            line = lines[0]
            lines.rotate(-1)
            if line.ready and line.running < line.limit and self._is_free(line):
                job = self._unthrottled(line) if line.paused else line.ready.popleft()
                if job is not None:
                    line.running += 1
                    self._running_apart += not line.in_batches
                    self._running.add(job)
                    return job
        return None

    def finish(self, job: Job) -> None:
        """The delivery is acknowledged or given back: the next one of its lane is ready. Once more is nothing."""
        if job in self._running:
            self._stop_running(job)
            self._leave(job)

    def rest(self, job: Job, seconds: float) -> None:
        """The delivery is looked at again later; its lane waits."""
        self._stop_running(job)
        if seconds <= 0:
            self._make_ready(job)
            return
        self._resting.add(job)
        job.due = self._clock.monotonic() + seconds
        job.timer = self._clock.call_later(seconds, self._awake, job)

    def pause(self, seconds: float) -> None:
        """Begin nothing at all for a while."""
        until = self._clock.monotonic() + seconds
        if until > self._paused_until:
            self._paused_until = until
            self._clock.call_later(seconds, self._resume, until)

    def resume(self) -> None:
        """End the pause."""
        self._paused_until = 0.0
        self._wake_all()

    def throttle(self, event_type: str, seconds: float) -> None:
        """Begin nothing of this type for a while."""
        until = self._clock.monotonic() + seconds
        for line in self._lines:
            # The line may hold several types; and the type may have several lines, one for each version.
            line.paused[event_type] = max(until, line.paused.get(event_type, 0.0))
        self._clock.call_later(seconds, self._unthrottle, event_type, until)

    def hand_back(self, event_type: str) -> None:
        """Give back what is ready of this type: others may have it, and it takes no permit from other types."""
        for line in self._lines:
            for job in [job for job in line.ready if job.subject.event_type == event_type]:
                line.ready.remove(job)
                self._dismiss(job, 0.0)
        self.freed.set()

    def close(self) -> None:
        """Begin nothing any more; give back all that does not run, but for what waits behind something that does."""
        self._closed = True
        now = self._clock.monotonic()
        for job in self._resting:
            if job.timer:
                job.timer.cancel()
            self._dismiss(job, max(0.0, job.due - now))
        self._resting.clear()
        for line in self._lines:
            for job in line.ready:
                self._dismiss(job, 0.0)
            line.ready.clear()

    @property
    def closed(self) -> bool:
        """Whether nothing is begun any more."""
        return self._closed

    def _dismiss(self, job: Job, rest: float) -> None:
        """Give a delivery back, and all that wait behind it."""
        self._give_back(job, rest)
        for behind in self._lanes.pop(job.lane, None) or ():
            self._give_back(behind, 0.0)

    def _make_ready(self, job: Job) -> None:
        job.line.ready.append(job)
        self._wake()

    def _awake(self, job: Job) -> None:
        self._resting.discard(job)
        job.timer = None
        self._make_ready(job)

    def _stop_running(self, job: Job) -> None:
        self._running.discard(job)
        job.line.running -= 1
        self._running_apart -= not job.line.in_batches
        self.freed.set()
        if job.line.ready:
            self._wake()

    def _leave(self, job: Job) -> None:
        behind = self._lanes.get(job.lane)
        if behind and not self._closed:
            self._make_ready(behind.popleft())
            return
        for each in self._lanes.pop(job.lane, None) or ():
            self._give_back(each, 0.0)

    def _resume(self, until: float) -> None:
        if self._paused_until == until:
            self.resume()

    def _unthrottle(self, event_type: str, until: float) -> None:
        for line in self._lines:
            if line.paused.get(event_type) == until:
                del line.paused[event_type]
        self._wake_all()

    def _wake_all(self) -> None:
        self.freed.set()
        for line in self._lines:
            for _ in range(min(len(line.ready), line.limit - line.running)):
                self._wake()

    def _is_free(self, line: Line) -> bool:
        """Whether one of the permits that handlers share is free, where it takes one."""
        return line.in_batches or self._most is None or self._running_apart < self._most

    def _unthrottled(self, line: Line) -> Job | None:
        for place, job in enumerate(line.ready):
            if job.subject.event_type not in line.paused:
                del line.ready[place]
                return job
        return None
