"""Where the process starts: `python -m relay`, and the command `relay`."""

import sys
from collections.abc import Callable

from relay.extras import installed_by
from relay.kernel.command import start


def main() -> int:
    """Run a command."""
    return start("relay", _load, lambda: installed_by("relay"))


def _load() -> Callable[[], int]:
    from relay.cli import main as run  # noqa: PLC0415 -- when it is listened for SIGTERM

    return run


if __name__ == "__main__":
    sys.exit(main())
