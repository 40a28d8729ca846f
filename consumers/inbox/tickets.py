"""Sends that wait to be confirmed, as statements: claimed for a while, and settled by the token of that claim."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from consumers.confirmers import Ticket
from consumers.events import Verdict
from consumers.inbox.table import MOST_ROWS, Table
from relay.postgres.statements import numbers, texts

_STATES: Final = {
    Verdict.CONFIRMED: ("done", "ok"),
    Verdict.RETRIED: ("pending", ""),
    Verdict.DEAD: ("failed", "dead"),
    Verdict.INVALID: ("failed", "invalid"),
    Verdict.UNKNOWN: ("failed", "unknown"),
    Verdict.OPEN: ("sent", ""),
}
# The entry of its history; one that goes on waiting has none, for it is asked about again and again.
_WHATS: Final = {
    Verdict.CONFIRMED: "confirmed",
    Verdict.RETRIED: "retry",
    Verdict.DEAD: "failed",
    Verdict.INVALID: "failed",
    Verdict.UNKNOWN: "unknown",
    Verdict.OPEN: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A send that this process asks about."""

    ticket: Ticket
    token: str
    age: float
    """Seconds since it was sent, by the database's clock."""
    first_started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What becomes of a send."""

    claimed: Claimed
    verdict: Verdict
    """Any but LOST, which is for the table to say."""
    rest: float = 0.0
    """Seconds until it is asked about, or sent, again."""
    code: str = ""
    error: str = ""


class Tickets:
    """The sends of one consumer."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def consumer(self) -> str:
        """Whose they are."""
        return self._table.identity.consumer

    async def claim(self, event_types: Sequence[str], most: int, seconds: float) -> list[Claimed]:
        """Have up to so many that are due to oneself, for so many seconds."""
        token = str(uuid4())
        rows = await self._table.ask(
            "claim_sent",
            {
                **self._table.shard,
                "types": texts(list(event_types)),
                "most": most,
                "token": token,
                "owner": self._table.identity.owner,
                "lease": seconds,
            },
        )
        return [_claimed(row, token, event_types[0]) for row in rows]

    async def settle(self, said: Sequence[Said]) -> list[bool]:
        """Write what becomes of them; for each whether that counts: it does not where somebody else asks by now."""
        counted: set[int] = set()
        for place in range(0, len(said), MOST_ROWS):
            rows = await self._table.ask("settle_sent", _columns(said[place : place + MOST_ROWS]))
            counted |= {int(row[0]) for row in rows}
        return [each.claimed.ticket.delivery_id in counted for each in said]


def _claimed(row: Sequence[Any], token: str, event_type: str) -> Claimed:
    id_, event_id, version, recipient, ticket, attempt, sent_at, age, first_started_at = row
    return Claimed(
        ticket=Ticket(
            ticket=ticket,
            event_id=UUID(event_id),
            event_type=event_type,
            version=int(version),
            recipient=recipient,
            attempt=int(attempt),
            sent_at=datetime.fromtimestamp(float(sent_at), UTC),
            delivery_id=int(id_),
        ),
        token=token,
        age=float(age),
        first_started_at=datetime.fromtimestamp(float(first_started_at), UTC),
    )


def _columns(said: Sequence[Said]) -> dict[str, object]:
    return {
        "ids": numbers(each.claimed.ticket.delivery_id for each in said),
        "tokens": texts([each.claimed.token for each in said]),
        "states": texts([_STATES[each.verdict][0] for each in said]),
        "outcomes": texts([_STATES[each.verdict][1] for each in said]),
        "rests": numbers(each.rest for each in said),
        "codes": texts([each.code for each in said]),
        "errors": texts([each.error for each in said]),
        "whats": texts([_WHATS[each.verdict] for each in said]),
        "details": texts([_detail(each) for each in said]),
    }


def _detail(said: Said) -> str:
    if said.verdict in (Verdict.CONFIRMED, Verdict.OPEN):
        return ""
    told = {"code": said.code, "error": said.error, "ticket": said.claimed.ticket.ticket}
    return json.dumps({**told, "again_in": round(said.rest, 3)} if said.verdict is Verdict.RETRIED else told)
