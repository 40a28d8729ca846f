"""All checks, in the order in which they are best read, for one relay as it is configured."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from relay.brokers.pubsub_client import PubSubAddress
from relay.errors import ConfigurationError, RelayError
from relay.operate.doctor.broker import broker_checks
from relay.operate.doctor.findings import Check, Finding, Report, examine, fail, ok, warn
from relay.operate.doctor.jobs import jobs_check
from relay.operate.doctor.look import Look
from relay.operate.doctor.outbox import MOST_COUNTED, outbox_checks
from relay.operate.doctor.server import server_checks
from relay.operate.remedies import heard_again
from relay.outbox.listening import Listening
from relay.postgres.connect import connect_async
from relay.upkeep.jobs import Job


@dataclass(frozen=True, slots=True)
class Patient:
    """The relay that is examined: what it would work with."""

    refusals: Sequence[str]  # why `relay run` would not start with these settings
    database_url: str
    app: str
    schema: str
    topics: Sequence[str]  # that its settings name
    publish_budget: timedelta
    batch_end: timedelta  # after which the database ends a batch in any case
    broker: PubSubAddress | None  # where it publishes
    warnings: Sequence[str] = ()  # what of the configuration has no effect
    listen: Callable[[], Awaitable[Listening]] | None = None  # how it would hear of new events, where it is to
    listens_at: str = ""  # the host and port of that; nothing where the configuration names none that can be
    jobs: Sequence[Job] = ()  # that it would run


# Two connections, of which each may take long, and the notification; less than any check may take.
WAKE_UP_SECONDS = 15.0


async def doctor(patient: Patient, tell: Callable[[Finding], None]) -> Report:
    """Look at everything that can be looked at, and tell each finding as it is made."""
    async with AsyncExitStack() as stack:
        return await _Examination(patient, stack).report(tell)


class _Examination:
    """The checks, on one connection that is closed with the stack."""

    def __init__(self, patient: Patient, stack: AsyncExitStack) -> None:
        self._patient = patient
        self._stack = stack
        self._look: Look | None = None
        self._topics = list(patient.topics)

    async def report(self, tell: Callable[[Finding], None]) -> Report:
        """Everything that can be looked at; without the database, the broker all the same."""
        opening = await examine([Check("configuration", self._configured), Check("database", self._connected)], tell)
        if self._look is not None:
            budget, batch = _ms(self._patient.publish_budget), _ms(self._patient.batch_end)
            of_server = server_checks(self._look, budget, batch)
            wake_up = Check("wake-up", self._woken)
            jobs = jobs_check(self._look, self._patient.jobs)
            database = await examine([*of_server, *outbox_checks(self._look), jobs, wake_up], tell)
            await self._name_topics(self._look)
        else:
            database = Report(())
        address = self._patient.broker
        broker = Report(()) if address is None else await examine(broker_checks(address, lambda: self._topics), tell)
        return Report(opening.findings + database.findings + broker.findings)

    async def _configured(self) -> Sequence[Finding]:
        remedy = "correct it, for relay run refuses to start; see every setting with: python -m relay config"
        refused = tuple(fail("configuration", sentence, remedy) for sentence in self._patient.refusals)
        aside = "correct the name, or remove it"
        stray = tuple(warn("configuration", sentence, aside) for sentence in self._patient.warnings)
        return (*(refused or (ok("configuration", "relay run would start with these settings"),)), *stray)

    async def _connected(self) -> Sequence[Finding]:
        try:
            connection = await connect_async(self._patient.database_url, self._patient.app)
        except (psycopg.Error, ConfigurationError) as error:
            return (
                fail(
                    "database",
                    f"cannot be reached, so neither it nor the outbox was looked at: {_first_line(error)}",
                    "see that it runs, that DATABASE_URL names it, and that this machine may connect",
                ),
            )
        self._stack.push_async_callback(connection.close)
        self._look = Look(connection, self._patient.schema)
        info = connection.info
        return (ok("database", f"{info.host}:{info.port}/{info.dbname} as {info.user}"),)

    async def _woken(self) -> Sequence[Finding]:
        if self._patient.listen is None:
            return (ok("wake-up", "RELAY_NOTIFY is off: an idle relay polls every RELAY_POLL_MS"),)
        if not self._patient.listens_at:
            return ()  # relay run does not start with it, which the configuration's check has said
        try:
            async with asyncio.timeout(WAKE_UP_SECONDS):
                listening = await self._patient.listen()
        except (psycopg.Error, RelayError, OSError) as error:
            said = _first_line(error) or f"no answer within {WAKE_UP_SECONDS:g} s"
            if isinstance(error, psycopg.errors.ConnectionTimeout | TimeoutError):
                said = f"{self._patient.listens_at}: {said}"
            return (warn("wake-up", f"the relay would not hear of new events, and poll: {said}", heard_again(error)),)
        found = ok("wake-up", f"a notification arrives at {listening.database}: an idle relay sleeps until an event")
        await listening.close()
        return (found,)

    async def _name_topics(self, look: Look) -> None:
        """Add what the oldest and newest pending rows name; where they cannot be read, a check has said so."""
        try:
            named = await look.rows("topics", most=MOST_COUNTED)
        except psycopg.Error:
            return
        self._topics += [row["topic"] for row in named if row["topic"] not in self._topics]


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
