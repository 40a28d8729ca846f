"""The oracle in tests: everything that was published has arrived, and nothing else."""

from dataclasses import dataclass

import psycopg

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_reader import PubSubReader
from relay.dev.stack import PROJECT_ID
from relay.operate.audit import AuditedOutbox, AuditReport, audit
from relay.routes import Routes
from tests.support.pubsub import Channel
from tests.support.roles_of_tests import as_viewer

QUIET_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Audit:
    """Audits channels against one database, in the test's own process."""

    emulator: str
    database: str

    async def __call__(
        self, channel: Channel, quiet: float = QUIET_SECONDS, routes: Routes | None = None
    ) -> AuditReport:
        """Empty the channel's subscription and compare it with the outbox."""
        address = PubSubAddress(PROJECT_ID, emulator=self.emulator)
        async with (
            await psycopg.AsyncConnection.connect(as_viewer(self.database), autocommit=True) as connection,
            PubSubReader(address, channel.subscription) as reader,
        ):
            return await audit(
                reader, AuditedOutbox(connection, "public", PROJECT_ID, routes or Routes(channel.topic)), quiet
            )
