"""`make example NAME=notifications`: two storms are announced, pushed and confirmed; a year later they are files."""

import subprocess
import sys
import tempfile

import psycopg

from examples.programs import prepared, running, served, waited
from relay.dev.stack import Part, Stack

SETTINGS = {"RELAY_APP": "examples.notifications.upkeep:jobs", "MINUTE_SECONDS": "0.1", "INBOX_POLL_MS": "100ms"}
CONSUMER = ("consumers", "run", "examples.notifications.receipts:push")
OUTSIDE = "examples.notifications.outside:outside"
OUTCOMES = {"ok": 24, "invalid": 12, "dead": 12, "skipped": 6, "unknown": 6}


def main() -> int:
    """Exit 0 when every phone has had what it should have, once, and all that is over is in files."""
    with tempfile.TemporaryDirectory() as files, Stack.start([Part.POSTGRES]) as stack:
        environment = prepared(stack.database_url, "notifications", ARCHIVE_BUCKET=files, **SETTINGS)
        with served(environment, OUTSIDE) as url, psycopg.connect(stack.database_url, autocommit=True) as database:
            environment["OUTSIDE_URL"] = url
            with running(environment, *CONSUMER):
                waited(lambda: database.execute("select is_so from settled").fetchone() == (True,))
            outcomes = dict(database.execute("select * from outcomes").fetchall())
            print(f"what became of the pushes: {outcomes}")
            for job, age in (("clean_up", "1 year"), ("archive", "0"), ("archive", "0")):
                database.execute("call later(%s, %s)", (job, age))
                subprocess.run([sys.executable, "-m", "relay", "tick"], env=environment, check=True, stdout=-3)
            subprocess.run([sys.executable, "-m", "relay", "runs"], env=environment, check=True)
            archived = dict(database.execute("select * from archived").fetchall())
    return 0 if outcomes == OUTCOMES else 1


if __name__ == "__main__":
    sys.exit(main())
