"""Stages of a handler are timed, counted and noted, and a failure says in which one it was."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from consumers import Context, FatalError, Received, TransientError
from consumers.dedup.protocol import Begun
from consumers.events import NoteLost, StageEnded
from consumers.notes import StageBegan
from consumers.notes import StageEnded as EndOfStage
from consumers.testing import Deliveries, Fate, handle, in_memory
from idempotency import LeaseLostError
from tests.unit.consumers.notebooks import Book, consumer_of, keep_history


@pytest.fixture
async def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    """The history of whatever is handled."""
    return keep_history(monkeypatch)


def ended(deliveries: Deliveries) -> list[tuple[str, str]]:
    """The stages that have ended, with their codes."""
    return [(event.stage, event.code) for event in deliveries.events if isinstance(event, StageEnded)]


async def failing(reason: str) -> None:
    """What a handler calls."""
    raise OSError(reason)


async def test_a_stage_is_timed_and_noted_at_its_beginning_and_its_end(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            await deliveries.clock.advance(2.5)

    async with in_memory(consumer_of(work)) as deliveries:
        await deliveries.finish(deliveries.publish("a"))
        (event,) = [each for each in deliveries.events if isinstance(each, StageEnded)]
    assert (event.consumer, event.subject.event_type, event.stage, event.seconds, event.code) == (
        "media",
        "a",
        "upload",
        2.5,
        "",
    )
    assert book.notes == [StageBegan("upload"), EndOfStage("upload", 2.5)]
    assert [(note.what, note.detail) for note in book.notes] == [
        ("stage", {"stage": "upload"}),
        ("stage_ended", {"stage": "upload", "seconds": 2.5}),
    ]


async def test_a_plain_function_has_them_too(book: Book) -> None:
    def work(event: Received[Any], ctx: Context) -> None:
        with ctx.stage("encode"):
            pass
        with ctx.stage("upload"):
            raise TransientError("the store is away", "STORE_AWAY")

    handled = await handle(consumer_of(work), "a")
    assert book.stages == ["encode…", "encode ok", "upload…", "upload STORE_AWAY"]
    assert handled.reason == "failed at stage upload: TransientError: the store is away"


@pytest.mark.parametrize(
    ("error", "fate", "code", "reason"),
    [
        (OSError("away"), Fate.RETRIED, "OSError", "failed at stage upload: OSError: away"),
        (TransientError("busy", "BUSY"), Fate.RETRIED, "BUSY", "failed at stage upload: TransientError: busy"),
        (FatalError("never", "NEVER"), Fate.DEAD, "NEVER", "failed at stage upload: FatalError: never"),
        (SystemExit(3), Fate.RETRIED, "3", "failed at stage upload: SystemExit: (a value of type int)"),
    ],
)
async def test_an_error_names_the_stage_that_it_came_out_of(
    error: BaseException, fate: Fate, code: str, reason: str
) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"):
            pass
        async with ctx.stage("upload"):
            raise error

    async with in_memory(consumer_of(work)) as deliveries:
        settled = await deliveries.wait_for(deliveries.publish("a"))
        assert (settled.fate, settled.code, settled.reason) == (fate, code, reason)
        assert ended(deliveries)[:2] == [("encode", ""), ("upload", code)]


async def test_of_stages_in_each_other_the_innermost_is_named(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"):
            async with ctx.stage("video"):
                pass
            async with ctx.stage("audio"):
                raise OSError("no codec")

    assert (await handle(consumer_of(work), "a")).reason == "failed at stage audio: OSError: no codec"
    current = [
        note.current if isinstance(note, EndOfStage) else note.name
        for note in book.notes
        if isinstance(note, StageBegan | EndOfStage)
    ]
    assert current == ["encode", "video", "encode", "audio", "encode", None]


async def test_an_error_that_becomes_another_keeps_its_stage() -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"):
            try:
                async with ctx.stage("audio"):
                    await failing("no codec")
            except OSError as error:
                raise FatalError("cannot be heard") from error

    assert (await handle(consumer_of(work), "a")).reason == "failed at stage audio: FatalError: cannot be heard"


async def test_an_error_that_was_overcome_names_no_stage() -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        with suppress(OSError):
            async with ctx.stage("cache"):
                await failing("no cache")
        raise ValueError("without it")

    assert (await handle(consumer_of(work), "a")).reason == "ValueError: without it"


async def test_stages_beside_each_other_are_told_apart(book: Book) -> None:
    async def one(ctx: Context, name: str, *, fails: bool) -> None:
        async with ctx.stage(name):
            await asyncio.sleep(0.01 if fails else 1_000)
            raise OSError(name)

    async def work(event: Received[Any], ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(one(ctx, "audio", fails=True))
            group.create_task(one(ctx, "video", fails=False))

    handled = await handle(consumer_of(work), "a")
    assert handled.reason == "failed at stage audio: OSError: audio"
    assert sorted(book.stages) == ["audio OSError", "audio…", "video CANCELLED", "video…"]


async def test_a_timeout_names_the_stage_that_it_cut_short(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            await asyncio.Event().wait()

    async with in_memory(consumer_of(work, timeout="5s")) as deliveries:
        event = deliveries.publish("a")
        await deliveries.advance(6)
        settled = await deliveries.wait_for(event)
    assert (settled.code, settled.reason) == ("TIMEOUT", "failed at stage upload: timed out after 5 s")
    assert book.stages == ["upload…", "upload CANCELLED"]


async def test_a_stage_that_the_shutdown_cuts_short_is_noted(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            await asyncio.Event().wait()

    async with in_memory(consumer_of(work, timeout=None)) as deliveries:
        deliveries.publish("a")
        await deliveries.advance(1)
        await deliveries.stop()
        assert [event.fate for event in deliveries.settled] == [Fate.RELEASED]
    assert book.stages == ["upload…", "upload CANCELLED"]


async def test_a_database_that_is_away_costs_notes_and_no_work(book: Book) -> None:
    book.fault = OSError("the database is away")

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            pass

    async with in_memory(consumer_of(work)) as deliveries:
        settled = await deliveries.finish(deliveries.publish("a"))
        lost = [(event.note, str(event.error)) for event in deliveries.events if isinstance(event, NoteLost)]
    assert settled.fate is Fate.DONE
    assert lost == [("stage", "the database is away"), ("stage_ended", "the database is away")]


async def test_a_database_that_hangs_does_not_keep_an_attempt_from_its_end(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            book.open.clear()
            raise OSError("away")

    async with in_memory(consumer_of(work)) as deliveries:
        event = deliveries.publish("a")
        await deliveries.advance(4)
        assert deliveries.settled == []
        await deliveries.advance(2)
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
        assert [event.note for event in deliveries.events if isinstance(event, NoteLost)] == ["stage_ended"]
        book.open.set()


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_delivery_that_is_lost_begins_no_stage(book: Book, *, in_thread: bool) -> None:
    """Somebody else works on it."""
    book.fault, entered = LeaseLostError("somebody else has it"), []

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            entered.append(event)

    def work_in_thread(event: Received[Any], ctx: Context) -> None:
        with ctx.stage("upload"):
            entered.append(event)

    handled = await handle(consumer_of(work_in_thread if in_thread else work), "a")
    assert (handled.code, entered) == ("LeaseLostError", [])


async def test_what_a_transaction_has_completed_waits_for_no_note_and_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note may wait for that transaction, and finds the delivery over when it is committed."""
    begun: list[Begun] = []
    book = keep_history(monkeypatch, begun)

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("book"):
            book.open.clear()
            begun[0].completed = True
        ctx.progress(100)
        book.fault = LeaseLostError("it is done")
        book.open.set()
        await asyncio.sleep(0.001)
        async with ctx.stage("tell"):
            ctx.progress(10)
        begun[0].completed = False  # there is no database here to be asked

    async with in_memory(consumer_of(work)) as deliveries:
        settled = await deliveries.finish(deliveries.publish("a"))
        assert [event for event in deliveries.events if isinstance(event, NoteLost)] == []
    assert (settled.fate, book.stages) == (Fate.DONE, ["book…"])


