"""`pip install` of the wheel with the extra `consumers`, in an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT
from tests.support.wheel import built_wheel

pytestmark = pytest.mark.slow("installs an environment")

# All of the SDK but what counts metrics, what tests use and what speaks to Postgres; then the names of everything that
# was loaded.
LOAD_ALL = """
import importlib, json, pkgutil, sys
sys.modules["psycopg"] = None  # which cannot be imported where there is no libpq
import consumers
for module in pkgutil.walk_packages(consumers.__path__, "consumers."):
    of_postgres = (
        "consumers.inbox.", "consumers.sources.outbox", "consumers.waiting.lookout", "consumers.waiting.waiting",
        "consumers.waiting.wake_up",
    )
    if not module.name.startswith(("consumers.metrics", "consumers.testing", "consumers.__main__", *of_postgres)):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""
# As if the package were not installed: what stands for it in sys.modules cannot be imported.
RUN_WITHOUT = """
import runpy, sys
sys.modules[sys.argv.pop(1)] = None
runpy.run_module("consumers", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel with its extra, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = built_wheel(folder)
    place = folder / "environment"
    for words in (
        ["-m", "venv", "--without-pip", str(place)],
        ["-m", "pip", "--python", str(place), "install", "--quiet", f"{wheel}[consumers]"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
    return place


def _python(environment: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [environment / "bin" / "python", *words],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_sdk_loads_no_web_server_and_nothing_that_publishes(environment: Path) -> None:
    """It is a guest in somebody's service; a service that serves metrics asks for what brings one."""
    done = _python(environment, "-c", LOAD_ALL)
    assert done.returncode == 0, done.stderr

    loaded = set(json.loads(done.stdout))
    servers = {
        "http.server",
        "socketserver",
        "wsgiref",
        "aiohttp",
        "uvicorn",
        "h11",
        "fastapi",
        "starlette",
        "prometheus_client",
    }
    relays = {"publisher", "outbox", "operate", "cli", "dev", "settings"}
    assert loaded & (servers | {f"relay.{name}" for name in relays}) == set()
    assert {"consumers.wiring", "consumers.cli.run", "consumers.sources.pubsub"} <= loaded


def test_registering_handlers_loads_neither_grpc_nor_redis(environment: Path) -> None:
    """Unit tests of handlers import the module that has them."""
    program = """
import json, sys
from consumers import Consumer
Consumer("billing").fallback(print)
print(json.dumps(sorted(sys.modules)))
"""
    done = _python(environment, "-c", program)
    assert done.returncode == 0, done.stderr
    assert {"grpc", "google.pubsub_v1", "redis", "pydantic_settings"} & set(json.loads(done.stdout)) == set()


def test_the_command_is_there(environment: Path) -> None:
    """By its name, and as a module."""
    script = subprocess.run(
        [environment / "bin" / "consumers", "run", "no_such:consumer"],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    module = _python(environment, "-m", "consumers", "run", "no_such:consumer")

    assert (script.returncode, module.returncode) == (2, 2)
    assert script.stderr == module.stderr
    assert script.stderr.startswith("consumers: 'no_such:consumer': there is no module no_such; ")


@pytest.mark.parametrize("package", ["google", "redis", "pydantic_settings"])
def test_a_missing_package_is_named_with_the_remedy(package: str) -> None:
    """Whoever installed without the extra is told so, not shown a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT, package, "config"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"consumers: the commands need the package {package!r}; run: pip install '.[consumers]' in {ROOT}\n"
    )


def test_without_libpq_events_can_be_emitted(environment: Path) -> None:
    """By whatever library the service has its connection from."""
    done = _python(environment, "-c", "import sys; sys.modules['psycopg'] = None; from relay import Event, emit")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_libpq_the_inbox_is_printed_and_not_migrated(environment: Path) -> None:
    """What is missing is named with the remedy; who prints its SQL asks no database."""
    program = RUN_WITHOUT.replace("sys.argv.pop(1)", "'psycopg'")
    printed = _python(environment, "-c", program, "migrate", "--sql")
    refused = subprocess.run(
        [environment / "bin" / "python", "-c", program, "migrate"],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin", "DATABASE_URL": "postgresql://u@h/db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "create table inbox_deliveries" in printed.stdout
    assert refused.returncode == 2
    assert refused.stderr.startswith("consumers: the inbox needs psycopg and libpq, which cannot be loaded here: ")
    assert refused.stderr.endswith("; run: pip install 'psycopg[binary]'\n")
