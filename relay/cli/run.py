"""`relay run` and `relay tick`: the same runners, in the background or for one pass."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from relay.brokers.pubsub import PubSub, PubSubAddress
from relay.kernel.clock import SystemClock
from relay.kernel.loop import Loop
from relay.kernel.observe import Observe
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import supervise
from relay.kernel.tick import tick
from relay.kernel.worker import Worker
from relay.operate import logs
from relay.outbox import schema
from relay.outbox.connect import connect_async
from relay.outbox.outbox import Outbox
from relay.publisher.publisher import Publisher, PublishPolicy
from relay.settings import Settings, load


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    background = commands.add_parser(
        "run",
        help="publish until told to stop",
        description="Publishes in the background until SIGTERM or SIGINT; a second signal ends it at once.",
        epilog="example: python -m relay run",
    )
    background.set_defaults(command=lambda _: asyncio.run(_run(load())))
    once = commands.add_parser(
        "tick",
        help="publish what is due, print a report, exit",
        description="Calls each runner once, prints a JSON report, and exits 0 unless one of them raised.",
        epilog="example, every minute: * * * * * python -m relay tick",
    )
    once.set_defaults(command=lambda _: asyncio.run(_tick(load())))


async def _run(settings: Settings) -> int:
    shutdown, clock, observe = _begin(settings)
    worker = Worker(await _publisher(settings, observe), clock, observe)
    loop = Loop(worker, clock, settings.relay_runner_max_ms.total_seconds())
    abandoned = await supervise([loop], shutdown, clock, settings.relay_shutdown_ms.total_seconds(), observe)
    return 1 if abandoned else 0


async def _tick(settings: Settings) -> int:
    shutdown, clock, observe = _begin(settings)
    publisher = await _publisher(settings, observe)
    try:
        report = await tick(
            [Worker(publisher, clock, observe)],
            shutdown,
            clock,
            settings.relay_tick_max_ms.total_seconds(),
            settings.relay_runner_max_ms.total_seconds(),
        )
    finally:
        await publisher.close()
    print(json.dumps(report.as_json()))
    return 1 if report.failed else 0


def _begin(settings: Settings) -> tuple[Shutdown, SystemClock, Observe]:
    logs.configure(settings.relay_log_level)
    shutdown = Shutdown()
    shutdown.listen()
    return shutdown, SystemClock(), logs.LogLines()


async def _publisher(settings: Settings, observe: Observe) -> Publisher:
    connect = _connector(settings)
    address = PubSubAddress(
        project=settings.require_project(),
        emulator=settings.pubsub_emulator_host or None,
        endpoint=settings.pubsub_endpoint or None,
    )
    outbox = Outbox(connect, settings.relay_schema, round(settings.relay_idle_tx_ms.total_seconds() * 1000))
    await outbox.open()
    policy = PublishPolicy(
        topic=settings.relay_topic,
        batch_size=settings.relay_batch_size,
        publish_seconds=settings.relay_publish_budget_ms.total_seconds(),
        pace=PublishPolicy.pace_of(
            settings.relay_poll_ms.total_seconds(),
            settings.relay_poll_jitter_ms.total_seconds(),
            settings.relay_outage_max_ms.total_seconds(),
        ),
    )
    return Publisher(outbox, PubSub(address), policy, observe)


def _connector(settings: Settings) -> Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]:
    url = settings.require_database()

    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(url)
        try:
            await schema.require(connection, settings.relay_schema)
        except BaseException:
            await connection.close()
            raise
        return connection

    return connect
