"""Which topics are there, and creating those that are not."""

import json
from datetime import UTC, datetime
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relay import emit
from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID
from relay.outbox.statements import statement
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide


def full(name: str) -> str:
    """The name with its project."""
    return f"projects/{PROJECT_ID}/topics/{name}"


def said(done: CompletedProcess[str]) -> list[tuple[str, str, list[str]]]:
    """Each topic of a JSON answer, with its state and who names it."""
    return [(each["topic"], each["state"], each["named_by"]) for each in json.loads(done.stdout)["topics"]]


def test_the_topics_of_settings_and_call_are_planned_and_created_once(
    relay: Commands, database: str, channel: Channel
) -> None:
    """A plan says what is missing and changes nothing; what rows alone name is shown and left alone."""
    routed, rows, given = (f"t-{uuid4().hex}" for _ in range(3))
    with psycopg.connect(database) as connection:
        emit(connection, [event(topic=rows), event(topic=given)])
    setting = {"RELAY_ROUTES": f"order.*={routed}"}
    by = [(channel.topic, ["settings"]), (routed, ["settings"]), (given, ["you", "rows"]), (rows, ["rows"])]

    plan = relay("topics", "plan", given, "--json", **setting)
    first = relay("topics", "ensure", given, full(given), "--json", **setting)
    second = relay("topics", "plan", given, **setting)

    assert (plan.returncode, first.returncode, second.returncode) == (1, 0, 1), plan.stderr + first.stderr
    for done, states in (
        (plan, ["exists"] + ["missing"] * 3),
        (first, ["exists", "created", "created", "missing"]),
    ):
        assert said(done) == [(full(name), state, who) for (name, who), state in zip(by, states, strict=True)]
    assert second.stdout.splitlines() == [
        f"{full(channel.topic)} exists, named by settings",
        f"{full(routed)} exists, named by settings",
        f"{full(given)} exists, named by you, rows",
        (
            f"{full(rows)} missing, named by pending rows, by no setting; if the name is right, create it with: "
            f"python -m relay topics ensure {rows}; if it is mistyped, "
            'see "Pending rows with a wrong topic" in docs/operate.md'
        ),
    ]


def test_topics_of_pending_rows_are_created_when_asked_for(relay: Commands, database: str, channel: Channel) -> None:
    """A mistyped name would become a topic that nobody reads, and its events would be gone."""
    rows = f"t-{uuid4().hex}"
    with psycopg.connect(database) as connection:
        emit(connection, event(topic=rows))
    settings = (full(channel.topic), "exists", ["settings"])

    assert said(relay("topics", "ensure", "--json")) == [settings, (full(rows), "missing", ["rows"])]
    asked = relay("topics", "ensure", "--pending", "--json")
    assert asked.returncode == 0
    assert said(asked) == [settings, (full(rows), "created", ["rows"])]


def test_the_remedy_of_a_name_of_the_call_is_one_that_works(relay: Commands, channel: Channel) -> None:
    """With the name, in full where it is another project's; options may stand before it."""
    missing, elsewhere = f"t-{uuid4().hex}", f"projects/another/topics/t-{uuid4().hex}"
    plan = relay("topics", "plan", missing, elsewhere)
    _, first, second = plan.stdout.splitlines()

    assert first == f"{full(missing)} missing, named by you; create it with: python -m relay topics ensure {missing}"
    assert second == f"{elsewhere} missing, named by you; create it with: python -m relay topics ensure {elsewhere}"
    for name in (missing, elsewhere):
        assert relay("topics", "ensure", name).returncode == 0
    assert said(relay("topics", "plan", "--json", missing)) == [
        (full(channel.topic), "exists", ["settings"]),
        (full(missing), "exists", ["you"]),
    ]


def test_without_a_database_the_topics_of_the_settings_are_enough(relay: Commands, channel: Channel) -> None:
    """As in the step that prepares a project."""
    done = relay("topics", "plan", DATABASE_URL="")
    assert (done.returncode, done.stdout) == (0, f"{full(channel.topic)} exists, named by settings\n"), done.stderr


