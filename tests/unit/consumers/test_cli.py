"""What the command line of consumers says about itself, and how it ends."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import consumers.cli
import consumers.cli.run
from consumers.cli.main import COMMANDS, _parser
from consumers.errors import ConfigurationError
from consumers.settings import Settings
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.shutdown import Shutdown

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


def _leaves(parser: argparse.ArgumentParser, before: str = "") -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                found |= {before + name: each, **_leaves(each, f"{before}{name} ")}
    return found


LEAVES = _leaves(_parser())


def test_the_commands_are_those_of_the_modules() -> None:
    """Each module adds its own."""
    assert len({name.split()[0] for name in LEAVES}) == len(COMMANDS)
    assert {"run", "config"} <= LEAVES.keys()


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_examples_that_it_understands(name: str) -> None:
    """What is copied is one command, and it is ours."""
    announced = LEAVES[name].format_help().rpartition("example")[2].partition(":\n")[2]
    examples = [line.strip() for line in announced.splitlines() if line.strip()]

    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])
        assert words[:3] == ["python", "-m", "consumers"]
        assert words[3 : 3 + len(name.split())] == name.split()
        assert callable(_parser().parse_args(words[3:]).command)


@pytest.mark.parametrize("name", LEAVES)
def test_help_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are broken by hand are no longer than 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in LEAVES[name].format_help().splitlines() if len(line) > 80] == []


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[BaseException], Any]:
    """Run a command that raises; answer with its exit code and the lines on stderr."""

    def run(error: BaseException) -> tuple[int, list[str]]:
        def command(_: argparse.Namespace) -> int:
            raise error

        parser = argparse.ArgumentParser()
        parser.set_defaults(command=command)
        monkeypatch.setattr(sys.modules["consumers.cli.main"], "_parser", lambda: parser)
        code = consumers.cli.main([])
        said = capsys.readouterr()
        assert said.out == ""
        return code, said.err.splitlines()

    return run


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (ConfigurationError("A is wrong\nB too"), 2, ["consumers: A is wrong", "consumers: B too"]),
        (relay_errors.ConfigurationError("A is wrong"), 2, ["consumers: A is wrong"]),
        (
            relay_errors.BrokerError("UNAVAILABLE", f'the value "{SECRET}" is'),
            1,
            ['consumers: UNAVAILABLE: the value "…" is'],
        ),
        (
            relay_errors.MigrationError('cannot drop table "shop"; nothing was changed'),
            1,
            ['consumers: cannot drop table "shop"; nothing was changed'],
        ),
        (
            psycopg.OperationalError(f"password={SECRET} is refused\n\tIs the server running?\n"),
            1,
            ["consumers: password=… is refused", "consumers: Is the server running?"],
        ),
        (StoreUnavailableError(f"no answer of redis://:{SECRET}@h"), 1, ["consumers: no answer of redis://…@h"]),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_what_was_foreseen_is_a_sentence_and_an_exit_code(
    error: BaseException, code: int, lines: list[str], printed: Callable[[BaseException], Any]
) -> None:
    """1: the work failed, 2: the call or the configuration is wrong."""
    assert printed(error) == (code, lines)


def test_no_command_is_a_wrong_call_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, as for any other wrong call; stdout belongs to results."""
    assert consumers.cli.main([]) == 2
    said = capsys.readouterr()
    assert "run" in said.err
    assert said.out == ""


def test_an_argument_that_is_no_text_is_refused_by_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is imported."""
    assert consumers.cli.main(["run", "\udcff:x"]) == 2
    assert capsys.readouterr().err == "consumers: argument 2 is not UTF-8; nothing was done\n"


def test_a_run_without_settings_says_which_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, each for whom."""
    Path("the_shop.py").write_text("from consumers import Consumer\nconsumer = Consumer('billing')\n")

    assert consumers.cli.main(["run", "the_shop:consumer"]) == 2

    assert capsys.readouterr().err.splitlines() == [
        "consumers: PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your subscriptions",
        (
            "consumers: REDIS_URL is not set; write it like rediss://:password@host:6379, or choose dedup='inbox' or "
            "'none' (consumer 'billing' has dedup='claim')"
        ),
    ]


def test_a_run_ends_thirty_seconds_after_it_was_asked_to_whatever_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers have 25 of them; what is left is for what follows, and then the process exits."""
    resorts: list[float] = []
    settings = {"PUBSUB_PROJECT_ID": "acme", "REDIS_URL": "redis://127.0.0.1:1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    Path("the_shop.py").write_text("from consumers import Consumer\nconsumer = Consumer('billing')\n")

    @contextmanager
    def listening(_: Shutdown, last_resort: float) -> Iterator[None]:
        resorts.append(last_resort)
        yield

    async def run_all(*_: object) -> tuple[str, ...]:
        return ("billing.book of an event",)

    monkeypatch.setattr(Shutdown, "listening", listening)
    monkeypatch.setattr(consumers.cli.run, "run_all", run_all)

    assert consumers.cli.main(["run", "the_shop:consumer"]) == 1
    assert resorts == [29.5]
