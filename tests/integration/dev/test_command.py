"""`relay dev` as a person at a terminal meets it."""

import shlex
import signal

import psutil
import psycopg
import pytest

from relay.dev.command import dev
from relay.dev.stack import Part, Stack
from relay.errors import ConfigurationError
from tests.integration.dev.owners import StartOwner

RELAY_DEV = """
import sys
from relay.dev.command import dev
sys.exit(dev())
"""

RELAY_DEV_REDIS = """
import sys
from relay.dev.command import dev
from relay.dev.stack import Part
sys.exit(dev(parts=[Part.REDIS]))
"""

RELAY_DEV_TOPIC = """
import sys
from relay.dev.command import dev
from relay.dev.stack import Part
sys.exit(dev(parts=[Part.REDIS], topic="orders"))
"""

RELAY_DEV_WITH_COMMAND = """
import sys
from relay.dev.command import dev
from relay.dev.stack import Part
sys.exit(dev(["/bin/sh", "-c", "echo up; exec sleep 600"], parts=[Part.REDIS]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_the_environment_and_runs_until_told_to_stop(start_owner: StartOwner, number: signal.Signals) -> None:
    """The lines can be pasted into another terminal; Ctrl-C is a good end, not an error."""
    owner = start_owner(RELAY_DEV)
    variables = {}
    while (line := owner.line()).startswith("export "):
        name, value = line.removeprefix("export ").split("=", 1)
        (variables[name],) = shlex.split(value)
    assert line.startswith("# Ready in ")
    assert sorted(variables) == [
        "DATABASE_URL",
        "PUBSUB_EMULATOR_HOST",
        "PUBSUB_PROJECT_ID",
        "REDIS_URL",
    ]
    psycopg.connect(variables["DATABASE_URL"]).close()
    owner.send(number)
    assert owner.line() == "# The servers and their data are gone."
    assert owner.process.wait() == 0
    assert owner.leftovers() == []


def test_it_names_the_topic_that_was_prepared(start_owner: StartOwner) -> None:
    """A person needs to know what to publish to and what to pull from."""
    owner = start_owner(RELAY_DEV_TOPIC)
    lines = [owner.line() for _ in range(3)]
    assert lines[1:] == [
        "export RELAY_TOPIC=orders",
        "# The outbox is migrated. Its topic 'orders' has a subscription of the same name.",
    ]


def test_a_server_that_dies_ends_it(start_owner: StartOwner) -> None:
    """A person learns of it at once, not from the errors of the next program."""
    owner = start_owner(RELAY_DEV_REDIS)
    while owner.line().startswith("export "):
        pass
    (redis,) = (server for server in owner.servers() if server.name() == "valkey-server")
    redis.kill()
    assert owner.process.wait() == 1
    assert owner.leftovers() == []


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)])
def test_its_code_is_the_commands(script: str, code: int) -> None:
    """A wrapper may not hide how its command ended."""
    assert dev(["/bin/sh", "-c", script], parts=[Part.REDIS]) == code


def test_a_command_runs_in_the_environment_of_the_stack(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing but the command's own output is printed, so that it can be piped on."""
    assert dev(["/bin/sh", "-c", "echo $REDIS_URL"], parts=[Part.REDIS]) == 0
    assert capfd.readouterr().out.startswith("redis://:")


def test_a_command_is_told_the_topic(capfd: pytest.CaptureFixture[str]) -> None:
    """It publishes where the subscription listens, whatever the settings in its own folder say."""
    assert dev(["/bin/sh", "-c", "echo $RELAY_TOPIC"], parts=[Part.REDIS], topic="orders") == 0
    assert capfd.readouterr().out == "orders\n"


def test_a_command_is_told_of_sigterm(start_owner: StartOwner) -> None:
    """A process manager knows only the wrapper."""
    owner = start_owner(RELAY_DEV_WITH_COMMAND)
    assert owner.line() == "up"
    owner.send(signal.SIGTERM)
    assert owner.process.wait() == 128 + signal.SIGTERM
    assert owner.leftovers() == []


def test_a_ctrl_c_is_the_commands_to_answer(start_owner: StartOwner) -> None:
    """The terminal sends it to both; the servers must outlive whatever the command does then."""
    owner = start_owner(RELAY_DEV_WITH_COMMAND)
    assert owner.line() == "up"
    (command,) = (child for child in psutil.Process(owner.process.pid).children() if child.name() in {"sh", "sleep"})
    owner.send(signal.SIGINT)
    command.send_signal(signal.SIGINT)
    assert owner.process.wait() == 128 + signal.SIGINT
    assert owner.leftovers() == []


def test_an_unknown_command_is_a_wrong_call() -> None:
    """The error names the program that was not found."""
    with pytest.raises(ConfigurationError, match="'no-such-program' could not be run"):
        dev(["no-such-program"], parts=[Part.REDIS])


def test_it_prepares_the_stack_before_the_command_runs() -> None:
    """The schema is there when the command starts."""
    prepared: list[Stack] = []
    assert dev(["/bin/sh", "-c", "exit 0"], parts=[Part.REDIS], prepare=prepared.append) == 0
    assert len(prepared) == 1


def test_the_signals_are_handed_back() -> None:
    """A caller's own handlers work again afterwards."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    dev(["/bin/sh", "-c", "exit 0"], parts=[Part.REDIS])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
