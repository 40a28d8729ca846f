"""The examples of docs/testing.md, run the way they stand there, as the files that they say they are."""

import re
from pathlib import Path

import pytest

from relay.testing import Outbox
from tests.support.commands import ROOT
from tests.support.projects import Project

pytestmark = pytest.mark.slow("runs pytest in processes of its own")

PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8")


def files() -> dict[str, str]:
    """Each file of the page, put together of its parts."""
    found: dict[str, str] = {}
    for name, text in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        found[name] = found.get(name, "") + text
    return found


def test_the_examples_work(tmp_path: Path, outbox_postgres_url: str) -> None:
    """Every test of the page passes, and there is one a promise."""
    project = Project(tmp_path, ROOT, {"TEST_DATABASE_URL": outbox_postgres_url})
    project.write("shop.py", files()["shop.py"])
    project.write("test_shop.py", files()["test_shop.py"])
    said = project.run("-p", "relay.testing.plugin", "-o", "asyncio_mode=auto")
    count = files()["test_shop.py"].count("def test_")
    assert f"{count} passed" in said, said


def test_a_database_of_ones_own_is_named_as_the_page_says(tmp_path: Path, outbox: Outbox) -> None:
    """By overriding a fixture."""
    project = Project(tmp_path, ROOT, {"DATABASE_URL": outbox.url})
    for name, text in files().items():
        project.write(name, text)
    said = project.run("-p", "relay.testing.plugin", "test_shop.py::test_a_payment_is_announced")
    assert "1 passed" in said, said
    outbox.assert_emitted("order.paid", aggregate_id="o-1")


def test_the_failure_on_the_page_is_what_is_said(outbox: Outbox, tmp_path: Path) -> None:
    """Word for word."""
    project = Project(tmp_path, ROOT, {"DATABASE_URL": outbox.url})
    for name, text in files().items():
        project.write(name, text)
    wrong = files()["test_shop.py"].replace('data_contains={"cents": 700}', 'data_contains={"cents": 900}')
    project.write("test_shop.py", wrong)
    said = project.run("-p", "relay.testing.plugin", "test_shop.py::test_a_payment_is_announced")
    (shown,) = re.findall(r"^```\n(AssertionError.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("E").strip() for line in said.splitlines() if line.startswith("E ")]
    assert lines == [line.strip() for line in shown.splitlines()]
