"""The consumer: fetches a source, has the encoder make the clip, uploads it, and says where it is."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic import BaseModel

from consumers import Consumer, Context, FatalError, Received, TransientError

ENCODER = Path(__file__).with_name("encoder.py")
NO_FILM = 2


class Requested(BaseModel):
    """What a `clip.requested` says."""

    clip: str
    source: Path


clips = Consumer("clips", dedup="inbox", source="outbox", timeout="15m")


@clips.on("clip.requested", model=Requested, concurrency=2)
async def cut(event: Received[Requested], ctx: Context) -> None:
    """Make the clip unless it is whole already, and complete the delivery with the row that says where it is."""
    wanted = event.data
    async with AsyncExitStack() as last, ctx.artifact(f"{wanted.clip}.mp4", store=os.environ["CLIPS_STORE"]) as clip:
        if clip.needed:
            source = ctx.scratch.path("source")
            async with ctx.stage("download"):
                await asyncio.to_thread(shutil.copyfile, wanted.source, source)
            async with ctx.stage("encode"):
                await encode(source, clip.path, ctx.progress)
            # The artifact is uploaded at the end of its block, within this stage.
            await last.enter_async_context(ctx.stage("upload"))
    made = (wanted.clip, clip.location, clip.sha256)
    async with ctx.transaction() as connection:
        await connection.execute("insert into clips (clip, url, sha256) values (%s, %s, %s)", made)
        await ctx.complete(connection, {"url": clip.location, "sha256": clip.sha256})


async def encode(source: Path, clip: Path, tell: Callable[[float], object]) -> None:
    """Have the encoder write the clip; it does not outlive whoever waits for it."""
    encoder = await asyncio.create_subprocess_exec(sys.executable, ENCODER, source, clip, stdout=PIPE)
    try:
        assert encoder.stdout  # noqa: S101 -- it is a pipe
        async for percent in encoder.stdout:
            tell(float(percent))
        code = await encoder.wait()
    finally:
        if encoder.returncode is None:
            encoder.kill()
            await encoder.wait()
    if code == NO_FILM:
        raise FatalError("the encoder finds no film in the source", code="NO_FILM")
    if code:
        raise TransientError(f"the encoder ended with {code}", code="ENCODER_FAILED")
