"""docs/behaviours.md names tests that are there."""

import ast
import re

import pytest

from tests.support.commands import ROOT

PAGE = (ROOT / "docs" / "behaviours.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what it does")]
NAMED = re.findall(r"`(tests/[^`]*\.py)::([^`]*)`", PAGE)


def names(path: str) -> set[str]:
    """The tests of a file, as pytest calls them."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=group, body=body):
                found |= {
                    f"{group}::{each.name}" for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_test_on_the_page_is_there(path: str) -> None:
    """Whoever renames one, or takes it away, has a line without a test."""
    assert {name for named, name in NAMED if named == path} <= names(path)


def test_every_line_of_the_page_has_a_test() -> None:
    """And no cell of tests holds anything else."""
    assert len(LINES) > 150
    for line in LINES:
        assert re.fullmatch(r"\| [^|]+ \| (`tests/[\w/]+\.py::[\w:]+`(<br>)?)+ \|", line)
