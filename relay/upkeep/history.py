"""The history of jobs: a row of `relay_runs` for each run. What cannot be written there stops no job."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from math import inf
from typing import Final

import psycopg

from relay.kernel.failure import MOST_CHARACTERS, code, redacted, sentence
from relay.kernel.line_redaction import Redaction, Words
from relay.kernel.observe import Observe
from relay.kernel.redaction import storable
from relay.postgres.session import Session
from relay.upkeep.events import RunEnded, RunUnrecorded
from relay.upkeep.run import Run

# A run that counts under more names than these is shown by the first of them.
_MOST_COUNTERS: Final = 100
_MOST_ERRORS: Final = 2**31 - 1
_MOST_COUNTED: Final = 2**63 - 1
# What passes with an outage: what could not be written then is written later, of so many runs at most.
_PASSING: Final = (psycopg.OperationalError, psycopg.InterfaceError, OSError)
_MOST_OWED: Final = 1_000
# What the end of a process leaves for a row.
HURRY_SECONDS: Final = 1.0
# A process looks for what is over so often, a page after the other, and does not go on with it for long.
_PRUNE_SECONDS: Final = 600.0
_PAGE_ROWS: Final = 500
_MOST_PAGES: Final = 20


@dataclass(frozen=True, slots=True)
class _Owed:
    """How a run has ended, and when, by the process's clock."""

    job: str
    worker: str
    values: Mapping[str, object]
    ended_at: float


class History:
    """That of all jobs of a process, over the session that they share; what is older than `kept` goes."""

    def __init__(
        self,
        session: Session,
        observe: Observe,
        kept: timedelta,
        redaction: Redaction,
        monotonic: Callable[[], float],
    ) -> None:
        self._session = session
        self._observe = observe
        self._kept = kept
        self._redaction = redaction
        self._monotonic = monotonic
        self._pruned_at = -inf
        # What is still to be written of runs that have ended, by their ids.
        self._owed: dict[int, _Owed] = {}

    @property
    def owes(self) -> bool:
        """Whether some run has ended of which the database was not there to hear."""
        return bool(self._owed)

    async def begin(self, run: Run) -> int | None:
        """Write that it begins, and that those of its job which ended without a word were killed; answer with its id.

        The job's lock must be held. None where it could not be written.
        """
        try:
            ((found,),) = await self._session.ask("run_begin", {"job": run.job, "slot": run.slot, "worker": run.worker})
        except Exception as error:  # noqa: BLE001 -- whatever it is, the job runs
            self._observe(RunUnrecorded(run.job, run.worker, error))
            return None
        return int(found)

    async def end(self, found: int | None, ended: RunEnded, *, hurry: bool) -> bool:
        """Write how the run of this id has ended, and say whether that went well; `hurry` where the process ends.

        Cancelled, it has as long as in a hurry. What an outage or the hurry was in the way of is left to `settle`.
        """
        if found is None:
            return False
        writing = asyncio.create_task(self._write(found, ended))
        try:
            await asyncio.wait({writing}, timeout=HURRY_SECONDS if hurry else None)
        except asyncio.CancelledError:
            await asyncio.wait({writing}, timeout=HURRY_SECONDS)
            raise
        finally:
            if not writing.done():
                writing.cancel()
                await asyncio.wait({writing})
                self._observe(RunUnrecorded(ended.job, ended.worker, TimeoutError(f"not within {HURRY_SECONDS:g} s")))
        return not writing.cancelled() and writing.result()

    async def settle(self) -> None:
        """Write what is owed; without it a run that has ended stands as running, and then as killed."""
        for found, owed in list(self._owed.items()):
            try:
                late = self._monotonic() - owed.ended_at
                await self._session.ask("run_end", {**owed.values, "late": late})
            except _PASSING:
                return
            except Exception as error:  # noqa: BLE001 -- whatever it is, it would be so again
                self._observe(RunUnrecorded(owed.job, owed.worker, error))
            self._owed.pop(found, None)

    async def _write(self, found: int, ended: RunEnded) -> bool:
        ended_at = self._monotonic()
        try:
            values = {"id": found, **self._as_kept(ended)}
            await self._session.ask("run_end", {**values, "late": 0.0})
        except asyncio.CancelledError:  # in a hurry, and not only a process's end is one: a pass may have no more time
            self._owe(found, _Owed(ended.job, ended.worker, values, ended_at))
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the job has run
            self._observe(RunUnrecorded(ended.job, ended.worker, error))
            if isinstance(error, _PASSING):
                self._owe(found, _Owed(ended.job, ended.worker, values, ended_at))
            return False
        return True

    def _owe(self, found: int, owed: _Owed) -> None:
        if len(self._owed) < _MOST_OWED:
            self._owed[found] = owed

    async def prune(self, run: Run) -> None:
        """Remove what is over, where it is time to look for it."""
        if self._monotonic() - self._pruned_at < _PRUNE_SECONDS:
            return
        self._pruned_at = self._monotonic()
        try:
            for _ in range(_MOST_PAGES):
                values = {"rows": _PAGE_ROWS, "seconds": self._kept.total_seconds()}
                ((removed,),) = await self._session.ask("runs_prune", values)
                # One that ended late keeps its page from being full, and much may be over behind it.
                if not removed or run.stopping:
                    return
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is tried again
            self._observe(RunUnrecorded(run.job, run.worker, error))

    def _as_kept(self, ended: RunEnded) -> dict[str, object]:
        words = self._said_of(ended)
        return {
            "status": ended.status.value,
            "counters": json.dumps(
                {
                    storable(name): max(-_MOST_COUNTED, min(count, _MOST_COUNTED))
                    for name, count in islice(ended.counters.items(), _MOST_COUNTERS)
                }
            ),
            "errors": min(ended.errors, _MOST_ERRORS),
            "error_code": words and words.code,
            "error": words and words.error[:MOST_CHARACTERS],
        }

    def _said_of(self, ended: RunEnded) -> Words | None:
        """What is kept of the error that ended it, or else of its last fault."""
        of_whom = {"job": ended.job, "worker": ended.worker}
        if ended.error is not None:
            return self._redaction.of_error("run_ended", ended.error, **of_whom)
        if (fault := ended.last_fault) is None:
            return None
        what = f"{redacted(fault.what)}: " if fault.what else ""
        words = Words(code(fault.error), f"{what}{sentence(fault.error)}")
        return self._redaction.words("run_fault", "warning", **of_whom, **words._asdict())
