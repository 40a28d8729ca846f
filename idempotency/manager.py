"""Remembers in Redis which events a consumer has processed."""

from datetime import timedelta
from importlib import resources
from uuid import UUID, uuid4

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency import keys

# As long as a broker may redeliver, and then some.
DEFAULT_TTL = timedelta(hours=720)

_MILLISECOND = timedelta(milliseconds=1)


class Manager:
    """The store, over a Redis client of the caller's.

    A mark is the key `<prefix>:evt:processed:<consumer>:<event_id>`, which lives for `ttl`.
    """

    def __init__(self, redis: Redis | RedisCluster, *, prefix: str = "pf", ttl: timedelta = DEFAULT_TTL) -> None:
        _require_client(redis)
        self._prefix = prefix
        self._life_ms = _milliseconds(ttl)
        script = resources.files("idempotency").joinpath("scripts", "check_and_mark.lua")
        self._check_and_mark = redis.register_script(script.read_text(encoding="utf-8"))

    async def check_and_mark_processed(self, consumer: str, event_id: UUID | str) -> bool:
        """At most once: mark the event as processed before its effect, and tell whether it was marked already.

        True means "processed before, skip it". Of many callers at once exactly one gets False, and gets it although
        an answer was lost on the way and Redis was asked again. Raises InvalidKeyError for a nameless consumer and
        for an event id that is no UUID.

        What nobody can repair: a consumer that crashes between this call and its effect does not get the event again.
        Where Redis fails until its exception reaches the caller, or the call is cancelled, the mark may be set or not;
        if it is, the next delivery is told True although nobody acted.
        """
        key = keys.processed(self._prefix, consumer, event_id)
        # The call's and not the request's: a request that is sent again is still the same call.
        token = uuid4().hex
        try:
            return await self._is_marked_by_another(key, token)
        except (RedisConnectionError, RedisTimeoutError):
            # A client made by `from_url` does not ask again by itself.
            return await self._is_marked_by_another(key, token)

    async def _is_marked_by_another(self, key: str, token: str) -> bool:
        return bool(await self._check_and_mark(keys=[key], args=[token, self._life_ms]))


def _require_client(redis: object) -> None:
    # A pipeline is a client by its type, and answers nothing when it is asked.
    if not isinstance(redis, Redis | RedisCluster) or isinstance(redis, Pipeline):
        kind = f"{type(redis).__module__}.{type(redis).__qualname__}"
        raise TypeError(
            f"the manager takes a client of redis.asyncio, such as redis.asyncio.Redis.from_url(…), not a {kind}"
        )


def _milliseconds(ttl: timedelta) -> int:
    if not isinstance(ttl, timedelta):
        raise TypeError(f"ttl is {ttl!r}; write it like timedelta(hours=720)")
    if ttl < _MILLISECOND:
        raise ValueError(f"ttl is {ttl!r}, and a mark has to live for a millisecond at least")
    return ttl // _MILLISECOND
