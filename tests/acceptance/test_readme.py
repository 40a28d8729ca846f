"""Every snippet of the README, run the way it stands there."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
import pytest
from google.pubsub_v1.types import PubsubMessage

from relay.dev.stack import Stack
from relay.settings import load
from tests.support.commands import ROOT, Commands, exported, terminate
from tests.support.outbox import PUBLISHED, count
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

README = (ROOT / "README.md").read_text()
# The walks through a service that exists have a module of their own, test_walks.py.
WALKS = re.compile(r"^## In a service that you have$.*?^## ", re.MULTILINE | re.DOTALL)
SNIPPETS: list[tuple[str, str]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", WALKS.sub("## ", README), re.MULTILINE | re.DOTALL
)


def snippet(language: str, containing: str) -> str:
    """The one snippet of a language that has these words."""
    (text,) = [text for found, text in SNIPPETS if found == language and containing in text]
    return text


def commands(containing: str) -> list[list[str]]:
    """The words of each line of a shell snippet, without its comment."""
    return [shlex.split(line, comments=True) for line in snippet("sh", containing).splitlines()]


@contextmanager
def program(words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[IO[str]]:
    """What a program prints, until it ends or the block does."""
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield process.stdout
        finally:
            process.kill()


async def publish_again(variables: Mapping[str, str]) -> None:
    """Send the first event's message once more, as a relay does that died before its commit."""
    with psycopg.connect(variables["DATABASE_URL"]) as connection:
        first = connection.execute(
            "select event_id::text, aggregate_id, payload::text from outbox_events order by id"
        ).fetchone()
    assert first
    identity, aggregate, envelope = first
    attributes = {"event_id": identity, "aggregate_type": "order", "aggregate_id": aggregate}
    copy = PubsubMessage(data=envelope.encode(), attributes=attributes)
    side = PubSubSide(variables["PUBSUB_EMULATOR_HOST"])
    await side.publish(Channel(variables["RELAY_TOPIC"], ""), [copy])
    await side.close()


def test_there_is_a_test_for_each_snippet() -> None:
    """A snippet that nobody runs is a snippet that is wrong one day."""
    languages = [
        "sh",
        "python",
        "sql",
        "python",
        "sh",
        "python",
        "sh",
        "sh",
        "sh",
        "ini",
        "sh",
        "python",
        "sql",
        "sh",
        "sh",
    ]
    assert [language for language, _ in SNIPPETS] == languages


