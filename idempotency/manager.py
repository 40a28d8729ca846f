"""Remembers in Redis which events a consumer has processed."""

from datetime import timedelta
from uuid import UUID

from redis.asyncio import Redis

from idempotency import keys

# As long as a broker may redeliver, and then some.
DEFAULT_TTL = timedelta(hours=720)


class Manager:
    """The store, over a Redis client of the caller's."""

    def __init__(self, redis: Redis, *, prefix: str = "pf", ttl: timedelta = DEFAULT_TTL) -> None:
        self._redis = redis
        self._prefix = prefix
        self._ttl = ttl

    async def check_and_mark_processed(self, consumer: str, event_id: UUID | str) -> bool:
        """At most once: mark the event as processed before its effect, and tell whether it was marked already.

        True means "processed before, skip it". Of many callers at once exactly one gets False. A consumer that
        crashes between this call and its effect does not get the event again.
        """
        key = keys.processed(self._prefix, consumer, event_id)
        return not await self._redis.set(key, "1", nx=True, ex=self._ttl)
