"""`relay run` with RELAY_HTTP: what a platform that probes it sees, from its start to its end."""

import http.client
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from relay import emit
from relay.dev.pubsub import Fault, set_faults
from tests.support.commands import SECONDS, Commands
from tests.support.forked import Running
from tests.support.outbox import PUBLISHED, count, event
from tests.support.pubsub import PubSubSide
from tests.support.waiting import until

TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 -- a test's own


def port_of(process: Running) -> int:
    """Read the log up to the line that says where it listens."""
    assert process.stderr
    for line in process.stderr:
        fields = json.loads(line)
        if fields["event"] == "http_listening":
            return int(fields["port"])
    raise AssertionError(f"the process ended with {process.wait()} and never listened")


def ask(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    """One request; status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def is_claimed(url: str) -> bool:
    """Whether somebody holds the rows' locks."""
    with psycopg.connect(url) as connection:
        return not connection.execute("select id from outbox_events for update skip locked").fetchall()


@contextmanager
def running(relay: Commands, **settings: str) -> Iterator[tuple[Running, int]]:
    """A relay that serves on a free port."""
    with relay.background("run", RELAY_HTTP="127.0.0.1:0", **settings) as process:
        yield process, port_of(process)


async def test_probes_follow_the_work_and_metrics_count_it(relay: Commands, database: str, pubsub: PubSubSide) -> None:
    """Ready with the first pass, degraded or not ready while the broker refuses, alive all the while."""
    with running(relay) as (process, port):
        until(lambda: ask(port, "/readyz")[0] == 200, "the relay is ready")
        assert ask(port, "/healthz")[0] == 200

        with psycopg.connect(database) as connection:
            emit(connection, event())
        until(lambda: count(database, PUBLISHED) == 1, "the event is published")
        until(lambda: " 1.0" in line_of(ask(port, "/metrics")[1], "relay_batches_total"), "it is counted")

        await pubsub.fail("UNAVAILABLE")
        with psycopg.connect(database) as connection:
            emit(connection, event())
        until(lambda: ask(port, "/readyz")[0] == 503, "a broker that refuses everything shows")
        assert "refuses messages" in ask(port, "/readyz")[1]
        assert ask(port, "/healthz")[0] == 200

        await pubsub.heal()
        until(lambda: ask(port, "/readyz")[0] == 200, "it is ready again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def line_of(text: str, name: str) -> str:
    """The sample of a metric without labels."""
    return next((line for line in text.splitlines() if line.startswith(f"{name} ")), "")


async def test_it_answers_not_ready_while_it_shuts_down(relay: Commands, database: str, pubsub: PubSubSide) -> None:
    """A load balancer is told before the process is gone; the batch in flight ends in order."""
    with running(relay) as (process, port):
        until(lambda: ask(port, "/readyz")[0] == 200, "the relay is ready")
        await set_faults(pubsub.address, Fault("OK", method="Publish", silent=True))
        with psycopg.connect(database) as connection:
            emit(connection, event())
        until(lambda: is_claimed(database), "the batch is under way")

        process.send_signal(signal.SIGTERM)
        until(lambda: "SIGTERM" in ask(port, "/readyz")[1], "it says that it stops")
        assert ask(port, "/readyz")[0] == 503
        assert ask(port, "/healthz")[0] == 200


def test_a_port_that_is_taken_ends_the_start_before_anything_is_published(relay: Commands, database: str) -> None:
    """Exit 2, and one sentence."""
    with psycopg.connect(database) as connection:
        emit(connection, event())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = relay("run", RELAY_HTTP=f"127.0.0.1:{taken.getsockname()[1]}")

    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert "Address already in use" in sentence
    assert count(database, PUBLISHED) == 0


@pytest.mark.parametrize("settings", [{"RELAY_HTTP": "0.0.0.0:0"}, {"DYNO": "web.1", "PORT": "0"}])
def test_leaving_loopback_takes_a_token(relay: Commands, settings: dict[str, str]) -> None:
    """Refused without one; with one, the probes answer yes or no and metrics ask for it."""
    done = relay("run", **settings)
    assert done.returncode == 2
    assert "RELAY_HTTP_TOKEN" in done.stderr

    with relay.background("run", RELAY_HTTP_TOKEN=TOKEN, **settings) as process:
        port = port_of(process)
        until(lambda: ask(port, "/readyz")[0] == 200, "the relay is ready")
        assert json.loads(ask(port, "/readyz")[1]) == {"status": "ok"}
        assert ask(port, "/metrics")[0] == 401
        assert ask(port, "/metrics", TOKEN)[0] == 200


def test_without_the_setting_nothing_listens(relay: Commands) -> None:
    """A worker dyno has a PORT too."""
    with relay.background("run", DYNO="relay.1", PORT="0") as process:
        assert process.stderr
        seen = []
        for line in process.stderr:
            seen.append(json.loads(line)["event"])
            if seen[-1] == "started":
                break
        assert "http_listening" not in seen
