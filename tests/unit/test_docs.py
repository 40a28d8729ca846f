"""The reference pages say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.commands import ROOT


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = _generator()


@pytest.mark.parametrize("block", GENERATE.blocks(), ids=lambda block: f"{block.page}-{block.name}")
def test_a_page_is_up_to_date(block: object) -> None:
    """`make docs` would change nothing."""
    text = GENERATE.fresh(block)

    page = ROOT / "docs" / block.page  # type: ignore[attr-defined]
    assert page.read_text(encoding="utf-8") == text, "run: make docs"


@pytest.mark.parametrize(("place", "picture"), GENERATE.pictures().items())
def test_a_picture_is_up_to_date(place: str, picture: str) -> None:
    """It shows the figures of the table beside it."""
    assert (ROOT / "docs" / place).read_text(encoding="utf-8") == picture, "run: make docs"


def test_a_page_that_is_gone_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes one away takes it out of the list too."""
    monkeypatch.setattr(GENERATE, "DOCS", tmp_path)

    with pytest.raises(FileNotFoundError):
        GENERATE.fresh(GENERATE.blocks()[0])
