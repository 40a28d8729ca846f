"""The stack as its users meet it."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from relay.dev.postgres import StopMode
from relay.dev.reaper import follow
from relay.dev.sandbox import Sandbox
from relay.dev.server import EmbeddedServer
from relay.dev.stack import Part, Stack
from relay.errors import DevError
from relay.testing import Servers
from tests.integration.dev.owners import StartOwner
from tests.support.waiting import until

pytestmark = pytest.mark.slow("starts servers of its own again and again")

DATABASES = (Part.POSTGRES, Part.REDIS)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A stack with every part."""
    with Stack.start() as running:
        yield running


def show(url: str, setting: str) -> str:
    """What a Postgres setting is."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select current_setting(%s)", (setting,)).fetchone()
    assert row is not None
    return str(row[0])


def test_a_stack_is_ready_soon() -> None:
    """Nobody waits for the stack; the bound is generous, half a second is usual."""
    started = time.monotonic()
    with Stack.start():
        assert time.monotonic() - started < 15


def recorded_orders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the reapers are told from now on."""
    orders: list[str] = []
    give = Sandbox._order

    def record(sandbox: Sandbox, line: str) -> None:
        orders.append(line)
        give(sandbox, line)

    monkeypatch.setattr(Sandbox, "_order", record)
    return orders


def test_every_server_answers(stack: Stack) -> None:
    """Ready means that a client's first request is served."""
    assert show(stack.database_url, "server_version_num") >= "180000"
    with redis.Redis.from_url(stack.redis_url) as client:
        assert client.ping()
    host, port = stack.pubsub_emulator_host.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def test_the_environment_names_every_server(stack: Stack) -> None:
    """Programs of this project find the stack by these four variables."""
    assert stack.environment == {
        "DATABASE_URL": stack.database_url,
        "REDIS_URL": stack.redis_url,
        "PUBSUB_EMULATOR_HOST": stack.pubsub_emulator_host,
        "PUBSUB_PROJECT_ID": "outbox-relay-dev",
    }


def test_statements_can_be_counted(stack: Stack) -> None:
    """Tests that count statements find pg_stat_statements loaded."""
    with psycopg.connect(stack.database_url) as connection:
        connection.execute("create extension pg_stat_statements")
        connection.execute("select count(*) from pg_stat_statements")
        connection.rollback()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TimeZone", "UTC"),
        ("fsync", "off"),
        ("synchronous_commit", "on"),
        ("autovacuum", "on"),
        ("dynamic_shared_memory_type", "mmap"),
    ],
)
def test_postgres_is_set_up_for_tests(stack: Stack, setting: str, value: str) -> None:
    """Fast, in UTC, with all of its files in its folder, and otherwise as Postgres comes."""
    assert show(stack.database_url, setting) == value


