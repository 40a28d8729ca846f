"""What settings and the command line name as `module:name`, imported from the user's own code."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from relay.kernel.failure import origin, sentence

T = TypeVar("T")

_SHOWN = 100


def look_here() -> None:
    """Have modules found in the current folder, as with `python -m`, by a script too."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def load(name: str, kind: type[T], example: str, refusal: type[Exception], *, several: bool = False) -> list[T]:
    """Import what is named: one of this kind, or where there may be `several` a list of them.

    Raises ValueError with one sentence where the name leads to none: what is wrong with it, and what to write. What
    `kind` itself refuses while it is imported, by a `refusal`, is told in its own words.
    """
    called = kind.__name__
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(
            f"{name[:_SHOWN]!r} names no {called.lower()}; write the module and the name in it, like {example}"
        )
    found = _module(module, name, refusal)
    wanted: object = found
    for part in attribute.split("."):
        wanted = getattr(wanted, part, None)
    if isinstance(wanted, kind):
        return [wanted]
    if several and isinstance(wanted, list | tuple):
        members = [each for each in wanted if isinstance(each, kind)]
        if members and len(members) == len(wanted):
            return members
    what = "nothing of that name" if wanted is None else f"a {type(wanted).__name__} of that name, no {called}"
    raise ValueError(f"{name!r}: the module has {what}; {_instead(found, module, kind)}")


def _module(module: str, name: str, refusal: type[Exception]) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise ValueError(
                f"{name!r}: there is no module {error.name}; run the command in the folder that has it, or put that "
                "folder into PYTHONPATH"
            ) from None
        raise ValueError(f"{name!r}: importing it failed: {_failure(error)}") from error
    except refusal as error:
        ours = f"{type(error).__module__.partition('.')[0]}."
        raise ValueError(f"{name!r}: {error}{_place(error, ours)}") from error
    except (Exception, SystemExit) as error:  # the module is the user's: it may raise anything
        raise ValueError(f"{name!r}: importing it failed: {_failure(error)}") from error


def _failure(error: BaseException) -> str:
    return sentence(error) + _place(error)


def _place(error: BaseException, *ours: str) -> str:
    places = [place for place in origin(error) if not place.startswith(("importlib", f"{__name__}:", *ours))]
    return f" (raised at {places[-1]})" if places else ""


def _instead(found: ModuleType, module: str, kind: type[object]) -> str:
    there = sorted(name for name, value in vars(found).items() if isinstance(value, kind))
    if there:
        return f"it has {', '.join(f'{module}:{name}' for name in there)}"
    return f"it has no {kind.__name__} at all"
