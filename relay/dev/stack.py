"""Postgres, Redis and the Pub/Sub emulator together, for as long as a `with` block."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from relay.dev.account import postgres_account
from relay.dev.emulator import EmbeddedPubSub
from relay.dev.postgres import EmbeddedPostgres
from relay.dev.redis import EmbeddedRedis
from relay.dev.sandbox import Sandbox
from relay.dev.server import EmbeddedServer
from relay.errors import DevError

PROJECT_ID = "outbox-relay-dev"


class Part(Enum):
    """A server of the stack."""

    POSTGRES = "postgres"
    REDIS = "redis"
    PUBSUB = "pubsub"


EVERYTHING = frozenset(Part)


@dataclass(frozen=True)
class Stack:
    """The servers of a stack that runs; a part that was not started here is None."""

    postgres: EmbeddedPostgres | None = None
    redis: EmbeddedRedis | None = None
    pubsub: EmbeddedPubSub | None = None
    given_database_url: str | None = None
    given_redis_url: str | None = None

    @staticmethod
    @contextmanager
    def start(
        parts: Collection[Part] = EVERYTHING,
        *,
        postgres_settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> Iterator["Stack"]:
        """Start the parts side by side; they and their data are gone when the block ends.

        `postgres_settings` and `durable` are those of `EmbeddedPostgres`.
        """
        wanted = set(parts)
        account = postgres_account() if Part.POSTGRES in wanted else None
        with Sandbox(account) as sandbox:
            stack = Stack(
                postgres=EmbeddedPostgres(sandbox, settings=postgres_settings, durable=durable)
                if Part.POSTGRES in wanted
                else None,
                redis=EmbeddedRedis(sandbox) if Part.REDIS in wanted else None,
                pubsub=EmbeddedPubSub(sandbox) if Part.PUBSUB in wanted else None,
            )
            for server in stack.servers:
                server.begin()
            for server in stack.servers:
                server.ready()
            yield stack

    @property
    def servers(self) -> tuple[EmbeddedServer, ...]:
        """The servers started here, the slowest to start first."""
        ours = (self.pubsub, self.postgres, self.redis)
        return tuple(server for server in ours if server is not None)

    @property
    def database_url(self) -> str:
        """Where Postgres is."""
        return self._address(Part.POSTGRES, self.given_database_url, self.postgres)

    @property
    def redis_url(self) -> str:
        """Where Redis is."""
        return self._address(Part.REDIS, self.given_redis_url, self.redis)

    @property
    def pubsub_emulator_host(self) -> str:
        """Where the Pub/Sub emulator is."""
        return self._address(Part.PUBSUB, None, self.pubsub)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables under which this project's programs find the stack."""
        variables: dict[str, str] = {}
        if self.postgres or self.given_database_url:
            variables["DATABASE_URL"] = self.database_url
        if self.redis or self.given_redis_url:
            variables["REDIS_URL"] = self.redis_url
        if self.pubsub:
            variables["PUBSUB_EMULATOR_HOST"] = self.pubsub_emulator_host
            variables["PUBSUB_PROJECT_ID"] = PROJECT_ID
        return variables

    @staticmethod
    def _address(part: Part, given: str | None, server: EmbeddedServer | None) -> str:
        if given:
            return given
        if server is None:
            raise DevError(f"This stack was started without {part.value}. Add it to the parts.")
        return server.url
