"""Connections to the outbox, told of as they are made."""

from dataclasses import replace
from typing import Any

import psycopg

from relay.cli.parts import outbox_connector, pubsub_address
from relay.cli.runners import publishes
from relay.kernel.observe import Observe
from relay.operate.events import Reconnected, SchemaDiffers, Started
from relay.outbox import schema
from relay.settings import Settings


class Version:
    """The schema's version as it was last found; told of, once, where it is not this release's own."""

    def __init__(self, settings: Settings, observe: Observe) -> None:
        self.known = schema.newest()
        self._schema = settings.relay_schema
        self._observe = observe

    def __call__(self, version: int) -> None:
        """Take note of the version that a connection found."""
        if version not in {self.known, schema.newest()}:
            self._observe(SchemaDiffers(self._schema, version, schema.newest()))
        self.known = version


class Announced:
    """Connects to the outbox and tells of it: the first time says where the relay works, later ones that it is back."""

    def __init__(self, settings: Settings, observe: Observe) -> None:
        self.runners: tuple[str, ...] = ()
        self._settings = settings
        self._observe = observe
        self._version = Version(settings, observe)
        self._connect = outbox_connector(settings, self._version)
        self._again = False

    async def __call__(self) -> psycopg.AsyncConnection[Any]:
        """A connection that is kept."""
        connection = await self._connect()
        if self._again:
            self._observe(Reconnected(_place(connection)))
        self._tell_first(connection)
        return connection

    async def first(self) -> psycopg.AsyncConnection[Any]:
        """One that is not: only the first is worth a word."""
        connection = await self._connect()
        self._tell_first(connection)
        return connection

    def _tell_first(self, connection: psycopg.AsyncConnection[Any]) -> None:
        if not self._again:
            self._again = True
            self._observe(_started(_place(connection), self._version.known, self.runners, self._settings))


def _place(connection: psycopg.AsyncConnection[Any]) -> str:
    info = connection.info
    return f"{info.host}:{info.port}/{info.dbname}"


def _started(database: str, version: int, runners: tuple[str, ...], settings: Settings) -> Started:
    started = Started(database, settings.relay_schema, version, runners, None, None, None, None)
    if not publishes(settings):
        return started
    address = pubsub_address(settings)
    return replace(
        started,
        project=address.project,
        broker=f"emulator {address.emulator}" if address.emulator else address.endpoint or "pubsub.googleapis.com",
        topic=settings.relay_topic,
        batch_size=settings.relay_batch_size,
    )
