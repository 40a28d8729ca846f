"""What a handler says of its work is in the delivery's history, in order, and in its row while it lasts."""

import asyncio
from typing import Any

import psycopg

from consumers import Consumer, Context, Received
from consumers.events import Fate
from consumers.testing import in_memory
from tests.support.inbox import row
from tests.support.waiting import until_async


def entries(database: str) -> list[tuple[str, Any]]:
    """The history of the only delivery."""
    with psycopg.connect(database) as connection:
        return connection.execute("select what, detail from inbox_history order by id").fetchall()


async def test_stages_and_progress_are_in_the_history_in_their_order(inbox_database: str) -> None:
    """And the row says where the handler is now."""
    seen: list[str] = []
    consumer = Consumer("clips", dedup="inbox")

    @consumer.on("clip.cut")
    async def cut(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"):
            await ctx.progress(40)

            async def noted() -> bool:
                return bool(row(inbox_database, event.event_id)["progress"] == 40)

            await until_async(noted, "the progress is in the row")
            seen.append(row(inbox_database, event.event_id)["stage"])
        async with ctx.stage("upload"):
            await ctx.progress(100)

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("clip.cut")
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    assert seen == ["encode"]
    told = entries(inbox_database)
    assert [what for what, _ in told] == [
        "created",
        "processing",
        "stage",
        "progress",
        "stage_ended",
        "stage",
        "progress",
        "stage_ended",
        "done",
    ]
    assert told[3][1] == {"percent": 40}
    found = row(inbox_database, event)
    assert (found["stage"], found["progress"]) == (None, 100.0)


async def test_a_name_may_look_like_an_escape(inbox_database: str) -> None:
    """It is kept as it is written: what only looks like a NUL is none."""
    consumer = Consumer("clips", dedup="inbox")

    @consumer.on("clip.cut")
    async def cut(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage(r"a\u0000"):
            pass

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("clip.cut")
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    assert [detail["stage"] for what, detail in entries(inbox_database) if what == "stage"] == [r"a\u0000"]


async def test_a_failure_says_at_which_stage(inbox_database: str) -> None:
    """For whoever reads the row, and its history."""
    consumer = Consumer("clips", dedup="inbox")

    @consumer.on("clip.cut")
    async def cut(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("upload"):
            raise OSError("the store is away")

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("clip.cut")
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED

    assert row(inbox_database, event)["error"].startswith("failed at stage upload: ")
    assert [(what, detail.get("code")) for what, detail in entries(inbox_database) if detail] == [
        ("processing", None),
        ("stage", None),
        ("stage_ended", "OSError"),
        ("retry", "OSError"),
    ]


async def test_a_note_about_a_delivery_that_was_taken_over_ends_the_handler(inbox_database: str) -> None:
    """Nothing is noted, and what the handler says counts no more."""
    consumer = Consumer("clips", dedup="inbox")
    passed: list[str] = []

    @consumer.on("clip.cut")
    async def cut(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"):
            with psycopg.connect(inbox_database, autocommit=True) as other:
                other.execute("update inbox_deliveries set token = gen_random_uuid()")
            await ctx.progress(40)
            await asyncio.sleep(0)
        passed.append("encode")

    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("clip.cut")
        assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST

    assert passed == []
    assert "progress" not in [what for what, _ in entries(inbox_database)]


async def test_a_note_does_not_wait_for_whoever_holds_the_row(inbox_database: str) -> None:
    """The history has it; the row's stage is left as it was."""
    consumer = Consumer("clips", dedup="inbox")
    there = asyncio.Event()

    @consumer.on("clip.cut")
    async def cut(event: Received[Any], ctx: Context) -> None:
        there.set()
        await released.wait()
        async with ctx.stage("encode"):
            pass

    released = asyncio.Event()
    async with in_memory(consumer, database=inbox_database) as deliveries:
        event = deliveries.publish("clip.cut")
        await there.wait()
        with psycopg.connect(inbox_database) as other:
            other.execute("select from inbox_deliveries for update")
            released.set()

            async def noted() -> bool:
                return "stage_ended" in [what for what, _ in entries(inbox_database)]

            await until_async(noted, "the notes are there")
        await deliveries.advance(1)  # what the row's end waits for is asked again after a moment
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
