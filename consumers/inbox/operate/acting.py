"""Acting on the deliveries that were chosen, batch after batch, and saying what became of each."""

from collections.abc import AsyncIterator
from dataclasses import replace

from consumers.inbox.operate.choice import Choice, State
from consumers.inbox.operate.deliveries import Deliveries, Progress
from consumers.inbox.operate.rows import Action, Listed, Operator, Tally
from idempotency import StoreUnavailableError
from relay.errors import OperateError

ACTED = "acted"
_MOST_NAMED = 5


async def named(deliveries: Deliveries, choice: Choice) -> list[Listed]:
    """The deliveries of these names. Raises OperateError for a name that none has."""
    found = [row async for page in deliveries.pages(choice) for row in page]
    known = {str(row.id) for row in found} | {row.event_id for row in found}
    missing = [str(name) for name in (*choice.ids, *choice.event_ids) if str(name) not in known]
    if missing:
        whose = f" of {choice.consumer!r}" if choice.consumer is not None else ""
        more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
        raise OperateError(
            f"the inbox has no delivery {', '.join(missing[:_MOST_NAMED])}{more}{whose}; it was deleted, or never there"
        )
    return found


class Acting:
    """One action of a command; `done` is whether what is done may be done again."""

    def __init__(self, deliveries: Deliveries, action: Action, *, done: bool = False) -> None:
        self._deliveries = deliveries
        self._action = action
        self._done = done

    async def act(self, choice: Choice, operator: Operator, progress: Progress) -> Tally:
        """Do it to what is chosen and was so when this began; what fails again meanwhile is left alone.

        Raises OperateError where it ends halfway: whole batches are done then, and it says how many deliveries.
        """
        tally = Tally()
        try:
            async for page in self._pages(choice):
                fit = self._fitting(page, tally)
                became = await self._deliveries.act(self._action, fit, operator) if fit else {}
                tally.act([row for row in fit if became[row.id] == ACTED])
                for row in fit:
                    if became[row.id] != ACTED:
                        tally.leave(row, became[row.id])
                progress("deliveries done", tally.acted)
        except StoreUnavailableError as error:
            raise OperateError(f"{tally.acted:,} deliveries are done and recorded; {error}") from error
        return tally

    async def choose(self, choice: Choice, progress: Progress, most: int | None = None) -> Tally:
        """Count what it would be done to as deliveries are now, and change nothing; ends where there are more."""
        tally = Tally()
        async for page in self._pages(choice):
            tally.act(self._fitting(page, tally))
            progress("deliveries chosen", tally.acted)
            if most is not None and tally.acted > most:
                break
        return tally

    async def _pages(self, choice: Choice) -> AsyncIterator[list[Listed]]:
        now = (await self._deliveries.start()).now
        if not choice.named:
            choice = replace(choice, until=now if choice.until is None else min(choice.until, now))
        async for page in self._deliveries.pages(choice):
            yield page

    def _fitting(self, page: list[Listed], tally: Tally) -> list[Listed]:
        fit = [row for row in page if self._action.fits(State(row.state), done=self._done)]
        for row in page:
            if not self._action.fits(State(row.state), done=self._done):
                tally.leave(row, row.state)
        return fit
