"""Whether handlers are idempotent: every mishap that a broker or a process may have, and what it did to the effects."""

import inspect
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from consumers.app import Consumer
from consumers.events import Fate
from consumers.testing.deliveries import UNSET, Deliveries, changed, in_memory
from consumers.testing.killing import Kill, Killing, Run

Given = tuple[str, Any] | Mapping[str, Any]
Effects = Callable[[], Any]
_Event = Mapping[str, Any]
_IDS = UUID("6f0f5c1e-9f4c-4c6e-8f0c-3f6f3b9d2a10")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """A run whose effects were not those of a run without a mishap."""

    run: str
    """What happened, in words."""
    difference: str
    """What was otherwise, in words."""
    duplicates: int
    """Effects that were there more than once, where effects can be counted."""
    missing: int
    """And those that were not there."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the runs came to. As text: a line for each failure."""

    runs: int
    failures: tuple[Failure, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every run had the effects of the one without a mishap."""
        return not self.failures

    def __str__(self) -> str:
        if self.holds:
            return f"{self.runs} runs, each with the effects of one delivery"
        lines = [f"{failure.run}: {failure.difference}" for failure in self.failures]
        return f"{len(lines)} of {self.runs} runs had other effects:\n" + "\n".join(f"- {line}" for line in lines)


async def prove_idempotent(  # noqa: PLR0913 -- each by its name
    consumer: Consumer,
    events: Sequence[Given],
    *,
    effects: Effects,
    reset: Callable[[], Any],
    state: Any = UNSET,
    orders: int = 5,
    seed: int = 0,
) -> Proof:
    """Deliver the events twice, in other orders, and kill the process wherever that can happen; compare the effects.

    First the events are delivered once, and what `effects` says then is what every other run has to come to. A list of
    effects is compared without its order. Then each event is delivered twice, in `orders` different orders (that of an
    ordering key is kept, as the broker does). Then the process is killed: before each handler begins, at each place
    where it waits, when it has returned, and when it was completed. Killed is: nothing that is done from then on
    reaches the store or the broker, the message comes again, and the claim is there until its lease has run out. The
    handler is cancelled where it waits, so that a transaction which it has open is rolled back; a process that is
    really killed runs no `except` and no `finally`. A plain function cannot be killed within, only before and after.

    Args:
        consumer: Whose handlers are tried, with its deduplication.
        events: As (event_type, data), or as a mapping of what `Deliveries.publish` takes.
        effects: Says what effects there are now, and may be asynchronous: the rows of a table, a list of calls.
        reset: Makes everything as before the first event, and may be asynchronous.
        state: What handlers get as `ctx.state`, in place of the consumer's lifespan.
        orders: How many orders are tried.
        seed: Of the orders.

    Example:
        proof = await prove_idempotent(billing, [("order.paid", {"order": "o-1"})], effects=ledger.copy,
                                       reset=ledger.clear)
        assert proof.holds, proof
    """
    given = [_published(index, event) for index, event in enumerate(events)]
    if not given:
        raise ValueError("there are no events; give some, such as [('order.paid', {'order': 'o-1'})]")
    trial = _Trial(consumer, given, effects, reset, state)
    plain = Run("delivered once", range(len(given)))
    expected = await trial.effects_of(plain)
    failures: list[Failure] = []
    runs = [*_twice(given, orders, random.Random(seed)), *_kills(given, plain)]  # noqa: S311 -- an order
    for run in runs:
        found = await trial.effects_of(run)
        if difference := _difference(expected, found):
            failures.append(Failure(run.words, *difference))
    return Proof(len(runs) + 1, tuple(failures))


class _Trial:
    """Runs the same events again and again."""

    def __init__(
        self,
        consumer: Consumer,
        given: Sequence[_Event],
        effects: Effects,
        reset: Callable[[], Any],
        state: Any,
    ) -> None:
        self._consumer = consumer
        self._given = given
        self._effects = effects
        self._reset = reset
        self._state = state
        self._numbers = {event["event_id"]: number for number, event in enumerate(given)}

    async def effects_of(self, run: Run) -> Any:
        """What the run came to."""
        await _awaited(self._reset())
        killing = Killing(run, self._numbers)
        watched = changed(self._consumer, handlers=lambda handlers: handlers.wrapped(killing.around))
        async with in_memory(watched, state=self._state) as deliveries:
            killing.reaches(deliveries)
            for number in run.order:
                deliveries.publish(**self._given[number])
            while deliveries.pending:
                if killing.killed.is_set():
                    killing.killed.clear()
                    await deliveries.crash()
                    await deliveries.restart()
                await deliveries.step()
            if run.kill is None and run.words == "delivered once":
                _require_effects(deliveries)
        return _copied(await _awaited(self._effects()))


def _twice(given: Sequence[_Event], orders: int, chance: random.Random) -> list[Run]:
    once = range(len(given))
    runs = [
        Run("delivered twice, each after itself", [number for number in once for _ in range(2)]),
        Run("delivered twice, all after all", [*once, *once]),
    ]
    for _ in range(orders):
        mixed = [*once, *once]
        chance.shuffle(mixed)
        order = _kept(mixed, given)
        runs.append(Run(f"delivered twice, in the order {', '.join(str(each + 1) for each in order)}", order))
    return runs


def _kept(mixed: Sequence[int], given: Sequence[_Event]) -> list[int]:
    """The order, but for that of the events of one ordering key: these come in their own."""
    of_key: dict[str, list[int]] = {}
    for number in sorted(mixed):
        of_key.setdefault(given[number].get("ordering_key", ""), []).append(number)
    return [of_key[key].pop(0) if (key := given[number].get("ordering_key", "")) else number for number in mixed]


def _kills(given: Sequence[_Event], plain: Run) -> list[Run]:
    runs = []
    for number, event in enumerate(given):
        waits = plain.waits[number]
        places = [Kill(number, wait) for wait in range(waits + 1)]
        places += [Kill(number), Kill(number, acknowledging=True)]
        name = f"event {number + 1} ({event['event_type']})"
        runs += [Run(place.words(name, waits), range(len(given)), place) for place in places]
    return runs


def _published(index: int, event: Given) -> Mapping[str, Any]:
    told = {"event_type": event[0], "data": event[1]} if isinstance(event, tuple) else dict(event)
    identity = told.get("event_id") or uuid5(_IDS, str(index))
    return {**told, "event_id": UUID(str(identity))}


def _require_effects(deliveries: Deliveries) -> None:
    fates = {settled.fate for settled in deliveries.settled if settled.fate.final} - {Fate.DONE, Fate.SKIPPED}
    if fates:
        words = ", ".join(sorted(fate.value for fate in fates))
        raise ValueError(f"delivered once, without a mishap, some events were {words}; give events that are acted on")


def _difference(expected: Any, found: Any) -> tuple[str, int, int] | None:
    if not isinstance(expected, list | tuple) or not isinstance(found, list | tuple):
        return None if expected == found else (f"effects were {found!r:.200}, not {expected!r:.200}", 0, 0)
    wanted, had = Counter(map(repr, expected)), Counter(map(repr, found))
    extra, missing = had - wanted, wanted - had
    if not extra and not missing:
        return None
    words = [f"{each:.100} {had[each]} times instead of {_times(wanted[each])}" for each in list(extra)[:_SHOWN]]
    words += [f"{each:.100} {_times(had[each])} instead of {_times(wanted[each])}" for each in list(missing)[:_SHOWN]]
    return "; ".join(words), extra.total(), missing.total()


def _times(number: int) -> str:
    return {0: "not at all", 1: "once"}.get(number, f"{number} times")


def _copied(effects: Any) -> Any:
    # The next reset may empty what we were given.
    return list(effects) if isinstance(effects, list) else dict(effects) if isinstance(effects, dict) else effects


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
