"""The examples of docs/artifacts.md, run the way they stand there."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from consumers.testing import Fate, handle
from tests.support.commands import ROOT

PAGE = (ROOT / "docs" / "artifacts.md").read_text(encoding="utf-8")
HANDLERS, THREAD, STORE, TEST = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, with what it leaves to its reader."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    encoded: list[str] = []

    async def download(_: str, path: Path) -> None:
        await asyncio.to_thread(path.write_bytes, b"a source")

    async def encode(source: Path, path: Path) -> AsyncIterator[int]:
        assert await asyncio.to_thread(source.read_bytes) == b"a source"
        encoded.append(path.name)
        yield 50
        await asyncio.to_thread(path.write_bytes, b"moving pictures")
        yield 100

    names: dict[str, Any] = {"download": download, "encode": encode, "encoded": encoded}
    for example in (HANDLERS, THREAD, STORE, TEST):
        exec(compile(example, "docs/artifacts.md", "exec"), names)  # noqa: S102 -- our own page
    return names


async def test_the_test_on_the_page_passes(page: dict[str, Any], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        await page["test_a_clip_is_made_once"](tmp_path / "media", patched)


async def test_the_handler_in_a_thread_works(page: dict[str, Any], tmp_path: Path) -> None:
    page["MEDIA"] = str(tmp_path / "media")
    for _ in range(2):
        handled = await handle(page["clips"], "clip.thumbnail", {"clip": "7"})
        assert handled.fate is Fate.DONE
    assert (tmp_path / "media" / "clips" / "7.png").read_bytes() == b"\x89PNG"


def test_the_page_names_what_is_there() -> None:
    """Lines, metrics and codes by their names in the code."""
    from consumers import line_table, metrics, storage  # noqa: PLC0415 -- prometheus is for this test alone

    lines = {line.name for line in line_table.LINES}
    code = "".join(path.read_text() for path in Path(storage.__file__).parent.glob("*.py"))
    told = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert {"artifact_reused", "note_lost"} <= told & lines
    assert set(re.findall(r"`(consumers_[a-z_]+)`", PAGE)) <= set(metrics.DEFINITIONS)
    assert {"EMPTY_OUTPUT", "ARTIFACT_CONTESTED"} <= set(re.findall(r"`([A-Z_]+)`", PAGE))
    assert all(f'"{name}"' in code for name in ("EMPTY_OUTPUT", "ARTIFACT_CONTESTED"))
