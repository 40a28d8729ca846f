"""What is said of a consumer without a broker before it starts, and who is told of what is stored."""

from pathlib import Path
from typing import Any

import pytest

from consumers import ConfigurationError, Consumer, Received
from consumers.backstage import missing
from consumers.cli import main
from consumers.events import WakeUpLost
from consumers.inbox.moving import moving_statement
from consumers.settings import Settings
from consumers.sources.neighbours import Kept, Neighbours
from consumers.sources.outbox import OutboxFeed
from consumers.sources.source import Origin
from relay.outbox.events import ListenConnected, ListenLost


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


def direct(name: str = "billing", **options: Any) -> Consumer:
    """A consumer of an outbox."""
    return Consumer(name, dedup="inbox", source="outbox", **options)


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        ({"source": "redis"}, ["source is 'redis'; choose one of pubsub, outbox"]),
        (
            {"source": "outbox"},
            ["source='outbox' has dedup='claim'; its events are kept in Postgres: dedup='inbox'"],
        ),
        (
            {"source": "outbox", "dedup": "inbox", "subscription": "s", "dead_letter_topic": "d"},
            [
                "source='outbox' has subscription='s', and no broker that has one; leave it out",
                "source='outbox' has dead_letter_topic='d', and no broker that has one; leave it out",
            ],
        ),
    ],
)
def test_what_has_no_meaning_without_a_broker_is_refused(options: dict[str, Any], sentences: list[str]) -> None:
    """With a line for each."""
    with pytest.raises(ConfigurationError) as refused:
        Consumer("billing", **options)
    assert str(refused.value).splitlines() == sentences


def test_parts_of_ones_own_are_refused() -> None:
    """Whoever moves an event reads none of it."""

    def shard(event: Received[Any]) -> str:
        return event.event_type

    with pytest.raises(ConfigurationError, match="a shard_by of its own"):
        direct(shard_by=shard)


def test_a_consumer_names_where_its_events_come_from() -> None:
    """In place of a subscription; there is no dead-letter topic."""
    consumer = direct()
    assert (consumer.source, consumer.subscription, consumer.dead_letter_topic) == (Origin.OUTBOX, "outbox", "")
    assert Consumer("billing").source is Origin.PUBSUB


def test_neither_a_project_nor_redis_is_needed() -> None:
    """But for consumers beside it that have a broker."""
    settings = Settings.model_construct()
    assert [sentence.split()[0] for sentence in missing(settings, [direct()])] == ["DATABASE_URL"]
    both = missing(settings, [direct(), Consumer("shipping")])
    assert [sentence.split()[0] for sentence in both] == ["PUBSUB_PROJECT_ID", "REDIS_URL", "DATABASE_URL"]


def test_there_is_no_dead_letter_topic_to_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says where failures are, before it makes anything."""
    (tmp_path / "without_broker_shop.py").write_text(
        "from consumers import Consumer\nboth = [Consumer('b', dedup='inbox', source='outbox'), Consumer('a')]\n"
    )
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    assert main(["dead-letters", "create", "without_broker_shop:both"]) == 2
    assert "b: with source='outbox' what fails for good stays in the inbox" in capsys.readouterr().err


def test_each_neighbour_is_told_what_is_its_own() -> None:
    """And nothing, where it has ended or runs elsewhere."""
    told: dict[str, list[str]] = {}
    elsewhere: list[tuple[str, int]] = []
    neighbours = Neighbours()

    def join(name: str) -> None:
        its = told[name] = []
        neighbours.join(name, lambda kept, seconds: its.extend(f"{each.event_type} {seconds:g}" for each in kept))

    def stored(seconds: float) -> None:
        rows = [("shipping", "a", ""), ("billing", "a", "key"), ("shipping", "b", ""), ("other", "a", "")]
        kept = [Kept(*row, 1) for row in rows]
        neighbours.stored(kept, seconds, lambda name, its: elsewhere.append((name, len(its))))

    join("billing")
    join("shipping")
    stored(1.0)
    neighbours.leave("shipping")
    neighbours.leave("shipping")
    stored(2.0)
    assert told == {"billing": ["a 1", "a 2"], "shipping": ["a 1", "b 1"]}
    assert elsewhere == [("other", 1), ("other", 1), ("shipping", 2)]


def test_who_does_not_hear_of_new_events_says_so() -> None:
    """It polls until then."""
    told: list[object] = []

    async def connect() -> Any:
        raise OSError

    feed = OutboxFeed(connect, "public", moving_statement("public"), consumer="billing", observe=told.append)
    error = OSError("deaf")
    feed._heard(ListenConnected("h:1/db"))
    feed._heard(ListenLost(error, 30.0))
    assert told == [WakeUpLost("billing", error, 30.0)]