async def test_an_error_goes_before_the_loss_of_the_delivery(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            book.fault = LeaseLostError("somebody else has it")
            raise FatalError("never", "NEVER")

    assert (await handle(consumer_of(work), "a")).code == "NEVER"


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\nb", "a\0b", None, 7, 10**5_000, b"upload"], ids=range(9))
async def test_a_name_that_is_none_is_refused(name: Any) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.stage(name)

    handled = await handle(consumer_of(work), "a")
    assert handled.code == "UsageError"
    assert isinstance(handled.error, Exception)
    assert "1 to 64 printable characters" in str(handled.error)


async def test_in_the_loop_without_await_it_is_refused() -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        with ctx.stage("upload"):
            pass

    handled = await handle(consumer_of(work), "a")
    assert (handled.code, "async with ctx.stage(…)" in str(handled.error)) == ("UsageError", True)


async def test_a_loop_in_the_thread_of_a_handler_may_use_it_too(book: Book) -> None:
    def work(event: Received[Any], ctx: Context) -> None:
        async def inner() -> None:
            async with ctx.stage("upload"):
                await ctx.progress(50)

        asyncio.run(inner())

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert (book.stages, book.percents) == (["upload…", "upload ok"], [50])


async def test_what_goes_on_after_the_attempt_is_told_that_it_is_over(book: Book) -> None:
    left: list[Context] = []

    async def work(event: Received[Any], ctx: Context) -> None:
        left.append(ctx)

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    with pytest.raises(Exception, match="the attempt is over"):
        async with left[0].stage("upload"):
            pass
    with pytest.raises(Exception, match="the attempt is over"):
        left[0].progress(50)
    with pytest.raises(Exception, match="the attempt is over"):
        _ = left[0].scratch
    assert book.notes == []
