"""A key that waits behind a failed event: what an operator sees of it, does about it, and what goes out."""

import json
from typing import Any

import psycopg
import pytest

from relay import emit
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide


@pytest.fixture
async def ordered(relay: Commands, pubsub: PubSubSide) -> Channel:
    """Where the relay's events go: a topic with an ordered subscription."""
    channel = await pubsub.open(ordered=True)
    relay.settings["RELAY_TOPIC"] = channel.topic
    return channel


@pytest.fixture
def heads(relay: Commands, database: str, ordered: Channel) -> dict[str, int]:
    """Of two keys the first event cannot become a message, and of a third nothing is wrong. The relay went by."""
    assert relay.settings["RELAY_TOPIC"] == ordered.topic
    with psycopg.connect(database) as connection:
        emit(connection, [event(n, ordering_key=key) for n in range(3) for key in ("fixed", "given up", "well")])
        broken = connection.execute(
            """update outbox_events set attributes = '{"goog-trace": "x"}'
                where aggregate_id = '0' and ordering_key <> 'well' returning ordering_key, id"""
        ).fetchall()
    assert relay("tick").returncode == 0
    return dict(broken)


def told(relay: Commands) -> dict[str, Any]:
    """What `status` says of blocked keys."""
    blocked: dict[str, Any] = json.loads(relay("status", "--json").stdout)["blocked"]
    return blocked


async def test_an_operator_releases_blocked_keys(
    relay: Commands, database: str, pubsub: PubSubSide, ordered: Channel, heads: dict[str, int]
) -> None:
    """Seen and alerted of while it waits; in order after a retry, without the event after a discard."""
    blocked = told(relay)
    assert (blocked["keys"], blocked["rows_behind"]) == (2, 4)
    assert {key["ordering_key"]: (key["id"], key["code"], key["behind"]) for key in blocked["shown"]} == {
        key: (head, "invalid_attributes", 2) for key, head in heads.items()
    }
    assert relay("check", "--max-failed", "2").stdout.startswith("2 key(s) wait behind a failed row, with 4 row(s)")

    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set attributes = '{}' where id = %s", (heads["fixed"],))
    assert relay("failed", "retry", str(heads["fixed"])).returncode == 0
    assert relay("failed", "discard", str(heads["given up"]), "--reason", "a test order").returncode == 0
    assert told(relay)["keys"] == 0
    assert relay("tick").returncode == 0

    came: dict[str, list[str]] = {}
    for message in await pubsub.drain(ordered):
        came.setdefault(message.ordering_key, []).append(message.attributes["aggregate_id"])
    assert came == {"well": ["0", "1", "2"], "fixed": ["0", "1", "2"], "given up": ["1", "2"]}
    assert relay("check").returncode == 0


async def test_where_failed_events_are_skipped_no_key_is_blocked(
    relay: Commands, database: str, pubsub: PubSubSide, ordered: Channel
) -> None:
    """The key goes on without it; its retry comes last, and is told to be out of order."""
    relay.settings["RELAY_ON_FAILED_HEAD"] = "block, order.*=skip"
    with psycopg.connect(database) as connection:
        emit(connection, [event(n, ordering_key="k") for n in range(3)])
        connection.execute("""update outbox_events set attributes = '{"goog": "x"}' where aggregate_id = '0'""")
    assert relay("tick").returncode == 0
    assert told(relay)["keys"] == 0

    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set attributes = '{}'")
    said = relay("failed", "retry", "--all").stdout
    assert "1 of them have an ordering key that went on without them" in said
    assert relay("tick").returncode == 0
    assert [message.attributes["aggregate_id"] for message in await pubsub.drain(ordered)] == ["1", "2", "0"]
