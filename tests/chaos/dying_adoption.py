"""`relay adopt` that kills itself, as nothing but `kill -9` does, when it passes a crash point for the nth time.

Example: python -m tests.chaos.dying_adoption mark.before 3 adopt --table shop.events …
"""

import os
import signal
import sys

from relay.__main__ import main
from relay.adopt import crash_points
from relay.adopt.crash_points import Point


def die_at(place: Point, nth: int) -> None:
    """Let the process die at the nth passing of the place."""
    passed = 0

    def reached(point: Point) -> None:
        nonlocal passed
        passed += point is place
        if passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.reached = reached


if __name__ == "__main__":
    die_at(Point(sys.argv[1]), int(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    sys.exit(main())
