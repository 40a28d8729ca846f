"""A stand-in for somebody's mail service: sends once for each idempotency key, and fails now and then."""

from itertools import count
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException

provider = FastAPI(title="mail provider")
sent: dict[str, dict[str, str]] = {}
calls = count(1)


@provider.post("/emails")
async def send(email: dict[str, str], idempotency_key: Annotated[str, Header()]) -> None:
    """Send it, unless an email of this key has been sent."""
    call = next(calls)
    if call % 5 == 0:
        raise HTTPException(503, "nothing was sent")
    if sent.setdefault(idempotency_key, email) != email:
        raise HTTPException(422, "another email was sent under this key")
    if call % 7 == 0:
        raise HTTPException(503, "it was sent, and this answer does not say so")


@provider.get("/emails")
async def emails() -> dict[str, dict[str, str]]:
    """What has been sent, by its key."""
    return sent
