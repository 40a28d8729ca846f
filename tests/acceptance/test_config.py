"""A wrong configuration, as an operator meets it: one sentence, exit 2, nothing started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay.cli.runners import RUNNERS
from tests.support.commands import ROOT, Commands

COMPLETE = {
    "DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/none",
    "PUBSUB_PROJECT_ID": "p",
    "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "RELAY_PUBLISH_BUDGET_MS",
            "20s",
            (
                "relay: RELAY_PUBLISH_BUDGET_MS (20s) must stay below RELAY_IDLE_TX_MS (20s), "
                "or the database ends batches that still wait\n"
            ),
        ),
        (
            "RELAY_RETRY_BASE_MS",
            "3m",
            (
                "relay: RELAY_RETRY_BASE_MS (3m) is longer than RELAY_RETRY_MAX_MS (2m); "
                "lower the first or raise the second\n"
            ),
        ),
        (
            "PUBSUB_ENDPOINT",
            "there:443",
            (
                "relay: PUBSUB_EMULATOR_HOST (127.0.0.1:1) and PUBSUB_ENDPOINT (there:443) name two brokers; "
                "remove one of them\n"
            ),
        ),
        (
            "RELAY_RUNNERS",
            ",",
            f"relay: RELAY_RUNNERS is ',' and names no runner of this release; choose from: {', '.join(RUNNERS)}\n",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "tick"])
def test_a_wrong_configuration_ends_the_start_in_a_sentence(
    command: str, name: str, value: str, sentence: str, tmp_path: Path
) -> None:
    """Before anything is connected to."""
    ended = Commands(COMPLETE, tmp_path)(command, **{name: value})

    assert (ended.returncode, ended.stderr, ended.stdout) == (2, sentence, "")


@pytest.mark.parametrize(
    "call",
    [
        ["tick"],
        ["status"],
        ["check"],
        ["failed", "list"],
        ["topics", "plan"],
        ["migrate"],
        ["audit", "--subscription", "s"],
        ["emit", "a.b", "--aggregate-type", "a", "--aggregate-id", "1", "--data", "1"],
    ],
    ids=" ".join,
)
def test_a_mistyped_name_is_warned_about_and_stops_nothing(call: list[str], tmp_path: Path) -> None:
    """Once, with the name that was meant, whatever the command."""
    ended = Commands(COMPLETE, tmp_path)(*call, RELAY_TOPPIC="hunter2")

    warning = "relay: warning: RELAY_TOPPIC is no setting of the relay and has no effect; did you mean RELAY_TOPIC?\n"
    assert ended.returncode == 1
    assert ended.stderr.count(warning) == 1
    assert "hunter2" not in ended.stderr


def test_doctor_has_a_finding_for_a_mistyped_name(tmp_path: Path) -> None:
    """A warning, which fails nothing."""
    ended = Commands(COMPLETE, tmp_path)("doctor", RELAY_TOPPIC="hunter2")

    (finding,) = [line for line in ended.stdout.splitlines() if "RELAY_TOPPIC" in line]
    assert finding.startswith("warn  configuration")
    assert ended.stderr == ""


@pytest.mark.parametrize("call", [["config"], ["config", "--json"], ["migrate", "--sql"]], ids=" ".join)
def test_output_that_nobody_reads_ends_the_command_quietly(call: list[str], tmp_path: Path) -> None:
    """As after `| head -5`: a shell's code for it, and no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "relay", *call],
            cwd=tmp_path,
            env={**os.environ, **COMPLETE, "PYTHONPATH": str(ROOT)},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
