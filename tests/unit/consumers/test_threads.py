"""Plain functions run in threads, as many as run at once."""

import asyncio
import contextvars
import threading

import pytest

from consumers.threads import Threads


async def test_a_call_has_its_answer_or_its_error() -> None:
    threads = Threads("t")
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)
    threads.close()


async def test_a_thread_that_is_free_is_used_again() -> None:
    threads, names = Threads("billing-handler"), set()
    for _ in range(20):
        names.add(await threads.run(lambda: threading.current_thread().name))
    assert names == {"billing-handler-1"}
    threads.close()


async def test_there_are_as_many_as_run_at_once_however_many() -> None:
    """A pool with a limit of its own would hold up handlers that have their permits."""
    threads, together = Threads("t"), threading.Barrier(60)
    await asyncio.gather(*(threads.run(lambda: together.wait(10)) for _ in range(60)))
    threads.close()


async def test_a_thread_sees_the_context_variables_of_its_caller() -> None:
    """Traces and log contexts go along."""
    tenant, threads = contextvars.ContextVar("tenant", default="none"), Threads("t")
    tenant.set("t-1")
    assert await threads.run(tenant.get) == "t-1"
    await threads.run(lambda: tenant.set("t-2"))
    assert await threads.run(tenant.get) == "t-1"
    threads.close()


async def test_they_are_daemons_and_end_when_they_are_closed() -> None:
    threads, seen = Threads("t"), []
    await threads.run(lambda: seen.append(threading.current_thread()))
    (thread,) = seen
    assert thread.daemon
    threads.close()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_one_that_nobody_waits_for_any_more_goes_on_with_the_next_call() -> None:
    threads, go = Threads("t"), threading.Event()
    future = threads.run(lambda: go.wait(10))
    future.cancel()
    go.set()
    assert await threads.run(lambda: 7) == 7
    threads.close()


async def test_a_call_for_which_there_is_no_thread_is_not_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever called has been told that it was not made, and may call again."""
    threads, go, ran = Threads("t"), threading.Event(), []
    busy = threads.run(lambda: go.wait(10))

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.run(lambda: ran.append("in vain"))
    go.set()
    assert await busy
    await threads.run(lambda: ran.append("afterwards"))
    assert ran == ["afterwards"]
    other = threading.Event()
    both = [threads.run(lambda: other.wait(10)), threads.run(other.set)]
    await asyncio.gather(*both)
    threads.close()


async def test_stop_iteration_is_an_error_like_others() -> None:
    threads = Threads("t")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter([])))
    threads.close()


def test_a_thread_that_returns_when_the_loop_is_gone_ends() -> None:
    threads, go, began, seen = Threads("t"), threading.Event(), threading.Event(), []

    def late() -> None:
        seen.append(threading.current_thread())
        began.set()
        go.wait(10)

    async def leave() -> None:
        threads.run(late)
        assert began.wait(10)

    asyncio.run(leave())
    go.set()
    seen[0].join(10)
    assert not seen[0].is_alive()
