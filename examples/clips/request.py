"""The service's side: `python -m examples.clips.request NAME SOURCE` asks for a clip, and prints the event's id."""

import os
import sys
from pathlib import Path
from uuid import UUID

import psycopg

from relay import Event, emit


def request(connection: psycopg.Connection, clip: str, source: Path) -> UUID:
    """Ask for a clip in the open transaction; whoever asks for the same one again is answered with the first event."""
    wanted = Event(
        event_type="clip.requested",
        aggregate_type="clip",
        aggregate_id=clip,
        dedup_key=f"clip-{clip}",
        data={"clip": clip, "source": str(source.resolve())},
    )
    return emit(connection, wanted).event_id


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        print(request(database, sys.argv[1], Path(sys.argv[2])))
