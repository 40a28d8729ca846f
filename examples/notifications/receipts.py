"""The third cycle: the provider is asked what became of its tickets."""

from typing import Any

from consumers import ConfirmContext, InvalidRecipient, Ticket
from examples.notifications.dispatch import DEACTIVATE, REFUSED, WORDS, push
from examples.notifications.upkeep import MINUTE, TYPE


@push.confirm(TYPE, every=10 * MINUTE, unknown_after=30 * MINUTE)
async def confirm(tickets: list[Ticket], ctx: ConfirmContext) -> list[Any]:
    """Say of each what its receipt says; without one it is asked about again. The flag at the source stays."""
    receipts = (await ctx.state.post("/receipts", json=[each.ticket for each in tickets])).raise_for_status().json()
    return [WORDS.get(receipts.get(each.ticket, ""), REFUSED) for each in tickets]


@push.on_invalid
async def deactivate(invalid: InvalidRecipient, ctx: ConfirmContext) -> None:
    """Send nothing more to a phone that the provider does not know."""
    async with ctx.transaction() as connection:
        await connection.execute(DEACTIVATE, [[invalid.recipient]])
