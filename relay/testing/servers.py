"""Embedded servers that start when a test first asks for them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

from relay.dev.stack import EVERYTHING, Part, Stack


class Servers:
    """Postgres, Redis and the Pub/Sub emulator, of which those run that were asked for."""

    def __init__(self, given: Stack, opened: ExitStack) -> None:
        self._stack = given
        self._opened = opened
        urls = {Part.POSTGRES: given.given_database_url, Part.REDIS: given.given_redis_url}
        self._there = {part for part, url in urls.items() if url}

    @classmethod
    @contextmanager
    def for_tests(cls, environment: Mapping[str, str]) -> Iterator[Self]:
        """For the length of a `with` block; TEST_DATABASE_URL and TEST_REDIS_URL name servers of your own."""
        with ExitStack() as opened:
            given = Stack(
                given_database_url=environment.get("TEST_DATABASE_URL"),
                given_redis_url=environment.get("TEST_REDIS_URL"),
            )
            yield cls(given, opened)

    @property
    def database_url(self) -> str:
        """Where Postgres is, started by now."""
        return self.stack(Part.POSTGRES).database_url

    @property
    def redis_url(self) -> str:
        """Where Redis is, started by now."""
        return self.stack(Part.REDIS).redis_url

    @property
    def pubsub_emulator_host(self) -> str:
        """Where the Pub/Sub emulator is, started by now."""
        return self.stack(Part.PUBSUB).pubsub_emulator_host

    def stack(self, *parts: Part) -> Stack:
        """The stack with these parts, or with all of them; what does not run yet is started side by side."""
        missing = set(parts or EVERYTHING) - self._there
        if missing:
            stack, started = self._stack, self._opened.enter_context(Stack.start(missing))
            self._stack = replace(
                stack,
                postgres=stack.postgres or started.postgres,
                redis=stack.redis or started.redis,
                pubsub=stack.pubsub or started.pubsub,
            )
            self._there |= missing
        return self._stack
