"""Writes the tables and pictures of the reference pages anew, from the code and the latest results: `make docs`."""  # noqa: INP001 -- a script

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
    arguments: tuple[str, ...] = ()


REFERENCE = (
    Block("logs.md", "logs", "relay.operate.line_table"),
    Block("settings.md", "settings", "relay.cli.config"),
    Block("metrics.md", "metrics", "relay.operate.metrics"),
    Block("deploy.md", "grants", "relay.cli.grants", "page"),
    Block("consumers-logs.md", "consumers-logs", "consumers.line_table"),
    Block("consumers-settings.md", "consumers-settings", "consumers.cli.config"),
    Block("consumers-metrics.md", "consumers-metrics", "consumers.metrics"),
    Block("performance.md", "ran", "benchmarks.tables", "ran"),
    Block("performance.md", "claims", "benchmarks.tables", "claims"),
)


def blocks() -> list[Block]:
    """All of them: the reference, and a table for each section of the benchmark."""
    names = importlib.import_module("benchmarks.sections").NAMES
    return [*REFERENCE, *(Block("performance.md", name, "benchmarks.tables", "section", (name,)) for name in names)]


def fresh(block: Block) -> str:
    """The page as it should be."""
    text = (DOCS / block.page).read_text(encoding="utf-8")
    before, found, rest = text.partition(begin(block))
    _, closed, after = rest.partition(end(block))
    if not (found and closed):
        raise SystemExit(f"docs/{block.page} lacks {begin(block)} or {end(block)}")
    table = getattr(importlib.import_module(block.module), block.function)(*block.arguments).strip()
    return f"{before}{begin(block)}\n{table}\n{end(block)}{after}"


def begin(block: Block) -> str:
    """Where the block begins."""
    return f"<!-- {block.name}:begin -->"


def end(block: Block) -> str:
    """Where the block ends."""
    return f"<!-- {block.name}:end -->"


def pictures() -> dict[str, str]:
    """The pictures as they should be, by their place in this folder."""
    drawn = importlib.import_module("benchmarks.plots").drawn()
    return {f"plots/{name}": picture for name, picture in drawn.items()}


def main() -> int:
    """Rewrite what is out of date, and name it."""
    written = [block.page for block in blocks() if _written(block.page, fresh(block))]
    written += [name for name, picture in pictures().items() if _written(name, picture)]
    for name in dict.fromkeys(written):
        print(f"docs/{name}: written anew")  # noqa: T201 -- a script
    return 0


def _written(name: str, text: str) -> bool:
    path = DOCS / name
    if path.is_file() and text == path.read_text(encoding="utf-8"):
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    sys.exit(main())
