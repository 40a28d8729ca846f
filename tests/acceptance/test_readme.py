"""Every snippet of the README, run the way it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis.asyncio import Redis

from relay.dev.stack import Stack
from relay.settings import load
from tests.support.commands import ROOT, Commands, terminate
from tests.support.outbox import PUBLISHED, count
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

SNIPPETS: list[tuple[str, str]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)


def snippet(language: str, containing: str) -> str:
    """The one snippet of a language that has these words."""
    (text,) = [text for found, text in SNIPPETS if found == language and containing in text]
    return text


def commands(containing: str) -> list[list[str]]:
    """The words of each line of a shell snippet, without its comment."""
    return [shlex.split(line, comments=True) for line in snippet("sh", containing).splitlines()]


def test_there_is_a_test_for_each_snippet() -> None:
    """A snippet that nobody runs is a snippet that is wrong one day."""
    assert [language for language, _ in SNIPPETS] == ["sh", "python", "sql", "ini", "sh", "sh", "python"]


def test_the_two_commands_are_targets() -> None:
    """`make demo` and `make test` run what the tests of the demo and this suite run."""
    assert commands("make demo") == [["make", "demo"], ["make", "test"]]
    for line, runs in zip(commands("make demo"), ["-m examples.demo", "-m pytest"], strict=True):
        plan = subprocess.run([*line, "-n"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
        assert runs in plan.stdout


def test_emitting_from_a_service(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change and its event are stored by the snippet."""
    monkeypatch.setenv("DATABASE_URL", database)
    with psycopg.connect(database) as connection:
        connection.execute("create table orders (id int primary key, paid boolean not null)")
        connection.execute("insert into orders values (42, false)")
    exec(snippet("python", "emit(connection"), {})  # noqa: S102 -- this is what the test is for
    with psycopg.connect(database) as connection:
        assert connection.execute("select paid from orders").fetchall() == [(True,)]
    assert count(database, "payload -> 'data' = '{\"amount\": 1999}' and aggregate_id = '42'") == 1


def test_emitting_by_sql(database: str) -> None:
    """The function takes the snippet as any client sends it."""
    with psycopg.connect(database) as connection:
        connection.execute(snippet("sql", "outbox_emit").encode())
    assert count(database, "event_type = 'order.paid'") == 1


def test_the_settings_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of the `.env` in the README is a setting that the relay knows."""
    text = snippet("ini", "DATABASE_URL")
    (tmp_path / ".env").write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in dict(line.split("=", 1) for line in text.splitlines()):
        monkeypatch.delenv(name, raising=False)
    settings = load()
    assert settings.require_database() == "postgresql://user:password@localhost:5432/app"
    assert (settings.require_project(), settings.relay_topic) == ("my-project", "domain-events")


async def test_running_the_relay(
    relay: Commands, bare_database: str, pubsub: PubSubSide, channel: Channel, stack: Stack
) -> None:
    """migrate, run, and an event that the consumer's snippet acts on once although it comes twice."""
    migrate, run = commands("relay migrate")
    assert (migrate[:3], run[:3]) == (["python", "-m", "relay"],) * 2
    relay.settings["DATABASE_URL"] = bare_database
    assert relay(*migrate[3:]).returncode == 0
    with psycopg.connect(bare_database) as connection:
        connection.execute(snippet("sql", "outbox_emit").encode())
    with relay.background(*run[3:]) as process:
        until(lambda: count(bare_database, PUBLISHED) == 1, "the relay publishes")
        code, log = terminate(process)
    assert code == 0, log

    (message,) = await pubsub.drain(channel)
    consumer: dict[str, Any] = {"shipped": []}
    consumer["print"] = lambda *words: consumer["shipped"].append(words)
    exec(snippet("python", "async def handle"), consumer)  # noqa: S102 -- this is what the test is for
    async with Redis.from_url(stack.redis_url) as redis:
        await consumer["handle"](message, redis)
        await consumer["handle"](message, redis)
    assert consumer["shipped"] == [("ship", "42")]


def test_working_on_the_embedded_servers(tmp_path: Path) -> None:
    """`relay dev` runs a command in its environment: the tick finds a migrated outbox."""
    ((_, *arguments),) = commands("relay dev")
    words = [sys.executable if word == "python" else word for word in arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "RELAY_TOPIC")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"publish"' in done.stdout
