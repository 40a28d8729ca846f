"""Archives in a job: the work is a child's, and ends soon after the job does."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from typing import TYPE_CHECKING, Final, assert_never

from relay.errors import ArchiveError, ConfigurationError, RelayError
from relay.upkeep.archive.errand import Address, Errand, What

if TYPE_CHECKING:
    from relay.upkeep.run import Run

# With the path of this process: modules are looked for where it looks.
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from relay.upkeep.archive.errand import main; main()"
)
# A child that is told to end is at a group of rows, or waits for the database or for the place of its files.
_END_SECONDS: Final = 1.0


async def run_errand(run: "Run", address: Address | None, what: What, table: str | None) -> int:
    """Have a child do it; answer with the number of files that were written, or of sealed tables that were dropped."""
    if address is None:
        raise ConfigurationError("nothing here knows of an archive: export from a job that `relay` or `consumers` runs")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROGRAM,
        json.dumps(sys.path),
        stdin=PIPE,
        stdout=PIPE,
        # Ctrl-C in a terminal is the parent's to hear.
        start_new_session=True,
    )
    stopping = asyncio.ensure_future(run.until_stopping())
    stopping.add_done_callback(lambda _: _end(child))
    try:
        return await _heard(run, child, Errand(what, table, address))
    finally:
        stopping.cancel()
        _end(child)
        await _ended(child)


async def _heard(run: "Run", child: Process, errand: Errand) -> int:
    """What it says, until it has done or is at its end."""
    if child.stdin is None or child.stdout is None:
        raise AssertionError("started without these pipes")
    child.stdin.write(errand.written().encode() + b"\n")
    async for line in child.stdout:
        word = json.loads(line)
        match word:
            case {"count": [name, by]}:
                run.count(name, by)
            case {"fault": [kind, text, what]}:
                run.fault(_error(kind, text), what)
            case {"failed": [kind, text]}:
                raise _error(kind, text)
            case {"done": count}:
                return int(count)
            case _:
                assert_never(word)
    raise ArchiveError(
        f"the process that does it ended with code {await child.wait()} and without a word; what is recorded in "
        "archive_exports is done, the next run goes on. See what it wrote to stderr"
    )


def _error(kind: str, text: str) -> RelayError:
    return ConfigurationError(text) if kind == "configuration" else ArchiveError(text)


def _end(child: Process) -> None:
    if child.stdin is not None:
        child.stdin.close()


async def _ended(child: Process) -> None:
    """Leave none behind; it may be killed at any instruction."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
    except BaseException:  # a cancellation, too, leaves no child behind
        child.kill()
        raise
