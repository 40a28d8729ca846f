"""What the command line names, and what is said where it names nothing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.cli.loading import load_consumers
from consumers.errors import ConfigurationError

BILLING = """
from consumers import Consumer
first, second = Consumer("first"), Consumer("second")
both = [first, second]
pair = (second, first)
none, mixed, text = [], [first, "x"], "x"
class Shop:
    third = Consumer("third")
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory with modules, as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "the_billing.py").write_text(BILLING)
    (tmp_path / "the_broken.py").write_text(
        "def load():\n    raise RuntimeError('no connection to postgres://u:p@h')\nload()\n"
    )
    (tmp_path / "the_lacking.py").write_text("import no_such_package.part\n")
    (tmp_path / "the_leaving.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "the_empty.py").write_text("")
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["the_billing:first"], ["first"]),
        (["the_billing:both"], ["first", "second"]),
        (["the_billing:pair"], ["second", "first"]),
        (["the_billing:second", "the_billing:Shop.third"], ["second", "third"]),
        (["the_billing:first", "the_billing:first"], ["first"]),
    ],
)
def test_consumers_come_in_the_order_of_their_names(names: list[str], found: list[str]) -> None:
    """One, or a list of them, or several names; one that is named twice is one."""
    assert [consumer.name for consumer in load_consumers(names)] == found


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("billing", "'billing' names no consumer; write the module and the name in it, like shop.billing:consumer"),
        (":x", "':x' names no consumer"),
        ("x:", "'x:' names no consumer"),
        ("no_module:x", "'no_module:x': there is no module no_module; run the command in the folder that has it"),
        ("the_empty.part:x", "'the_empty.part:x': "),
        (
            "the_billing:third",
            "'the_billing:third': the module has nothing of that name; it has the_billing:first, the",
        ),
        (
            "the_billing:text",
            "'the_billing:text': the module has a str of that name, no Consumer; it has the_billing:f",
        ),
        ("the_billing:none", "'the_billing:none': the module has a list of that name, no Consumer"),
        ("the_billing:mixed", "'the_billing:mixed': the module has a list of that name, no Consumer"),
        ("the_empty:x", "'the_empty:x': the module has nothing of that name; it has no Consumer at all"),
        (
            "the_lacking:x",
            (
                "'the_lacking:x': importing it failed: ModuleNotFoundError: no no_such_package to import "
                "(raised at the_lacking:1)"
            ),
        ),
        (
            "the_broken:x",
            (
                "'the_broken:x': importing it failed: RuntimeError: no connection to postgres://…@h "
                "(raised at the_broken:2)"
            ),
        ),
        ("the_leaving:x", "'the_leaving:x': importing it failed: SystemExit"),
    ],
)
def test_a_name_that_leads_nowhere_is_told_with_the_reason(name: str, sentence: str) -> None:
    """Which module, what failed and where; no secret of what it said."""
    with pytest.raises(ConfigurationError) as refusal:
        load_consumers([name])

    assert str(refusal.value).startswith(sentence)


def test_every_name_that_leads_nowhere_is_told() -> None:
    """Nobody mends them one start at a time."""
    with pytest.raises(ConfigurationError) as refusal:
        load_consumers(["x", "the_billing:first", "the_empty:x"])

    assert [line.split()[0] for line in str(refusal.value).splitlines()] == ["'x'", "'the_empty:x':"]
