"""Where the process starts: `python -m relay`, and the command `relay`."""

import signal
import sys


def main() -> int:
    """Listen for SIGTERM, then load what the command needs, which takes long enough to be asked to stop meanwhile."""
    # As process 1 of a container there is no default action: a signal before a command listens for it would be lost.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from relay.cli import main as run  # noqa: PLC0415 -- see above
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "relay":
            raise
        print(  # noqa: T201 -- a command prints
            f"relay: the commands need the package {error.name!r}; run: pip install 'outbox-relay[relay]'",
            file=sys.stderr,
        )
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