def test_a_wrong_password_is_refused(stack: Stack) -> None:
    """Another user of this machine gets in nowhere."""
    assert stack.postgres is not None
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stack.database_url.replace(stack.postgres.password, "wrong"))
    assert stack.redis is not None
    with (
        redis.Redis.from_url(stack.redis_url.replace(stack.redis.password, "wrong")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_two_stacks_do_not_meet(stack: Stack) -> None:
    """A second stack has servers, ports and data of its own."""
    with Stack.start() as other:
        with psycopg.connect(other.database_url) as connection:
            connection.execute("create table only_here ()")
        with psycopg.connect(stack.database_url) as connection:
            row = connection.execute("select to_regclass('only_here')").fetchone()
        assert row == (None,)
        assert other.redis_url != stack.redis_url
        assert other.pubsub_emulator_host != stack.pubsub_emulator_host


def test_a_given_server_takes_the_place_of_ours(stack: Stack) -> None:
    """TEST_DATABASE_URL and TEST_REDIS_URL override their parts, and nothing is started for them."""
    given = {"TEST_DATABASE_URL": stack.database_url, "TEST_REDIS_URL": "redis://elsewhere"}
    with Servers.for_tests(given) as servers:
        mixed = servers.stack(Part.POSTGRES, Part.REDIS)
        assert mixed.servers == ()
        assert mixed.environment == {
            "DATABASE_URL": stack.database_url,
            "REDIS_URL": "redis://elsewhere",
        }


def test_a_part_that_was_not_started_has_no_address() -> None:
    """The error names the part, because the caller forgot it."""
    with Stack.start([Part.REDIS]) as small, pytest.raises(DevError, match="without postgres"):
        _ = small.database_url


def test_a_folder_may_have_any_name(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces and quotes in it are part of the name."""
    odd = open_folder / 'it\'s "my" folder'
    odd.mkdir(mode=0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    with Stack.start([Part.REDIS, Part.POSTGRES]) as stack:
        with redis.Redis.from_url(stack.redis_url) as client:
            assert client.ping()
        assert show(stack.database_url, "server_version")


def test_settings_go_over_the_defaults() -> None:
    """A test of limits sets its own, quotes in values included."""
    settings = {"max_connections": "20", "search_path": '"it\'s", public'}
    with Stack.start([Part.POSTGRES], postgres_settings=settings) as stack:
        assert show(stack.database_url, "max_connections") == "20"
        assert show(stack.database_url, "search_path") == '"it\'s", public'


def test_a_durable_postgres_waits_for_the_disk() -> None:
    """A benchmark measures Postgres as it runs in production."""
    with Stack.start([Part.POSTGRES], durable=True) as stack:
        assert show(stack.database_url, "fsync") == "on"
        assert show(stack.database_url, "full_page_writes") == "on"


@pytest.mark.parametrize("mode", list(StopMode))
def test_postgres_restarts_with_its_port_and_data(mode: StopMode) -> None:
    """What was committed survives either way of stopping, and clients find the server again."""
    with Stack.start([Part.POSTGRES]) as stack:
        assert stack.postgres is not None
        before, url = stack.postgres.pid, stack.database_url
        with psycopg.connect(url) as connection:
            connection.execute("create table kept ()")
        stack.postgres.restart(mode)
        assert stack.postgres.pid != before
        assert stack.database_url == url
        with psycopg.connect(url) as connection:
            connection.execute("select from kept")


def test_redis_restarts_with_its_port() -> None:
    """Clients find the server again, as empty as a Redis without persistence."""
    with Stack.start([Part.REDIS]) as stack:
        assert stack.redis is not None
        with redis.Redis.from_url(stack.redis_url) as client:
            client.set("key", "value")
            stack.redis.restart()
            assert client.get("key") is None


def test_a_server_that_died_can_be_started_again() -> None:
    """A test of outages kills the server itself."""
    with Stack.start([Part.REDIS]) as stack:
        (server,) = stack.servers
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not server.running, "Redis is dead")
        server.start()
        with redis.Redis.from_url(stack.redis_url) as client:
            assert client.ping()


def test_the_reaper_lets_go_of_a_server_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once somebody has looked at the dead process, its number may be a stranger's, whom nobody may signal."""
    orders = recorded_orders(monkeypatch)
    with Stack.start([Part.REDIS]) as stack:
        (server,) = stack.servers
        pid = server.pid
        assert list(follow(orders)) == [pid]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not server.running, "Redis is dead")
        assert follow(orders) == {}
        server.start()
        assert orders.count(f"- {pid}") == 1
        assert list(follow(orders)) == [server.pid]


def test_the_reaper_lets_go_of_a_server_that_never_came_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that ended on its way up signalled again."""
    orders = recorded_orders(monkeypatch)
    with Stack.start([Part.POSTGRES]) as stack:
        assert stack.postgres is not None
        stack.postgres.stop()
        with (
            socket.create_server(("127.0.0.1", stack.postgres.port)),
            pytest.raises(DevError, match="Address already in use"),
        ):
            stack.postgres.start()
        assert follow(orders) == {}


def test_a_stopped_server_is_not_running() -> None:
    """Stopping twice is an error that says so."""
    with Stack.start([Part.REDIS]) as stack:
        assert stack.redis is not None
        stack.redis.stop()
        assert not stack.redis.running
        with pytest.raises(DevError, match="Redis is not running"):
            stack.redis.stop()


@pytest.mark.parametrize("part", DATABASES)
def test_a_server_moves_on_when_its_port_is_taken(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between choosing a port and listening on it, another process may be faster."""
    with socket.create_server(("127.0.0.1", 0)) as rival:
        taken: int = rival.getsockname()[1]
        choices = iter([taken])
        choose = EmbeddedServer._choose_port
        monkeypatch.setattr(EmbeddedServer, "_choose_port", lambda server: next(choices, 0) or choose(server))
        with Stack.start([part]) as stack:
            (server,) = stack.servers
            assert server.running
            assert server.port != taken


def test_a_restart_does_not_leave_its_port() -> None:
    """A port that somebody took meanwhile is an error: clients would look for us in vain."""
    with Stack.start([Part.POSTGRES]) as stack:
        assert stack.postgres is not None
        stack.postgres.stop()
        with (
            socket.create_server(("127.0.0.1", stack.postgres.port)),
            pytest.raises(DevError, match="Address already in use"),
        ):
            stack.postgres.start()
        stack.postgres.start()


def test_a_failing_start_tells_what_the_server_said() -> None:
    """Whoever reads the error needs no log file, which is gone by then."""
    with (
        pytest.raises(DevError, match=r"(?s)Postgres did not start.*shared_buffers.*DATABASE_URL"),
        Stack.start([Part.POSTGRES], postgres_settings={"shared_buffers": "1"}),
    ):
        pass


def test_a_failing_start_leaves_nothing(start_owner: StartOwner) -> None:
    """An error on the way up cleans up like any other end."""
    owner = start_owner(
        "from relay.dev.stack import Part, Stack\nwith Stack.start(postgres_settings={'shared_buffers': '1'}): pass"
    )
    assert owner.process.wait() == 1
    assert owner.leftovers() == []
