"""What the command line says about itself."""

import argparse
import re
import shlex
from importlib import import_module, metadata

import pytest

from relay.cli import main
from relay.cli.main import _parser


def _parsers(parser: argparse.ArgumentParser | None = None, before: str = "") -> dict[str, argparse.ArgumentParser]:
    """Every command by its name, and after it what it can do, such as `failed list`."""
    parsers: dict[str, argparse.ArgumentParser] = {}
    for action in (parser or _parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, found in action.choices.items():
                parsers |= {before + name: found, **_parsers(found, f"{before}{name} ")}
    return parsers


def _examples(parser: argparse.ArgumentParser) -> list[str]:
    """The lines after the one that announces them, as the help shows them."""
    announced = re.split(r"(?m)^examples?\b.*:$", parser.format_help())
    return announced[-1].strip().splitlines() if len(announced) > 1 else []


def _arguments(example: str) -> list[str]:
    """What the shell would hand to our program."""
    words = shlex.split(re.split(" [<>] ", example)[0])
    return words[words.index("relay", words.index("-m")) + 1 :]


COMMANDS = sorted(_parsers())


def test_every_command_is_known_here() -> None:
    """So that the other tests look at all of them."""
    assert COMMANDS == [
        "adopt",
        "archive",
        "archive drop",
        "archive export",
        "archive restore",
        "archive status",
        "archive verify",
        "audit",
        "check",
        "config",
        "dev",
        "doctor",
        "emit",
        "failed",
        "failed discard",
        "failed list",
        "failed retry",
        "failed show",
        "forget",
        "grants",
        "migrate",
        "run",
        "runs",
        "status",
        "tick",
        "topics",
        "topics ensure",
        "topics plan",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_understands(name: str) -> None:
    """Each on a line of its own: what is copied is one command, and it is ours."""
    examples = _examples(_parsers()[name])

    assert examples
    for example in examples:
        assert " | " not in example
        assert example.count("python -m relay") - (name == "dev") <= 1
        assert _arguments(example)[: len(name.split())] == name.split()
        assert callable(_parser().parse_args(_arguments(example)).command)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are broken by hand are no longer than 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in _parsers()[name].format_help().splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("failed ") and name != "failed show"])
def test_the_times_that_the_help_shows_are_accepted(name: str) -> None:
    """Each between its words and a comma or the end."""
    (shown,) = (action.help for action in _parsers()[name]._actions if "--since" in action.option_strings)
    assert shown
    times = shown.partition(": ")[2].split(", or ")
    assert len(times) == 2
    for time in times:
        reason = ["--reason", "a test"] if name == "failed discard" else []
        assert _parser().parse_args([*name.split(), "--since", time, "--until", time, *reason]).since


def test_no_command_is_a_wrong_call_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, as for any other wrong call; stdout belongs to results."""
    assert main([]) == 2

    said = capsys.readouterr()
    assert all(name in said.err for name in COMMANDS if " " not in name)
    assert said.out == ""


def test_an_unknown_command_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    with pytest.raises(SystemExit) as ended:
        main(["publish"])

    assert ended.value.code == 2
    assert "'migrate'" in capsys.readouterr().err


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written in one place; a checkout that is not installed says so."""
    module = import_module("relay.kernel.command")
    monkeypatch.setattr(module, "version", lambda name: {"outbox-relay": "7.8.9"}[name])
    assert _version_said(capsys) == "outbox-relay 7.8.9\n"

    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", not_installed)
    assert _version_said(capsys) == "outbox-relay (a checkout that is not installed)\n"


def _version_said(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    return capsys.readouterr().out
