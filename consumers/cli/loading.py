"""Consumers by the names that the command line has for them: `shop.billing:consumer`."""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from consumers.app import Consumer
from consumers.errors import ConfigurationError
from relay.kernel.failure import origin, sentence

_SHOWN = 100


def load_consumers(names: Iterable[str]) -> list[Consumer]:
    """Import what is named: each a Consumer, or a list of them.

    Raises ConfigurationError with a line for each name that leads to none: what is wrong with it, and what to write.
    """
    look_here()
    found: list[Consumer] = []
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            found += _load(name)
        except ConfigurationError as error:
            faults.append(str(error))
    if faults:
        raise ConfigurationError("\n".join(faults))
    return found


def look_here() -> None:
    """Have modules found in the current folder, as with `python -m`, by a script too."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def _load(name: str) -> Sequence[Consumer]:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigurationError(
            f"{name[:_SHOWN]!r} names no consumer; write the module and the name in it, like shop.billing:consumer"
        )
    found = _module(module, name)
    wanted: object = found
    for part in attribute.split("."):
        wanted = getattr(wanted, part, None)
    if isinstance(wanted, Consumer):
        return [wanted]
    if isinstance(wanted, list | tuple):
        several = [each for each in wanted if isinstance(each, Consumer)]
        if several and len(several) == len(wanted):
            return several
    what = "nothing of that name" if wanted is None else f"a {type(wanted).__name__} of that name, no Consumer"
    raise ConfigurationError(f"{name!r}: the module has {what}; {_instead(found, module)}")


def _module(module: str, name: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"{name!r}: there is no module {error.name}; run the command in the folder that has it, or put that "
                "folder into PYTHONPATH"
            ) from None
        raise ConfigurationError(f"{name!r}: importing it failed: {_failure(error)}") from error
    except (Exception, SystemExit) as error:  # the module is the user's: it may raise anything
        raise ConfigurationError(f"{name!r}: importing it failed: {_failure(error)}") from error


def _failure(error: BaseException) -> str:
    places = [place for place in origin(error) if not place.startswith(("importlib", "consumers.cli."))]
    return sentence(error) + (f" (raised at {places[-1]})" if places else "")


def _instead(found: ModuleType, module: str) -> str:
    there = sorted(name for name, value in vars(found).items() if isinstance(value, Consumer))
    return f"it has {', '.join(f'{module}:{name}' for name in there)}" if there else "it has no Consumer at all"
