"""What `consumers dead-letters` says about itself, and what it does not take."""

import argparse
import re
import shlex

import pytest

from consumers.cli import dead_letters


def parser() -> argparse.ArgumentParser:
    """The command line with this command alone."""
    made = argparse.ArgumentParser(prog="consumers")
    dead_letters.add_to(made.add_subparsers())
    return made


def helps(of: argparse.ArgumentParser, before: str = "") -> dict[str, argparse.ArgumentParser]:
    """Every command by its name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, choice in action.choices.items():
                found |= {before + name: choice, **helps(choice, f"{before}{name} ")}
    return found


NAMES = ["dead-letters", "dead-letters create", "dead-letters list", "dead-letters replay"]


def test_these_are_the_commands() -> None:
    """So that the other tests look at all of them."""
    assert sorted(helps(parser())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_terminal_and_its_examples_are_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied works."""
    monkeypatch.setenv("COLUMNS", "80")
    text = helps(parser())[name].format_help()

    assert [line for line in text.splitlines() if len(line) > 80] == []
    examples = re.split(r"(?m)^examples?:$", text)[1].strip().splitlines()
    for example in examples:
        words = shlex.split(example)
        assert words[:3] == ["python", "-m", "consumers"]
        assert words[3 : 3 + len(name.split())] == name.split()
        assert callable(parser().parse_args(words[3:]).command)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("list", "--from"),
        ("list --from s --limit 0", "'0' is no number from 1 on"),
        ("list --from s --event-type *", "'*': pattern would match every event type; leave --event-type out"),
        ("list --from s --quiet 0s", "'0s' is no time at all"),
        ("list --from s --quiet soon", "'soon' is not a duration"),
        ("replay --from s --to a/b", "'a/b' is neither the name of a topic nor"),
        ("create a:b --retention 32d", "'32d' is outside of 10m to 31d"),
        ("create a:b --retention 9m", "'9m' is outside of 10m to 31d"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, before anything is asked."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["dead-letters", *arguments.split()])

    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
