"""The store in Redis, for code without an event loop."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar, Unpack
from uuid import UUID

from redis import Redis, RedisCluster
from redis.client import Pipeline
from redis.cluster import ClusterPipeline

from idempotency.answers import ClaimAnswer, Claimed, MarkAnswer, Marked, Result
from idempotency.asking import Asking
from idempotency.call import Call
from idempotency.calls import Calls
from idempotency.cluster import by_server, in_order
from idempotency.errors import IdempotencyError
from idempotency.examination import Facts, configured, warnings
from idempotency.idempotent import JSON, Codec, Key, Recipe
from idempotency.patience import ASKED_IN_VAIN, Patience, is_read_only, is_redirection
from idempotency.settings import DEFAULTS, Overrides, Settings, overridden
from idempotency.sync_idempotent import SyncIdempotent
from idempotency.sync_lock import SyncLock
from idempotency.sync_once import SyncOnce

_T = TypeVar("_T")
_NONE = timedelta(0)


class SyncManager:
    """`Manager` over a synchronous client of Redis; one may be shared by threads.

    Keys, scripts and promises are those of `Manager`, and each method is the one of the same name there.
    """

    def __init__(
        self,
        redis: Redis | RedisCluster,
        settings: Settings = DEFAULTS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        **overrides: Unpack[Overrides],
    ) -> None:
        _require_client(redis)
        self.settings = overridden(settings, overrides)
        self.clock = clock
        self.sleep = sleep
        self.chance = chance
        self._calls = Calls(self.settings)
        self._redis: Any = redis  # the client's types say neither what a script answers nor what is not decoded
        self._is_cluster = isinstance(redis, RedisCluster)

    def ask(self, call: Call[_T]) -> list[_T | IdempotencyError]:
        """Carry a call out, and answer for each of its events."""
        asking = Asking(call, by_slot=self._is_cluster)
        patience = Patience(self.settings, self.clock, self.chance)
        while commands := asking.commands():
            sent_at = self.clock()
            failure = asking.take(self._send(commands), sent_at)
            if failure is not None:
                self._recover(failure)
                pause = patience.pause(failure)
                if pause is None:
                    asking.give_up(patience.exhausted(failure))
                else:
                    self.sleep(pause)
        return asking.answers()

    def ask_one(self, call: Call[_T]) -> _T:
        """Carry a call about one event out; an error is raised."""
        answer = self.ask(call)[0]
        if isinstance(answer, IdempotencyError):
            raise answer
        return answer

    def check_and_mark_processed(self, consumer: str, event_id: UUID | str) -> bool:
        """At most once: mark the event as processed before its effect, and tell whether it was marked already."""
        return self.ask_one(self._calls.check(consumer, event_id))

    def check_and_mark_many(self, consumer: str, event_ids: Iterable[UUID | str]) -> list[bool | IdempotencyError]:
        """At most once: `check_and_mark_processed` for many events in one round trip; errors are answers."""
        return self.ask(self._calls.checks(consumer, event_ids))

    def mark(self, consumer: str, event_id: UUID | str) -> MarkAnswer:
        """At most once: like `check_and_mark_processed`, and `unmark` gives back what is Marked."""
        return self.ask_one(self._calls.mark(consumer, event_id))

    def mark_many(
        self, consumer: str, event_ids: Iterable[UUID | str], *, tokens: Sequence[str] | None = None
    ) -> list[MarkAnswer | IdempotencyError]:
        """`mark` for many events in one round trip; an error is the answer of its event.

        Whoever asks with a token of its own, one for each event, may ask again where it never got an answer.
        """
        return self.ask(self._calls.marks(consumer, event_ids, tokens))

    def unmark(self, marked: Marked) -> bool:
        """Forget a mark that this call's `mark` made; False leaves another's alone."""
        return self.ask_one(self._calls.discard(marked.key, marked.token))

    def claim(
        self, consumer: str, event_id: UUID | str, *, lease: timedelta | None = None, fingerprint: str | None = None
    ) -> ClaimAnswer:
        """Take the event for a lease, without marking it as processed."""
        prints = None if fingerprint is None else (fingerprint,)
        return self.ask_one(self._calls.claims(consumer, (event_id,), lease, prints))

    def claim_many(
        self,
        consumer: str,
        event_ids: Iterable[UUID | str],
        *,
        lease: timedelta | None = None,
        fingerprints: Sequence[str | None] | None = None,
        tokens: Sequence[str] | None = None,
    ) -> list[ClaimAnswer | IdempotencyError]:
        """`claim` for many events in one round trip; errors are answers. `tokens` as for `mark_many`."""
        return self.ask(self._calls.claims(consumer, event_ids, lease, fingerprints, tokens))

    def renew(self, claim: Claimed, *, lease: timedelta | None = None) -> Claimed:
        """Hold the event for another lease from now on. Raises LeaseLostError when it is no longer held."""
        return self.ask_one(self._calls.renewals((claim,), lease))

    def renew_many(
        self, claims: Iterable[Claimed], *, lease: timedelta | None = None
    ) -> list[Claimed | IdempotencyError]:
        """`renew` for many claims in one round trip; errors are answers."""
        return self.ask(self._calls.renewals(claims, lease))

    def complete(self, claim: Claimed, result: Result = None) -> None:
        """Mark the event as processed. Raises LeaseLostError when somebody else holds or has completed it."""
        return self.ask_one(self._calls.completions((claim,), (result,)))

    def complete_many(
        self, claims: Iterable[Claimed], results: Sequence[Result] | None = None
    ) -> list[IdempotencyError | None]:
        """`complete` for many claims in one round trip; errors are answers."""
        return self.ask(self._calls.completions(claims, results))

    def release(self, claim: Claimed, *, counted: bool = True, rest: timedelta = _NONE) -> None:
        """Give the event back: counted as an attempt or not, to be claimed at once or after a rest."""
        return self.ask_one(self._calls.releases((claim,), counted=counted, rest=rest))

    def release_many(
        self,
        claims: Iterable[Claimed],
        *,
        counted: bool | Sequence[bool] = True,
        rest: timedelta | Sequence[timedelta] = _NONE,
    ) -> list[IdempotencyError | None]:
        """`release` for many claims in one round trip; errors are answers."""
        return self.ask(self._calls.releases(claims, counted=counted, rest=rest))

    def forget(self, consumer: str, event_id: UUID | str, *, only_result: Result = None) -> bool:
        """Take away the event's mark, claim and attempts; whether there was anything.

        With `only_result`, in one step, if it was completed with exactly that.
        """
        return self.ask_one(self._calls.forget(consumer, event_id, only_result))

    def once(
        self, consumer: str, event_id: UUID | str, *, lease: timedelta | None = None, fingerprint: str | None = None
    ) -> SyncOnce:
        """`with manager.once(…) as work:` runs its body for an event that nobody has processed or holds."""
        return SyncOnce(self, consumer, event_id, lease, fingerprint)

    def lock(self, name: str, *, wait: timedelta = timedelta(seconds=10), lease: timedelta | None = None) -> SyncLock:
        """`with manager.lock(name):` keeps everybody else, on all machines, out of the same name."""
        return SyncLock(self, self._calls, name, wait, self.settings.lease if lease is None else lease)

    def idempotent(
        self,
        consumer: str,
        *,
        key: Key,
        lease: timedelta | None = None,
        fingerprint: Callable[..., str] | None = None,
        codec: Codec = JSON,
    ) -> SyncIdempotent:
        """Decorate a function that is to take effect once for each key; repeats get the first result."""
        return SyncIdempotent(self, Recipe(consumer, key, lease, fingerprint, codec))

    def examine(self, retention: timedelta | None = None) -> list[str]:
        """What an operator should know before the store is relied on, one sentence each; none when all is well."""
        facts = Facts()
        for section in ("memory", "persistence"):
            try:
                facts.learn(self._of_servers("info", section))
            except ASKED_IN_VAIN as error:
                facts.unread(section, error)
        try:
            facts.learn(configured(self._of_servers("config_get", "save")))
        except ASKED_IN_VAIN:
            facts.unknown_snapshots()
        return warnings(self.settings, retention, facts)

    def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not self._is_cluster or len(commands) == 1:
            return self._send_together(commands)
        groups = by_server(self._redis, commands)
        return in_order(
            groups,
            [self._send_together([commands[each] for each in group]) for group in groups],
        )

    def _send_together(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            if len(commands) == 1:
                return [self._redis.execute_command(*commands[0], NEVER_DECODE=True)]
            pipeline = self._redis.pipeline(**({} if self._is_cluster else {"transaction": False}))
            for command in commands:
                pipeline.execute_command(*command, NEVER_DECODE=True)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        except ASKED_IN_VAIN as error:
            return [error] * len(commands)
        return answers

    def _recover(self, failure: Exception) -> None:
        if self._is_cluster:
            if not is_redirection(failure):  # the client follows those by itself
                with suppress(*ASKED_IN_VAIN):  # told by the next try
                    self._redis.nodes_manager.initialize()
        elif is_read_only(failure):
            # What we are connected to is no master any more; where the name leads now is asked again.
            self._redis.connection_pool.disconnect(inuse_connections=False)

    def _of_servers(self, command: str, argument: str) -> list[dict[str, Any]]:
        if not self._is_cluster:
            return [getattr(self._redis, command)(argument)]
        answers = getattr(self._redis, command)(argument, target_nodes=RedisCluster.PRIMARIES)
        return list(answers.values()) if all(isinstance(each, dict) for each in answers.values()) else [answers]


def _require_client(redis: object) -> None:
    # A pipeline is a client by its type, and answers nothing when it is asked.
    if not isinstance(redis, Redis | RedisCluster) or isinstance(redis, Pipeline | ClusterPipeline):
        kind = f"{type(redis).__module__}.{type(redis).__qualname__}"
        raise TypeError(
            f"the manager takes a client of redis, such as idempotency.connect_sync(…), not a {kind};"
            " Manager takes one of redis.asyncio"
        )
