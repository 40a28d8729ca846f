"""A call on its way: which of its parts are still to be answered, whatever client carries them."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from redis.exceptions import NoScriptError

from idempotency.call import Call
from idempotency.errors import IdempotencyError, StoreUnavailableError
from idempotency.patience import is_away, refused

T = TypeVar("T")


class Asking(Generic[T]):
    """The parts of a call, each a command of its own; those that failed are asked again, those answered are not."""

    def __init__(self, call: Call[T], *, by_slot: bool) -> None:
        self._call = call
        self._positions = call.by_slot() if by_slot else call.by_size()
        self._parts = [call] if len(self._positions) == 1 else [call.part(each) for each in self._positions]
        self._answers: list[Any] = [None] * len(call.items)
        self._pending = list(range(len(self._parts)))
        self._by_text: set[int] = set()

    def commands(self) -> list[tuple[Any, ...]]:
        """What is to be sent now; nothing when all is answered."""
        return [self._parts[each].command(by_text=each in self._by_text) for each in self._pending]

    def take(self, raws: Sequence[Any], sent_at: float) -> Exception | None:
        """Keep the answers to the commands, and return why some must wait, if so."""
        pending: list[int] = []
        failure: Exception | None = None
        for each, raw in zip(self._pending, raws, strict=True):
            if not isinstance(raw, Exception):
                self._keep(each, self._parts[each].answers(raw, sent_at))
                continue
            if isinstance(raw, NoScriptError):
                # A restart or a failover empties the server's cache of scripts.
                self._by_text.add(each)
                pending.append(each)
            elif is_away(raw):
                failure = raw
                pending.append(each)
            else:
                pending += self._alone(each, raw)
        self._pending = pending
        return failure

    def give_up(self, error: StoreUnavailableError) -> None:
        """Answer the error for whatever is not answered yet."""
        for each in self._pending:
            self._keep(each, [error] * len(self._parts[each].items))
        self._pending = []

    def answers(self) -> list[T | IdempotencyError]:
        """An answer for each event of the call, in its order."""
        return self._call.whole(self._answers)

    def _alone(self, part: int, error: Exception) -> list[int]:
        """Ask for each event of a part by itself: the one that Redis refuses must not cost the others."""
        positions = self._positions[part]
        if len(positions) == 1:
            self._keep(part, [refused(error)])
            return []
        first = len(self._parts)
        self._positions += [[each] for each in positions]
        self._parts += [self._call.part([each]) for each in positions]
        return list(range(first, len(self._parts)))

    def _keep(self, part: int, answers: Sequence[Any]) -> None:
        for position, answer in zip(self._positions[part], answers, strict=True):
            self._answers[position] = answer
