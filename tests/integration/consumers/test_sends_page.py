"""The snippets of docs/sends.md, at work."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psycopg

from consumers import Consumer
from consumers.events import Fate
from consumers.testing import Deliveries, in_memory
from tests.support.commands import ROOT
from tests.support.inbox import row
from tests.support.inbox_at_work import goes_by

PAGE = (ROOT / "docs/sends.md").read_text(encoding="utf-8")
SNIPPETS: dict[str, str] = dict(re.findall(r"^```python\n# ([\w.]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


class Provider:
    """What the page leaves to its reader."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self.sent: list[tuple[str, str]] = []

    async def send(self, token: str, text: str) -> str:
        """Take one."""
        self.sent.append((token, text))
        return f"{token} {len(self.sent)}"

    async def receipts(self, tickets: list[str]) -> dict[str, str]:
        """What is known of these."""
        return {ticket: self.said[ticket.split()[0]] for ticket in tickets if ticket.split()[0] in self.said}

    async def receipts_of(self, tickets: list[Any]) -> list[str]:
        """Of each."""
        return [self.said[each.ticket.split()[0]] for each in tickets]


def run(name: str, **left_to_the_reader: Any) -> dict[str, Any]:
    """The names of a snippet."""
    names = {**left_to_the_reader}
    exec(compile(SNIPPETS[name], name, "exec"), names)  # noqa: S102 -- the page's own words
    return names


async def until(deliveries: Deliveries, condition: Callable[[], Any]) -> None:
    """Have time go by until it is so."""
    await goes_by(deliveries, 5.0, condition)


async def test_fan_out(inbox_database: str) -> None:
    """Who wants no news any more gets none, and the event is done with its recipients there."""
    told: list[tuple[str, str]] = []

    async def readers_of(author: str) -> list[str]:
        return [f"{author}'s {name}" for name in ("anna", "ben")]

    async def wants_news(recipient: str) -> bool:
        return "anna" in recipient

    async def tell(recipient: str, title: str) -> None:
        told.append((recipient, title))

    news: Consumer = run("news.py", readers_of=readers_of, wants_news=wants_news, tell=tell)["news"]
    async with in_memory(news, database=inbox_database) as deliveries:
        event = deliveries.publish("article.published", {"author": "eve", "title": "On waiting"})
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
        assert (await deliveries.wait_for(f"{event}/eve's anna")).fate is Fate.DONE
        assert (await deliveries.wait_for(f"{event}/eve's ben")).fate is Fate.SKIPPED

    assert told == [("eve's anna", "On waiting")]


async def test_batches(inbox_database: str) -> None:
    """One request for all, and each mail's own end."""
    requests: list[list[str]] = []

    async def send_all(mails: list[str]) -> list[str]:
        requests.append(sorted(mails))
        return [{"a": "ok", "b": "no such address"}.get(mail, "busy") for mail in mails]

    mails: Consumer = run("batch.py", provider=SimpleNamespace(send_all=send_all))["mails"]
    async with in_memory(mails, database=inbox_database) as deliveries:
        events = [deliveries.publish("mail.due", mail) for mail in "abc"]
        fates = [(await deliveries.wait_for(event)).fate for event in events]

    assert fates == [Fate.DONE, Fate.INVALID, Fate.RETRIED]
    assert requests == [["a", "b", "c"]]


async def test_two_steps(inbox_database: str) -> None:
    """Each send comes to what its receipt says, and a device that is gone is deactivated."""
    provider = Provider()
    gone: list[UUID] = []

    async def deactivate(*, of_event: UUID) -> None:
        gone.append(of_event)

    push: Consumer = run("push.py", provider=provider, devices=SimpleNamespace(deactivate=deactivate))["push"]
    provider.said = {"a": "ok", "b": "DeviceNotRegistered", "c": "MessageRateExceeded"}
    async with in_memory(push, database=inbox_database) as deliveries:
        events = {token: deliveries.publish("push.due", {"token": token, "text": "hello"}) for token in "abcd"}
        for event in events.values():
            assert (await deliveries.wait_for(event)).fate is Fate.SENT
        await until(deliveries, lambda: len(provider.sent) == 5)
        provider.said |= {"c": "ok", "d": "ok"}
        await until(deliveries, lambda: not deliveries.pending)

    found = {token: row(inbox_database, event)["outcome"] for token, event in events.items()}
    assert found == {"a": "ok", "b": "invalid", "c": "ok", "d": "ok"}
    assert gone == [events["b"]]


async def test_a_source_is_flagged_where_the_send_is_made(inbox_database: str) -> None:
    """A failed receipt does not take it back."""
    provider = Provider()

    async def find(user: str) -> Any:
        return SimpleNamespace(token=user, wants_reminders=user != "b")

    verdict = run("push.py", provider=provider, devices=None)["verdict"]
    names = run("remind.py", provider=provider, users=SimpleNamespace(find=find), verdict=verdict)
    provider.said = {"a": "DeviceNotRegistered"}
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        connection.execute("create table invoices (id text primary key, reminded_at timestamptz)")
        connection.execute("insert into invoices values ('a'), ('b')")
        async with in_memory(names["reminders"], database=inbox_database) as deliveries:
            for user in "ab":
                deliveries.publish("reminder.due", {"user": user}, aggregate_id=user)
            await until(deliveries, lambda: not deliveries.pending)
        flagged = connection.execute("select id from invoices where reminded_at is not null").fetchall()

    assert flagged == [("a",)]
    assert [token for token, _ in provider.sent] == ["a"]
