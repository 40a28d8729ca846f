"""The recipe of docs/ordering.md for a key that waits, run the way it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, Commands
from tests.support.pubsub import Channel, PubSubSide

PAGE = (ROOT / "docs" / "ordering.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n((?:(?!```).)*bad topic.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DISCARDED, RETRIED = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
async def ordered(relay: Commands, pubsub: PubSubSide) -> Channel:
    """What `relay dev` makes, by another name."""
    channel = await pubsub.open(ordered=True)
    relay.settings["RELAY_TOPIC"] = channel.topic
    return channel


class Reader:
    """Somebody who does what the page says, line by line."""

    def __init__(self, relay: Commands, folder: Path) -> None:
        self._relay, self._folder, self.name = relay, folder, ""
        (folder / "block.py").write_text(PROGRAM)

    def run(self, line: str) -> str:
        """What a line prints."""
        python, *words = shlex.split(line.replace("ID", self.name), comments=True)
        assert python == "python"
        if words[:2] == ["-m", "relay"]:
            done = self._relay(*words[2:])
        else:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=self._folder,
                env={**os.environ, **self._relay.settings, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def blocks(self) -> None:
        """Run the lines that make a key wait and look at it."""
        emit, tick, status, show = DISCARDED.splitlines()[:4]
        self.name = self.run(emit).split()[0]
        self.run(tick)
        assert re.search(r"order-42.* 2 .*behind", self.run(status))
        assert "invalid_topic" in self.run(show)


async def test_a_key_that_waits_goes_on_without_its_event(
    relay: Commands, ordered: Channel, pubsub: PubSubSide, tmp_path: Path
) -> None:
    """Nothing goes out before it is discarded."""
    reader = Reader(relay, tmp_path)
    reader.blocks()
    assert await pubsub.drain(ordered) == []
    for line in DISCARDED.splitlines()[4:]:
        reader.run(line)
    assert [message.attributes["aggregate_id"] for message in await pubsub.drain(ordered)] == ["2", "3"]


async def test_a_key_that_waits_goes_on_with_its_event(
    relay: Commands, ordered: Channel, pubsub: PubSubSide, tmp_path: Path
) -> None:
    """All of it in order, once its topic is corrected."""
    reader = Reader(relay, tmp_path)
    reader.blocks()
    correct, retry, tick = re.findall(r"^python.*?(?=^python|\Z)", RETRIED, re.MULTILINE | re.DOTALL)
    for line in (correct, retry, tick):
        reader.run(line)
    assert [message.attributes["aggregate_id"] for message in await pubsub.drain(ordered)] == ["1", "2", "3"]
