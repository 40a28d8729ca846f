"""What several commands build from the settings, and read from the command line."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg

from relay.brokers.pubsub_client import PubSubAddress
from relay.errors import ConfigurationError
from relay.kernel import line_redaction
from relay.kernel.duration import parse
from relay.outbox import schema
from relay.outbox.listening import Listening
from relay.postgres.connect import connect_async
from relay.routes import Routes
from relay.settings import Settings, load


def loaded() -> Settings:
    """The settings of this call; names that look like settings and are none are told of first."""
    for warning in Settings.strangers():
        print(f"relay: warning: {warning}", file=sys.stderr)
    return load()


def duration(text: str) -> timedelta:
    """Read a duration of the command line."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pubsub_address(settings: Settings) -> PubSubAddress:
    """Where the broker is."""
    return PubSubAddress(**settings.address())


def redaction(settings: Settings) -> line_redaction.Redact | None:
    """The user's own hook for what is written, stored and shown. Raises ConfigurationError where it cannot be had."""
    try:
        return line_redaction.load(settings.relay_log_redact, "RELAY_LOG_REDACT")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def careful(settings: Settings) -> line_redaction.Redaction:
    """The hook, for what is not a log line; what it fails on is said where lines are written, or by `warned`."""
    return line_redaction.Redaction(redaction(settings))


def warned(settings: Settings) -> line_redaction.Redaction:
    """The same for a command: it says on stderr that the hook failed."""

    def complain(line: dict[str, Any]) -> None:
        print(
            f"relay: warning: the hook of RELAY_LOG_REDACT failed ({line['code']}): texts are left out", file=sys.stderr
        )

    return line_redaction.Redaction(redaction(settings), complain)


def routes(settings: Settings) -> Routes:
    """Which topic each event goes to."""
    return Routes.parse(settings.relay_routes, settings.relay_topic)


def listening_opener(settings: Settings) -> Callable[[], Awaitable[Listening]]:
    """Opens the session on which a relay hears of new events."""
    url, setting = settings.require_database(), "DATABASE_URL"
    if listen_url := settings.relay_listen_url.get_secret_value():
        url, setting = listen_url, "RELAY_LISTEN_URL"
    outbox = outbox_connector(settings)

    async def listener() -> psycopg.AsyncConnection[Any]:
        return await connect_async(url, settings.relay_name, setting)

    async def opened() -> Listening:
        return await Listening.open(listener, outbox, settings.relay_schema)

    return opened


def outbox_connector(
    settings: Settings, found: Callable[[int], None] = lambda _: None
) -> Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]:
    """Connects to a database whose outbox is one that this code works on; `found` is told its schema's version."""
    url = settings.require_database()
    app = settings.relay_name

    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(url, app)
        try:
            found(await schema.require(connection, settings.relay_schema))
        except BaseException:  # a cancellation, too, leaves no session behind
            await connection.close()
            raise
        return connection

    return connect
