"""Functions that take effect once for each key, for code without an event loop."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from idempotency.errors import AlreadyDoneError
from idempotency.idempotent import Recipe

if TYPE_CHECKING:
    from idempotency.sync_manager import SyncManager

P = ParamSpec("P")
T = TypeVar("T")


class SyncIdempotent:
    """Decorates functions: the first call of a key runs, repeats get its result. Like `Idempotent`, in a thread."""

    def __init__(self, manager: "SyncManager", recipe: Recipe) -> None:
        self._manager = manager
        self._recipe = recipe

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function that runs once for each key."""
        recipe = self._recipe

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            once = self._manager.once(
                recipe.consumer,
                recipe.event_id(*args, **kwargs),
                lease=recipe.lease,
                fingerprint=recipe.print_of(*args, **kwargs),
            )
            with ExitStack() as stack:
                try:
                    stack.enter_context(once)
                except AlreadyDoneError as done:
                    return cast("T", recipe.again(done))
                value = function(*args, **kwargs)
                once.result, refused = recipe.kept(value)
            if refused is not None:
                raise refused
            return value

        return run
