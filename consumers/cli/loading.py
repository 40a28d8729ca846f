"""Consumers by the names that the command line has for them: `shop.billing:consumer`."""

from collections.abc import Iterable

from consumers.app import Consumer
from consumers.errors import ConfigurationError
from relay.kernel.loading import load, look_here

_EXAMPLE = "shop.billing:consumer"


def load_consumers(names: Iterable[str]) -> list[Consumer]:
    """Import what is named: each a Consumer, or a list of them.

    Raises ConfigurationError with a line for each name that leads to none: what is wrong with it, and what to write.
    """
    look_here()
    found: list[Consumer] = []
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            found += load(name, Consumer, _EXAMPLE, ConfigurationError, several=True)
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ConfigurationError("\n".join(faults))
    return found
