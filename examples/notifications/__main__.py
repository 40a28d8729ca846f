"""`make example NAME=notifications`: two storms are announced, pushed and confirmed; a year later they are files."""

import subprocess
import sys
import tempfile

import psycopg

from examples.programs import prepared, running, served, waited
from relay.dev.stack import Part, Stack

JOBS = "examples.notifications.upkeep:jobs"
SETTINGS = {"RELAY_APP": JOBS, "INBOX_RETENTION_TO": "archive", "INBOX_POLL_MS": "100ms", "MINUTE_SECONDS": "0.1"}
CONSUMER = ("consumers", "run", "examples.notifications.receipts:push")
OUTSIDE = "examples.notifications.outside:outside"
LATER = (("ingest", "0", "0"), ("clean_up", "13 months", "1 month"), ("archive", "0", "0"), ("archive", "31 days", "0"))
FIRST = {"ok": 24, "invalid": 12, "dead": 12, "skipped": 6, "unknown": 6}
LAST = {"invalid": 12, "dead": 12, "unknown": 6, "sources in files": 1, "deliveries in files": 16}


def main() -> int:
    """Exit 0 when every phone has had what it should have, once, and all that is over is in files."""
    with tempfile.TemporaryDirectory() as files, Stack.start([Part.POSTGRES]) as stack:
        environment = prepared(stack.database_url, "notifications", ARCHIVE_BUCKET=files, **SETTINGS)
        with served(environment, OUTSIDE) as url, psycopg.connect(stack.database_url, autocommit=True) as database:
            environment["OUTSIDE_URL"] = url
            found: list[dict[str, int]] = []
            for times in LATER:
                database.execute("call later(%s, %s, %s)", times)
                with running(environment, *CONSUMER):
                    waited(lambda: database.execute("select from settled").fetchone() is not None)
                found.append(dict(database.execute("select * from found").fetchall()))
                print(*database.execute("select told(%s, %s)", times[:2]).fetchone() or ())
            subprocess.run([sys.executable, "-m", "relay", "runs"], env=environment, check=True)
    return 0 if found[0] == FIRST and found[-1] == LAST else 1


if __name__ == "__main__":
    sys.exit(main())
