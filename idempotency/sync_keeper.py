"""Keeping a lease alive in a thread while its holder works."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from idempotency.answers import Claimed, Locked
from idempotency.errors import LeaseLostError
from idempotency.keeper import FAILED_RENEWALS, RENEWALS, ran_out

Held = TypeVar("Held", bound=Claimed | Locked)


class SyncKeeper(Generic[Held]):
    """Renews what a thread holds. A thread cannot be cancelled: `lost` says when it is lost."""

    def __init__(self, held: Held, renew: Callable[[Held], Held], clock: Callable[[], float]) -> None:
        self.held = held
        self._lost: LeaseLostError | None = None
        self._renew = renew
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="idempotency-keeper", daemon=True)

    @property
    def lost(self) -> LeaseLostError | None:
        """Why it is no longer to be believed in, if so."""
        return self._lost or (None if self._left() > 0 else ran_out(self.held))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _keep(self) -> None:
        pause = self._share(RENEWALS)
        while not self._over.wait(min(pause, max(0.0, self._left()))):
            try:
                self.held = self._renew(self.held)
                pause = self._share(RENEWALS)
            except LeaseLostError as error:
                self._lost = error
                return
            except Exception as error:  # noqa: BLE001 -- the cause of the loss, when it lasts
                if self._left() <= 0:
                    self._lost = ran_out(self.held, error)
                    return
                pause = self._share(FAILED_RENEWALS)

    def _share(self, parts: int) -> float:
        return self.held.lease.total_seconds() / parts

    def _left(self) -> float:
        return self.held.deadline - self._clock()
