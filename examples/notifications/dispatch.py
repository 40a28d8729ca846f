"""The second cycle: a storm has a delivery for each phone of its region, and these are sent by the hundred."""

from pathlib import Path
from typing import Any, Final

import httpx

from consumers import Consumer, Context, Dead, Defer, Done, Invalid, Received, Retry, Sent, Series, Skip
from examples.notifications.upkeep import MINUTE, TYPE, outside

BACKOFF = Series([minutes * MINUTE for minutes in (1, 2, 4, 8, 16, 32, 60, 60)])
AGAIN, GONE, REFUSED = Retry("not this time"), Invalid("no such phone"), Dead("the provider refuses it")
# What the provider says of a push, at once or in its receipt; another word is a refusal.
WORDS: Final = {"ok": Done(), "again": AGAIN, "gone": GONE, "": Defer(10 * MINUTE), "unwanted": Skip("muted or gone")}
WANTED: Final = Path(__file__).with_name("wanted.sql").read_bytes()
DEACTIVATE: Final = Path(__file__).with_name("deactivate.sql").read_bytes()

push = Consumer("push", dedup="inbox", source="outbox", retry=BACKOFF, lifespan=outside)


@push.on(TYPE)
async def fan_out(event: Received[Any], ctx: Context) -> None:
    """Have a delivery for each phone of the region, and be done: all of that, or nothing."""
    async with ctx.transaction() as connection:
        phones = await connection.execute("select token from phones where region = %(region)s and active", event.data)
        await ctx.fan_out([token async for (token,) in phones], connection)
        await ctx.complete(connection)


@push.each(TYPE, batch=100)
async def dispatch(events: list[Received[Any]], contexts: list[Context]) -> Defer | list[Any]:
    """Send to those who want it now, each under a name that is the same in every attempt, and answer for each."""
    ctx, names = contexts[0], [f"{event.event_id}/{event.recipient}" for event in events]
    asked = {"tokens": [each.recipient for each in events], "storms": [each.aggregate_id for each in events]}
    async with ctx.transaction() as connection:
        tokens = {token async for (token,) in await connection.execute(WANTED, asked)}
    wanted = {name: each for name, each in zip(names, events, strict=True) if each.recipient in tokens}
    pushes = [{"name": name, "to": each.recipient, "text": each.data["title"]} for name, each in wanted.items()]
    answer = await ctx.state.post("/push", json=pushes)
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        ctx.throttle_all("200ms")
        return Defer("200ms")  # for all of them, and no attempt of theirs
    said = dict(zip(wanted, answer.raise_for_status().json(), strict=True))
    gone = [each.recipient for name, each in wanted.items() if said[name].get("error") == "gone"]
    async with ctx.transaction() as connection:
        await connection.execute(DEACTIVATE, [gone])
    answers = [said.get(name, {"error": "unwanted"}) for name in names]
    return [Sent(each["ticket"]) if "ticket" in each else WORDS.get(each.get("error"), REFUSED) for each in answers]
