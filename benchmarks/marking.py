"""`check_and_mark_processed` in turns with its script alone: `python -m benchmarks.marking MANY`.

One call follows the other. Both speak to the same Redis, over clients that are made alike, each over a connection of
its own that exists.
"""

import asyncio
import os
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from benchmarks.contest import answer, take_part
from idempotency import Manager, connect
from idempotency.script import MARK

# In so short turns that whatever slows the machine down slows both.
_TURNS = 100
_TTL_MS = timedelta(hours=720) // timedelta(milliseconds=1)


async def main(many: int) -> None:
    """Take part in a contest."""
    ours, bare = connect(os.environ["REDIS_URL"]), connect(os.environ["REDIS_URL"])
    manager = Manager(ours)
    sha = str(await bare.script_load(MARK.text))
    seconds = {"ours": 0.0, "bare": 0.0}
    await marked(manager, 100)
    await evaluated(bare, sha, 100)
    take_part()
    for turn in range(_TURNS):
        for name in ("ours", "bare") if turn % 2 else ("bare", "ours"):
            took = marked(manager, many // _TURNS) if name == "ours" else evaluated(bare, sha, many // _TURNS)
            seconds[name] += await took
    await ours.aclose()
    await bare.aclose()
    done = many // _TURNS * _TURNS
    answer(events=done, **{name: done / took for name, took in seconds.items()})


async def marked(manager: Manager, many: int) -> float:
    """Seconds of so many calls, each about an event of its own."""
    events = [uuid4() for _ in range(many)]
    began = time.perf_counter()
    for event in events:
        await manager.check_and_mark_processed("bench", event)
    return time.perf_counter() - began


async def evaluated(redis: Any, sha: str, many: int) -> float:
    """The same of the script alone, with what it takes made ready before."""
    keys = [f"pf:evt:processed:bare:{uuid4()}" for _ in range(many)]
    began = time.perf_counter()
    for key in keys:
        await redis.evalsha(sha, 2, key, f"pf:evt:claim:{{{key}}}", _TTL_MS, 0, "a" * 32)
    return time.perf_counter() - began


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
