"""One page of deliveries, on stdout."""

import argparse
import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from consumers.cli import delivery_words as words
from consumers.inbox.operate.choice import Choice
from consumers.inbox.operate.rows import Listed, Page
from relay.kernel.line_redaction import Redaction
from relay.kernel.progress import Progress

if TYPE_CHECKING:
    from consumers.inbox.operate.deliveries import Deliveries


async def print_page(
    deliveries: "Deliveries", choice: Choice, options: argparse.Namespace, redaction: Redaction, *, narrowed: bool
) -> int:
    """Print what is chosen, up to the limit, with where it goes on; how many were printed."""
    with closing(Progress()) as progress:
        found = await _page(deliveries, choice, options, progress)
    page, more = found[: options.limit], len(found) > options.limit
    shown = [words.redacted(row, redaction) for row in page]
    for line in (json.dumps(words.listed_as_json(row)) for row in shown) if options.json else words.table(shown):
        print(line)
    if more:
        print(f"more: --after {page[-1].id}", file=sys.stderr)
    elif not page:
        print(await _nothing(deliveries, choice, narrowed=narrowed or options.after is not None), file=sys.stderr)
    return len(page)


async def _page(
    deliveries: "Deliveries", choice: Choice, options: argparse.Namespace, progress: Progress
) -> list[Listed]:
    """One more than the page has, where there is one more."""
    found: list[Listed] = []
    page = Page(options.limit + 1, not options.oldest, options.after)
    async for part in deliveries.pages(choice, page, progress):
        found += part
        if len(found) > options.limit:
            break
    return found


async def _nothing(deliveries: "Deliveries", choice: Choice, *, narrowed: bool) -> str:
    """Why there is nothing to see: a name that is mistyped is no all-clear."""
    if choice.consumer is not None and choice.consumer not in (known := await deliveries.consumers()):
        return f"the inbox has nothing of consumer {choice.consumer!r}; it has of: {', '.join(known) or 'none'}"
    return "no delivery matches" if narrowed else "the inbox has no delivery"
