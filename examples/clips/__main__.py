"""`make example NAME=clips`: clips are cut, their worker is killed in the middle of two, and the next one goes on."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from examples.clips.request import request
from examples.programs import prepared, running, waited
from relay.dev.stack import Part, Stack

CLIPS = 3
FRAMES = 20
CONSUMER = ("consumers", "run", "examples.clips.cutting:clips")
# Short leases, so that nobody waits for long: what a killed process had is taken over when they end.
SETTINGS = {"INBOX_LEASE_MS": "2s", "INBOX_HEARTBEAT_MS": "500ms", "INBOX_POLL_MS": "100ms"}
HALF_WAY = "select count(*) from inbox_deliveries where event_id = %s and stage = 'encode' and progress >= 50"


def main() -> int:
    """Exit 0 when every clip is whole, although a worker was killed."""
    with tempfile.TemporaryDirectory() as folder, Stack.start([Part.POSTGRES]) as stack:
        store = Path(folder, "store")
        environment = prepared(
            stack.database_url, "clips", CLIPS_STORE=str(store), SCRATCH_DIR=f"{folder}/scratch", **SETTINGS
        )
        with psycopg.connect(stack.database_url) as service:
            first, *_ = [request(service, f"clip-{number}", film(folder, number)) for number in range(CLIPS)]
        with psycopg.connect(stack.database_url, autocommit=True) as database:
            with running(environment, *CONSUMER) as worker:
                waited(lambda: database.execute(HALF_WAY, [first]).fetchone() == (1,))
                worker.kill()
            print("a worker was killed in the middle of its work; here is another one")
            with running(environment, *CONSUMER):
                waited(lambda: database.execute("select count(*) from clips").fetchone() == (CLIPS,))
            made = database.execute("select clip, sha256 from clips order by clip").fetchall()
        whole = sum(hashlib.sha256((store / f"{clip}.mp4").read_bytes()).hexdigest() == sha256 for clip, sha256 in made)
        print(f"{whole} of {CLIPS} clips are whole, and this is the story of the first one:", flush=True)
        subprocess.run(
            [sys.executable, "-m", "consumers", "deliveries", "show", str(first)], env=environment, check=True
        )
    return 0 if whole == CLIPS else 1


def film(folder: str, number: int) -> Path:
    """A source, of which the encoder makes so many frames."""
    source = Path(folder, f"source-{number}")
    source.write_bytes(bytes([number]) * 1024 * FRAMES)
    return source


if __name__ == "__main__":
    sys.exit(main())
