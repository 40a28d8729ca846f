"""An export, a drop and a restore that kill themselves when they come to a crash point.

Words: the point or nowhere, the database's URL, the folder, the rows of a file.
"""

import os
import signal
import sys
from datetime import date

from relay.upkeep.archive import crash_points
from relay.upkeep.archive.bounds import Bounds
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.record import Insistence
from relay.upkeep.table_name import TableName
from tests.support.archives import archive, exists

ORIGIN = "public.sources"
MONTH = date(2026, 1, 1)


def main() -> int:
    """All of a month's way."""
    point, database, place, rows = sys.argv[1:]
    if point != "nowhere":
        die_at(Point(point))
    files = archive(database, place, Bounds(rows=int(rows)))
    files.export(ORIGIN, MONTH)
    if not exists(database, "before"):
        files.restore(ORIGIN, MONTH, into=TableName("public", "before"))
    files.drop(ORIGIN, MONTH, Insistence("ana", "a test"))
    return 0


def die_at(place: Point) -> None:
    """Let the process die there."""

    def reached(point: Point) -> None:
        if point is place:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.reached = reached


if __name__ == "__main__":
    sys.exit(main())
