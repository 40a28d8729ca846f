"""Writes the tables of the reference pages anew from the code: `make docs`."""  # noqa: INP001 -- a script

import importlib
import sys
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent


class Block(NamedTuple):
    """What stands on a page between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""

    page: str
    name: str
    module: str
    function: str = "table"


BLOCKS = (
    Block("logs.md", "logs", "relay.operate.line_table"),
    Block("settings.md", "settings", "relay.cli.config"),
    Block("metrics.md", "metrics", "relay.operate.metrics"),
)


def fresh(block: Block) -> str:
    """The page as it should be."""
    text = (DOCS / block.page).read_text(encoding="utf-8")
    before, found, rest = text.partition(begin(block))
    _, closed, after = rest.partition(end(block))
    if not (found and closed):
        raise SystemExit(f"docs/{block.page} lacks {begin(block)} or {end(block)}")
    table = getattr(importlib.import_module(block.module), block.function)().strip()
    return f"{before}{begin(block)}\n{table}\n{end(block)}{after}"


def begin(block: Block) -> str:
    """Where the block begins."""
    return f"<!-- {block.name}:begin -->"


def end(block: Block) -> str:
    """Where the block ends."""
    return f"<!-- {block.name}:end -->"


def main() -> int:
    """Rewrite what is out of date, and name it."""
    for block in BLOCKS:
        text = fresh(block)
        page = DOCS / block.page
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"docs/{block.page}: written anew")  # noqa: T201 -- a script
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    sys.exit(main())
