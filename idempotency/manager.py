"""The store in Redis, for code with an event loop."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.client import Pipeline

from idempotency.asking import Asking
from idempotency.call import Call
from idempotency.cluster import by_server, in_order
from idempotency.errors import IdempotencyError
from idempotency.examination import Facts, configured, warnings
from idempotency.patience import ASKED_IN_VAIN, Patience, is_read_only, is_redirection
from idempotency.settings import DEFAULTS, Overrides, Settings, overridden
from idempotency.store import Store

_T = TypeVar("_T")


class Manager(Store):
    """The store, over a Redis client of the caller's: `Manager(redis)` or `Manager(redis, prefix="shop")`.

    The client may be one of a single server, of Sentinel or of a Cluster, such as `connect` makes; it stays the
    caller's to close. A mark is the key `<prefix>:evt:processed:<consumer>:<event_id>`, which lives for `ttl`.

    Every call may be repeated by Redis's failures without taking effect twice. When Redis cannot be asked for
    `retry_for`, StoreUnavailableError is raised, or is the answer of each event in the calls that take many.
    """

    def __init__(
        self,
        redis: Redis | RedisCluster,
        settings: Settings = DEFAULTS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        **overrides: Unpack[Overrides],
    ) -> None:
        _require_client(redis)
        super().__init__(overridden(settings, overrides), clock=clock, sleep=sleep, chance=chance)
        self._redis: Any = redis  # the client's types say neither what a script answers nor what is not decoded
        self._is_cluster = isinstance(redis, RedisCluster)

    async def ask(self, call: Call[_T]) -> list[_T | IdempotencyError]:
        """Carry a call out, and answer for each of its events."""
        asking = Asking(call, by_slot=self._is_cluster)
        patience = Patience(self.settings, self.clock, self.chance)
        while commands := asking.commands():
            sent_at = self.clock()
            failure = asking.take(await self._send(commands), sent_at)
            if failure is not None:
                await self._recover(failure)
                pause = patience.pause(failure)
                if pause is None:
                    asking.give_up(patience.exhausted(failure))
                else:
                    await self.sleep(pause)
        return asking.answers()

    async def ask_one(self, call: Call[_T]) -> _T:
        """Carry a call about one event out; an error is raised."""
        if call.refused:
            return await super().ask_one(call)
        sent_at = self.clock()
        try:
            # Nearly every call is one, and succeeds: what follows a failure is made when there is one.
            raw = await self._redis.execute_command(*call.command(), NEVER_DECODE=True)
        except ASKED_IN_VAIN:
            return await super().ask_one(call)
        answer = call.answers(raw, sent_at)[0]
        if isinstance(answer, IdempotencyError):
            raise answer
        return answer

    async def examine(self, retention: timedelta | None = None) -> list[str]:
        """What an operator should know before the store is relied on, one sentence each; none when all is well."""
        facts = Facts()
        for section in ("memory", "persistence"):
            try:
                facts.learn(await self._of_servers("info", section))
            except ASKED_IN_VAIN as error:
                facts.unread(section, error)
        try:
            facts.learn(configured(await self._of_servers("config_get", "save")))
        except ASKED_IN_VAIN:
            facts.unknown_snapshots()
        return warnings(self.settings, retention, facts)

    async def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not self._is_cluster or len(commands) == 1:
            return await self._send_together(commands)
        groups = by_server(self._redis, commands)
        return in_order(
            groups,
            await asyncio.gather(*(self._send_together([commands[each] for each in group]) for group in groups)),
        )

    async def _send_together(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            if len(commands) == 1:
                return [await self._redis.execute_command(*commands[0], NEVER_DECODE=True)]
            pipeline = self._redis.pipeline(**({} if self._is_cluster else {"transaction": False}))
            for command in commands:
                pipeline.execute_command(*command, NEVER_DECODE=True)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except ASKED_IN_VAIN as error:
            return [error] * len(commands)
        return answers

    async def _recover(self, failure: Exception) -> None:
        if self._is_cluster:
            if not is_redirection(failure):  # the client follows those by itself
                with suppress(*ASKED_IN_VAIN):  # told by the next try
                    await self._redis.nodes_manager.initialize()
        elif is_read_only(failure):
            # What we are connected to is no master any more; where the name leads now is asked again.
            await self._redis.connection_pool.disconnect(inuse_connections=False)

    async def _of_servers(self, command: str, argument: str) -> list[dict[str, Any]]:
        if not self._is_cluster:
            return [await getattr(self._redis, command)(argument)]
        answers = await getattr(self._redis, command)(argument, target_nodes=RedisCluster.PRIMARIES)
        return list(answers.values()) if all(isinstance(each, dict) for each in answers.values()) else [answers]


def _require_client(redis: object) -> None:
    # A pipeline is a client by its type, and answers nothing when it is asked.
    if not isinstance(redis, Redis | RedisCluster) or isinstance(redis, Pipeline):
        kind = f"{type(redis).__module__}.{type(redis).__qualname__}"
        raise TypeError(
            f"the manager takes a client of redis.asyncio, such as idempotency.connect(…), not a {kind};"
            " SyncManager takes one of redis"
        )
