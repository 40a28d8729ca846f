"""A wrong configuration, as an operator meets it: one sentence, exit 2, nothing started."""

from pathlib import Path

import pytest

from tests.support.commands import Commands

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
            "relay: RELAY_RUNNERS is ',' and names no runner of this release; choose from: publish\n",
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


def test_a_mistyped_name_is_warned_about_and_stops_nothing(tmp_path: Path) -> None:
    """Once, with the name that was meant."""
    ended = Commands(COMPLETE, tmp_path)("tick", RELAY_TOPPIC="hunter2")

    warning = "relay: warning: RELAY_TOPPIC is no setting of the relay and has no effect; did you mean RELAY_TOPIC?\n"
    assert ended.returncode == 1
    assert ended.stderr.count(warning) == 1
    assert "hunter2" not in ended.stderr
