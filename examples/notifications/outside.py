"""Stand-ins for what is outside: two services that report storms, and a provider that knows pushes by their names."""

from collections import Counter

from fastapi import FastAPI, HTTPException

outside = FastAPI(title="services and provider")
calls: Counter[str] = Counter()


@outside.get("/reports/{service}")
async def reports(service: str) -> list[dict[str, str]]:
    """Both know of the storm in the north; one is away every second time."""
    calls[service] += 1
    if service == "alps" and calls[service] % 2:
        raise HTTPException(503)
    regions = {"coast": ["north"], "alps": ["north", "south"]}[service]
    return [{"number": f"7-{each}", "storm": f"{each}-7", "region": each, "title": "A storm"} for each in regions]


@outside.post("/push")
async def push(pushes: list[dict[str, str]]) -> list[dict[str, str]]:
    """Say of each the word that its token begins with, or give a ticket that says it later: one for a name."""
    calls["push"] += 1
    if calls["push"] % 3 == 0:
        raise HTTPException(429)
    answers = []
    for each in pushes:
        later, _, word = each["to"].partition(".")[0].rpartition("-")
        calls[each["name"]] += 1
        word = "ok" if word == "again" and calls[each["name"]] > 1 else word
        answers.append({"ticket": f"{word}/{each['name']}"} if later or word == "ok" else {"error": word})
    return answers


@outside.post("/receipts")
async def receipts(tickets: list[str]) -> dict[str, str]:
    """What became of these; some never have one."""
    return {ticket: ticket.partition("/")[0] for ticket in tickets if not ticket.startswith("silent")}
