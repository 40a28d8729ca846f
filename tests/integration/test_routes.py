"""The database routes as Python does, and the audit looks for a row where it was routed to."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay import emit
from relay.outbox.statements import statement
from relay.routes import Routes
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import PubSubSide

# Short texts of few characters match each other often; among them all that LIKE gives a meaning to.
NAMES = st.text(alphabet="ab._%\\*ä\n", min_size=1, max_size=4)
TOPICS = st.sampled_from(["one-topic", "two-topic", "projects/p/topics/three"])

STATEMENTS = sorted(
    path.name.removesuffix(".sql") for path in (files("relay.outbox") / "sql").iterdir() if path.name.endswith(".sql")
)
ROUTING = [name for name in STATEMENTS if b"route.pattern" in statement(name)]


@st.composite
def routings(draw: st.DrawFn) -> Routes:
    """Routes that `parse` has taken."""
    beginnings = NAMES.map(lambda name: re.sub(r"[*\s]", "", name)).filter(bool)
    patterns = st.builds(lambda name, star: name + star, beginnings, st.sampled_from(["", "*"]))
    chosen = draw(st.dictionaries(patterns, TOPICS, max_size=8))
    return Routes.parse(",".join(f"{pattern}={topic}" for pattern, topic in chosen.items()), "domain-events")


@pytest.fixture(scope="module")
def connection(stack: Any) -> Iterator[psycopg.Connection[Any]]:
    """A real database; nothing is stored in it."""
    with psycopg.connect(stack.database_url) as connection:
        yield connection


@pytest.mark.parametrize("name", ROUTING)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(routes=routings(), event_type=NAMES, topic=st.none() | TOPICS)
def test_a_statement_that_routes_gives_the_answer_of_python(
    connection: psycopg.Connection[Any], name: str, routes: Routes, event_type: str, topic: str | None
) -> None:
    r"""For every type and every list of routes, `_`, `%` and `\` in both included."""
    found = re.search(rb"coalesce\(\s*topic,.*?%\(default_topic\)s(::text)?\)", statement(name), re.DOTALL)
    assert found, "the expression that routes is another one"
    query = b"select " + found[0] + b" from (values (%(event_type)s::text, %(topic)s::text)) as row (event_type, topic)"

    (answer,) = connection.execute(
        query,
        {"event_type": event_type, "topic": topic, **routes.as_parameters},
    ).fetchone() or (None,)

    assert answer == routes.topic_of(topic, event_type)


async def test_the_audit_expects_a_row_on_the_topic_of_its_route(
    relay: Commands, database: str, pubsub: PubSubSide
) -> None:
    """A route that the audit did not know would make every row of it misrouted, or miss those that were lost."""
    orders, rest = await pubsub.open(), await pubsub.open()
    settings = {"RELAY_TOPIC": rest.topic, "RELAY_ROUTES": f"order.*={orders.topic}"}
    with psycopg.connect(database) as connection:
        lost = emit(connection, event(1)).event_id
        emit(connection, event(2, event_type="invoice.paid"))
        # Marked by hand, so that the row does not say where it went.
        connection.execute("update outbox_events set published_at = clock_timestamp(), message_id = 'm' where id = 1")

    done = relay("audit", "--subscription", orders.subscription, "--quiet", "200ms", **settings)

    assert done.returncode == 1, done.stderr
    assert str(lost) in done.stdout
    assert done.stdout.splitlines()[-1] == "failed: 1 lost"
