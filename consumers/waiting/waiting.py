"""Waiting for the ends of deliveries, as a service does it."""

import asyncio
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.inbox.session import Connect
from consumers.waiting.answers import Answer
from consumers.waiting.lookout import Lookout
from consumers.waiting.waiter import Delivery, seconds_of, target_of
from relay import errors as relay_errors
from relay.kernel import code_duration as duration
from relay.kernel.clock import Clock, SystemClock
from relay.postgres.connect import DATABASE_URL, connect_async

if TYPE_CHECKING:
    from consumers.settings import Settings

# How much longer than it asked somebody waits for the first look of theirs, where the database takes its time.
_GRACE_SECONDS: Final = 5.0


class Waiting:
    """Waits for what consumers with an inbox do, whoever has stored it. One in each process, for one event loop.

    It takes two connections, when somebody first waits: one that looks for all that wait together, and one that is
    notified of what ends. Without notifications it goes on looking, once a second at least.

    Args:
        url: The database that has the inbox.
        schema: The inbox's.
        app: The name of the connections, in pg_stat_activity.
        listen_url: A way to the same database past a pooler, for the notifications. Default: the url.
        wait: How long `wait` takes at most, where it is not told. Default: 15 s.
        most: And how long a client of an endpoint may have it wait. Default: 30 s.
        retry_after: When it makes sense to ask again. Default: 1 s.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        url: str,
        *,
        schema: str = "public",
        app: str = "",
        listen_url: str | None = None,
        wait: duration.Duration = 15.0,
        most: duration.Duration = 30.0,
        retry_after: duration.Duration = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.default = _seconds("wait", wait)
        self.most = _seconds("most", most)
        self.retry_after = _seconds("retry_after", retry_after)
        if self.default > self.most:
            raise ConfigurationError(
                f"wait is {duration.shown(wait)}, longer than most, {duration.shown(most)}; give that or less"
            )
        place, ear = checked(url), checked(listen_url or url)
        self._connect: Connect = partial(connect_async, place, app)
        self._listen: Connect = partial(connect_async, ear, app, "listen_url" if listen_url else DATABASE_URL)
        self._schema = schema
        self._clock = clock or SystemClock()
        self._lookout: Lookout | None = None
        self._closed = False

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """As DATABASE_URL and the settings INBOX_… say: `Waiting.of(consumers.settings.load())`."""
        try:
            settings.require("database_url")
        except relay_errors.ConfigurationError as error:
            raise ConfigurationError(str(error)) from None
        return cls(
            settings.database_url.get_secret_value(),
            schema=settings.inbox_schema,
            app=settings.consumers_name,
            wait=settings.inbox_wait_ms,
            most=settings.inbox_wait_most_ms,
        )

    async def wait(self, delivery: Delivery, seconds: float | None = None) -> Answer:
        """What has come of a delivery when it ends, or when the time is over; with 0 seconds, what it is now.

        It is what `enqueue` has answered, its id, or the consumer's name and the id of the event. An event may be still
        on its way to the inbox; a delivery must be committed, or UnknownDeliveryError is raised.

        Raises StoreUnavailableError where the database was not reached in all that time, and ConfigurationError where
        it has no inbox that may be read here.
        """
        limit = self.default if seconds is None else seconds_of(seconds)
        target = target_of(delivery)
        lookout = self._at_work()
        waiter = lookout.enter(target)
        try:
            await self._clock.wait(waiter.ended, limit)
            if not waiter.looked.is_set():
                await self._clock.wait(waiter.looked, _GRACE_SECONDS)
            return waiter.said()
        finally:
            lookout.leave(waiter)

    async def close(self) -> None:
        """Let all that wait go, with what they know, and end the connections."""
        self._closed = True
        lookout, self._lookout = self._lookout, None
        if lookout is not None:
            await lookout.close()

    async def __aenter__(self) -> Self:
        self._closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _at_work(self) -> Lookout:
        if self._closed:
            raise RuntimeError("this Waiting is closed; it is open again within `async with`")
        if self._lookout is None:
            self._lookout = Lookout(
                self._connect, self._listen, self._schema, clock=self._clock, retry_after=self.retry_after
            )
        if self._lookout.loop is not asyncio.get_running_loop():
            raise RuntimeError("this Waiting is at work in another event loop; close it there, or make one for each")
        return self._lookout


def _seconds(name: str, value: duration.Duration) -> float:
    try:
        return duration.read(value).total_seconds()
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
