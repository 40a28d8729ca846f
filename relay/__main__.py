"""Where the process starts: `python -m relay`, and the command `relay`."""

import os
import signal
import sys

from relay.extras import installed_by

# As a shell has it of a program that SIGPIPE ended.
NOBODY_READS = 128 + 13


def main() -> int:
    """Run a command; where whoever read its output is gone, as after `| head`, end without a word."""
    try:
        try:
            return _command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter writes what is left when it ends, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS


def _command() -> int:
    """Listen for SIGTERM, then load what the command needs, which takes long enough to be asked to stop meanwhile."""
    # As process 1 of a container there is no default action: a signal before a command listens for it would be lost.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from relay.cli import main as run  # noqa: PLC0415 -- see above
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "relay":
            raise
        remedy = f"run: {installed_by('relay')}"
        print(f"relay: the commands need the package {package!r}; {remedy}", file=sys.stderr)  # noqa: T201 -- a command
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
