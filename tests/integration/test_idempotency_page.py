"""The snippets of docs/idempotency.md, run the way they stand there."""

import os
import re
import subprocess
import sys

import pytest

from relay.dev.stack import Stack
from tests.support.commands import ROOT

PAGE = (ROOT / "docs/idempotency.md").read_text(encoding="utf-8")
SNIPPETS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PRINTED = ["", "attempt 1\n", "charge, attempt 1\ncharged before: receipt 4711\nalone, on all machines\n", ""]


@pytest.mark.parametrize(("snippet", "printed"), list(zip(SNIPPETS, PRINTED, strict=True)))
def test_a_snippet_does_what_the_page_says(stack: Stack, snippet: str, printed: str) -> None:
    """On a real server, without a warning."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REDIS_URL": stack.redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, "")