async def test_what_may_not_be_seen_or_created_names_the_permission(
    relay: Commands, channel: Channel, pubsub: PubSubSide
) -> None:
    """A topic that is unseen is not called missing; where nothing has to be created, nothing is lacking."""
    missing = f"t-{uuid4().hex}"
    await pubsub.fail("PERMISSION_DENIED", "GetTopic")
    plan = relay("topics", "plan")
    await pubsub.fail("PERMISSION_DENIED", "CreateTopic")
    there = relay("topics", "ensure")
    ensure = relay("topics", "ensure", missing)

    assert (plan.returncode, there.returncode, ensure.returncode) == (1, 0, 1)
    assert f"{full(channel.topic)} unseen" in plan.stdout
    assert "roles/pubsub.viewer" in plan.stdout
    assert there.stdout == ensure.stdout == f"{full(channel.topic)} exists, named by settings\n"
    assert f"topic {full(missing)}: PERMISSION_DENIED" in ensure.stderr
    assert "creating takes pubsub.topics.create" in ensure.stderr


async def test_what_is_refused_of_one_topic_spoils_none_of_the_others(
    relay: Commands, channel: Channel, pubsub: PubSubSide
) -> None:
    """Each has its own answer, in the order in which they are named; JSON holds the error too."""
    broken, missing = (f"t-{uuid4().hex}" for _ in range(2))
    await set_faults(pubsub.address, Fault("INTERNAL", method="GetTopic", topic=broken))
    done = relay("topics", "plan", broken, missing, "--json")

    assert done.returncode == 1
    assert [(each["topic"], each["state"]) for each in json.loads(done.stdout)["topics"]] == [
        (full(channel.topic), "exists"),
        (full(broken), "unknown"),
        (full(missing), "missing"),
    ]
    errors = [each["error"] for each in json.loads(done.stdout)["topics"]]
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1].startswith("INTERNAL: ")
    assert done.stderr == f"relay: topic {full(broken)}: {errors[1]}\n"


def test_rows_of_every_kind_name_topics(relay: Commands, database: str, channel: Channel) -> None:
    """Whether they go out at once, later, or in order; not those that are published or failed."""
    later = datetime(2200, 1, 1, tzinfo=UTC)
    with psycopg.connect(database) as connection:
        emit(
            connection,
            [
                event(topic="t-fresh"),
                event(topic="t-scheduled", available_at=later),
                event(topic="t-ordered", ordering_key="k"),
                event(topic="t-published", event_type="done"),
                event(topic="t-failed", event_type="failed"),
            ],
        )
        connection.execute("update outbox_events set published_at = now(), message_id = 'm' where event_type = 'done'")
        connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = 'max_attempts' where event_type = 'failed'"
        )
    done = relay("topics", "plan", "--json")
    assert [each["topic"] for each in json.loads(done.stdout)["topics"]] == [
        full(name) for name in (channel.topic, "t-fresh", "t-ordered", "t-scheduled")
    ]


@pytest.mark.parametrize("kind", [{}, {"available_at": datetime(2200, 1, 1, tzinfo=UTC)}, {"ordering_key": "k"}])
def test_the_newest_rows_are_looked_at_as_well_as_the_oldest(database: str, kind: dict[str, Any]) -> None:
    """A service that was deployed today names its topic behind yesterday's backlog."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(topic=name, **kind) for name in ("t-old", "t-between", "t-between", "t-new")])
        found = connection.execute(statement("doctor_topics"), {"most": 1}).fetchall()
    assert found == [("t-new",), ("t-old",)]


def test_a_row_that_names_no_topic_at_all_is_told_without_asking(
    relay: Commands, database: str, channel: Channel
) -> None:
    """It may hold anything, a line break included."""
    stored = '[{"event_type": "a.b", "aggregate_type": "a", "aggregate_id": "1", "data": {}, "topic": "two\\nlines"}]'
    with psycopg.connect(database) as connection:
        connection.execute("select outbox_emit(%s)", [stored])
    assert relay("topics", "plan").returncode == 1
    done = relay("topics", "ensure")
    assert (done.returncode, done.stdout) == (0, f"{full(channel.topic)} exists, named by settings\n")
    (line,) = done.stderr.splitlines()
    assert "two\\nlines" in line
    assert "pending rows name it" in line


def test_a_database_without_an_outbox_is_a_wrong_configuration(relay: Commands, bare_database: str) -> None:
    """With the command that makes one."""
    done = relay("topics", "plan", DATABASE_URL=bare_database)
    assert (done.returncode, done.stdout) == (2, "")
    assert "relay migrate" in done.stderr


def test_a_name_that_is_no_topic_is_a_wrong_call(relay: Commands) -> None:
    """Before anything is asked."""
    done = relay("topics", "ensure", "ab")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("relay: topic 'ab' has 2 character(s)")