def test_the_extras_to_install_exist() -> None:
    """Of an unknown one pip only warns, and installs too little."""
    named = {name for names in re.findall(r"'\.\[([\w,]+)\]'", README) for name in names.split(",")}
    assert named == set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_the_two_commands_are_targets() -> None:
    """`make demo` and `make test` run what the tests of the demo and this suite run."""
    assert commands("make demo") == [["make", "demo"], ["make", "test"]]
    for line, runs in zip(commands("make demo"), ["-m examples.demo", "-m pytest"], strict=True):
        plan = subprocess.run([*line, "-n"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
        assert runs in plan.stdout


def test_emitting_from_a_service(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change and its event are stored by the snippet."""
    monkeypatch.setenv("DATABASE_URL", database)
    exec(snippet("python", "emit(connection"), {})  # noqa: S102 -- this is what the test is for
    with psycopg.connect(database) as connection:
        assert connection.execute("select * from orders").fetchall() == [(1, 1999)]
    assert count(database, "payload -> 'data' = '{\"amount\": 1999}' and aggregate_id = '1'") == 1


def test_asking_without_the_sdk(stack: Stack, tmp_path: Path) -> None:
    """The snippet acts once."""
    (tmp_path / "ask.py").write_text(snippet("python", "check_and_mark_processed"))
    with program(["ask.py"], tmp_path, {"REDIS_URL": stack.redis_url}) as printed:
        assert printed.read() == "act, then acknowledge\nseen before, acknowledge\n"


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


def test_running_the_relay(relay: Commands, bare_database: str, tmp_path: Path) -> None:
    """`migrate` makes an outbox, `topics ensure` its topics, and `run` publishes what is emitted into it."""
    migrate, topics, run = commands("relay migrate")
    assert (migrate[:3], topics[:3], run[:3]) == (["python", "-m", "relay"],) * 3
    # One role for everything, which then is the owner of the outbox.
    relay = Commands({**relay.settings, "DATABASE_URL": bare_database}, tmp_path)
    assert relay(*migrate[3:]).returncode == 0
    assert relay(*topics[3:]).returncode == 0
    with psycopg.connect(bare_database) as connection:
        connection.execute(snippet("sql", "outbox_emit").encode())
    with relay.from_nothing(*run[3:]) as process:
        until(lambda: count(bare_database, PUBLISHED) == 1, "the relay publishes")
        code, log = terminate(process)
    assert code == 0, log


async def test_jobs_that_move_and_export(
    relay: Commands, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs run as they stand there, on the table of the first snippet; the commands show what they did."""
    monkeypatch.setenv("DATABASE_URL", database)
    exec(snippet("python", "emit(connection"), {})  # noqa: S102 -- this is what the test is for
    with psycopg.connect(database) as connection:
        connection.execute(snippet("sql", "alter table orders").encode())
        connection.execute("insert into orders values (default, 1, '2024-01-05'), (default, 2, '2024-02-05')")
    (tmp_path / "upkeep.py").write_text(snippet("python", "Jobs()"))
    relay = Commands({**relay.settings, "RELAY_APP": "upkeep:jobs", "ARCHIVE_BUCKET": str(tmp_path)}, tmp_path)
    environment = {"RELAY_RUNNERS": "jobs", "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    assert relay("tick", **environment).returncode == 0
    with psycopg.connect(database) as connection:
        # As if the night had come.
        connection.execute("update relay_schedule set last_slot = '2024-01-01' where name = 'clean_up'")
    assert relay("tick", **environment).returncode == 0

    history, standing = commands("relay runs")
    ran = relay(*history[3:]).stdout
    assert "orders=1" in ran
    assert all(f"{name}=" in ran for name in ("moved:public.orders", "exported_files")), ran
    assert "2024-01 part 1  verified" in relay(*standing[3:]).stdout


def test_operating_it(relay: Commands) -> None:
    """Each command says of an outbox that is well that it is."""
    lines = commands("relay doctor")
    assert [line[:3] for line in lines] == [["python", "-m", "relay"]] * 5
    for line in lines:
        done = relay(*line[3:])
        assert done.returncode == 0, (line, done.stdout, done.stderr)


@pytest.mark.slow("follows the README, process by process")
async def test_trying_it_in_two_terminals(tmp_path: Path) -> None:
    """The programs as they stand there emit, publish and consume on what `relay dev` prints, and recognise a copy."""
    (tmp_path / "emit.py").write_text(snippet("python", "emit(connection"))
    (tmp_path / "consume.py").write_text(snippet("python", "Consumer("))
    activate, dev = commands("relay dev  ")
    assert (activate, dev) == ([".", ".venv/bin/activate"], ["python", "-m", "relay", "dev"])
    again, (_, *emit), tick, (_, *create), (_, *consume) = commands("python emit.py")
    assert (again, tick) == (activate, ["python", "-m", "relay", "tick"])
    assert [create, consume] == [line[1:] for line in commands("dead-letters create consume:shipping    ")]
    with Commands({}, tmp_path).from_nothing(*dev[3:]) as servers:
        variables = exported(servers)
        relay = Commands(variables, tmp_path)

        def emit_and_tick() -> None:
            with program(emit, tmp_path, variables) as printed:
                assert printed.read() == ""
            assert relay(*tick[3:]).returncode == 0

        emit_and_tick()
        with program(create, tmp_path, variables) as printed:
            assert "domain-events-dead-letters" in printed.read()
        with program(consume, tmp_path, variables) as printed:
            assert printed.readline() == "ship 1 for 1999\n"
            await publish_again(variables)
            emit_and_tick()
            assert printed.readline() == "ship 2 for 1999\n"
        code, log = terminate(servers)
    assert code == 0, log


@pytest.mark.slow("follows the README, process by process")
def test_working_on_the_embedded_servers(tmp_path: Path) -> None:
    """`relay dev` runs a command in its environment: the tick finds a migrated outbox."""
    ((_, *arguments),) = commands("relay dev --")
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
