"""Where the process starts: `python -m consumers`, and the command `consumers`."""

import sys
from collections.abc import Callable

from relay.extras import installed_by
from relay.kernel.command import start


def main() -> int:
    """Run a command."""
    return start("consumers", _load, lambda: installed_by("consumers"))


def _load() -> Callable[[], int]:
    from consumers.cli import main as run  # noqa: PLC0415 -- when it is listened for SIGTERM

    return run


if __name__ == "__main__":
    sys.exit(main())
