"""Sixteen who store one event a transaction, as fast as they can: `python -m benchmarks.writers SECONDS`."""

import sys
import time
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

import psycopg

from benchmarks.contest import answer, take_part
from benchmarks.emitter import EMIT
from relay.settings import load

WRITERS = 16


def write(seconds: float, start: Barrier, answers: "SimpleQueue[tuple[int, float]]") -> None:
    """Answer with how many events were stored, and how long that took."""
    events = 0
    with psycopg.connect(load().require_database(), autocommit=True, prepare_threshold=0) as connection:
        start.wait()  # all are connected
        start.wait()  # all may begin
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            connection.execute(EMIT, {"number": events})
            events += 1
        answers.put((events, time.monotonic() - began))


def main(seconds: float) -> None:
    """Take part in a contest: answer with the events a second of all together."""
    context = get_context("fork")
    start = context.Barrier(WRITERS + 1)
    answers: SimpleQueue[tuple[int, float]] = context.SimpleQueue()
    processes = [context.Process(target=write, args=(seconds, start, answers)) for _ in range(WRITERS)]
    for process in processes:
        process.start()
    start.wait()
    take_part()
    start.wait()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    answer(rate=sum(events / took for events, took in found))


if __name__ == "__main__":
    main(float(sys.argv[1]))
