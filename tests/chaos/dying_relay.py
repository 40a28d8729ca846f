"""`relay run` that kills itself, as nothing but `kill -9` does, when it passes a crash point for the nth time."""

import os
import signal
import sys

from relay.__main__ import main as relay
from relay.publisher import crash_points
from relay.publisher.crash_points import Point


def die_at(place: Point, nth: int) -> None:
    """Let the process die at the nth passing of the place."""
    passed = 0

    def reached(point: Point) -> None:
        nonlocal passed
        passed += point is place
        if passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.reached = reached


def main() -> int:
    """Run it; its words are the name of the point and the number."""
    place, nth = sys.argv[1:]
    die_at(Point(place), int(nth))
    sys.argv[1:] = ["run"]
    return relay()
