"""Which topics are there, and creating those that are not."""

import json
from uuid import uuid4

import psycopg

from relay import emit
from relay.dev.stack import PROJECT_ID
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide


def full(name: str) -> str:
    """The name with its project."""
    return f"projects/{PROJECT_ID}/topics/{name}"


def test_the_topics_of_settings_rows_and_call_are_planned_and_created_once(
    relay: Commands, database: str, channel: Channel
) -> None:
    """A plan says what is missing and changes nothing; a second ensure finds everything there."""
    routed, rows, given = (f"t-{uuid4().hex}" for _ in range(3))
    with psycopg.connect(database) as connection:
        emit(connection, event(topic=rows))
    setting = {"RELAY_ROUTES": f"order.*={routed}"}
    expected = [full(name) for name in (channel.topic, routed, rows, given)]

    plan = relay("topics", "plan", given, "--json", **setting)
    first = relay("topics", "ensure", given, full(given), "--json", **setting)
    second = relay("topics", "plan", given, **setting)

    assert (plan.returncode, first.returncode, second.returncode) == (1, 0, 0), plan.stderr + first.stderr
    for done, states in ((plan, ["exists"] + ["missing"] * 3), (first, ["exists"] + ["created"] * 3)):
        said = json.loads(done.stdout)["topics"]
        assert [(each["topic"], each["state"]) for each in said] == list(zip(expected, states, strict=True))
    assert second.stdout.splitlines() == [f"{name} exists" for name in expected]


def test_without_a_database_the_topics_of_the_settings_are_enough(relay: Commands, channel: Channel) -> None:
    """As in the step that prepares a project."""
    done = relay("topics", "plan", DATABASE_URL="")
    assert (done.returncode, done.stdout) == (0, f"{full(channel.topic)} exists\n"), done.stderr


async def test_what_may_not_be_seen_or_created_names_the_permission(
    relay: Commands, channel: Channel, pubsub: PubSubSide
) -> None:
    """A topic that is unseen is not called missing."""
    await pubsub.fail("PERMISSION_DENIED", "GetTopic")
    plan = relay("topics", "plan")
    await pubsub.fail("PERMISSION_DENIED", "CreateTopic")
    ensure = relay("topics", "ensure")

    assert (plan.returncode, ensure.returncode) == (1, 1)
    assert f"{full(channel.topic)} unseen" in plan.stdout
    assert "roles/pubsub.viewer" in plan.stdout
    assert "creating takes pubsub.topics.create" in ensure.stderr


def test_a_name_that_is_no_topic_is_a_wrong_call(relay: Commands) -> None:
    """Before anything is asked."""
    done = relay("topics", "ensure", "ab")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("relay: topic 'ab' has 2 character(s)")
