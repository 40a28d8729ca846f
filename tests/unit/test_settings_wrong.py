# ruff: noqa: E501 -- each sentence stands as it is printed
"""Wrong configurations, each with the one sentence that `relay run` ends in."""

from pathlib import Path

import pytest

from relay.cli import main
from relay.settings import Settings

COMPLETE = {
    "DATABASE_URL": "postgresql://u@127.0.0.1:1/none",
    "PUBSUB_PROJECT_ID": "p",
    "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
}

WRONG: list[tuple[dict[str, str], str]] = [
    ({"DATABASE_URL": ""}, "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db"),
    ({"PUBSUB_PROJECT_ID": ""}, "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your topics"),
    (
        {"DATABASE_URL": "mysql://h/db"},
        "DATABASE_URL is not a connection string; write it like postgresql://user:password@host:5432/db",
    ),
    (
        {"DATABASE_URL": "postgresql+psycopg://h/db"},
        "DATABASE_URL names a driver in its scheme; write postgresql:// without the + and what follows it",
    ),
    (
        {"GOOGLE_CREDENTIALS_JSON": "{no"},
        "GOOGLE_CREDENTIALS_JSON is neither a key file's JSON nor its base64; set it to the content of the file, or to what `base64 < key.json` prints",
    ),
    (
        {"PUBSUB_ENDPOINT": "there:443"},
        "PUBSUB_EMULATOR_HOST (127.0.0.1:1) and PUBSUB_ENDPOINT (there:443) name two brokers; remove one of them",
    ),
    ({"RELAY_BROKER": "kafka"}, "RELAY_BROKER is 'kafka': input should be 'pubsub'"),
    ({"RELAY_ROUTES": "order"}, "RELAY_ROUTES has the part 'order', which is no route; write it like order.*=orders"),
    (
        {"RELAY_ROUTES": "*=orders"},
        "RELAY_ROUTES has the route '*=orders', whose pattern would match every event type; name the topic for all others in RELAY_TOPIC",
    ),
    ({"RELAY_BATCH_SIZE": "0"}, "RELAY_BATCH_SIZE is '0': input should be greater than or equal to 1"),
    ({"RELAY_MAX_ATTEMPTS": "0"}, "RELAY_MAX_ATTEMPTS is '0': input should be greater than or equal to 1"),
    (
        {"RELAY_RUNNER_MAX_ITEMS": "none"},
        "RELAY_RUNNER_MAX_ITEMS is 'none': input should be a valid integer, unable to parse string as an integer",
    ),
    ({"RELAY_POLL_MS": "soon"}, "RELAY_POLL_MS 'soon' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d"),
    ({"RELAY_IDLE_TX_MS": "25d"}, "RELAY_IDLE_TX_MS must not be longer than 24d, the most that Postgres takes"),
    (
        {"RELAY_IDLE_TX_MS": "15s"},
        "RELAY_PUBLISH_BUDGET_MS (0:00:15) must stay below RELAY_IDLE_TX_MS (0:00:15), or the database ends batches that still wait",
    ),
    (
        {"RELAY_RETRY_BASE_MS": "3m"},
        "RELAY_RETRY_BASE_MS (0:03:00) is longer than RELAY_RETRY_MAX_MS (0:02:00); lower the first or raise the second",
    ),
    (
        {"RELAY_IDLE_MIN_MS": "31s"},
        "RELAY_IDLE_MIN_MS (0:00:31) is longer than RELAY_IDLE_MAX_MS (0:00:30); lower the first or raise the second",
    ),
    (
        {"RELAY_RUNNER_MAX_MS": "9m"},
        "RELAY_RUNNER_MAX_MS (0:09:00) is longer than RELAY_TICK_MAX_MS (0:08:00); lower the first or raise the second",
    ),
    (
        {"RELAY_RUNNER_MAX_MS": "14s"},
        "RELAY_PUBLISH_BUDGET_MS (0:00:15) is longer than RELAY_RUNNER_MAX_MS (0:00:14); lower the first or raise the second",
    ),
    (
        {"RELAY_OUTAGE_MAX_MS": "499ms"},
        "RELAY_OUTAGE_MAX_MS (0:00:00.499000) is shorter than the first pause after the broker failed (0:00:00.500000); set it to 500ms or more",
    ),
    (
        {"DYNO": "relay.1", "RELAY_SHUTDOWN_MS": "26s"},
        "RELAY_SHUTDOWN_MS (0:00:26) and the 4.5 s after it do not end before Heroku kills relay.1 at 30 s; set it to 25s or less",
    ),
    ({"RELAY_LOG_LEVEL": "loud"}, "RELAY_LOG_LEVEL is 'loud': input should be 'debug', 'info', 'warning' or 'error'"),
    (
        {"RELAY_LOG_EVENTS": "maybe"},
        "RELAY_LOG_EVENTS is 'maybe': input should be a valid boolean, unable to interpret input",
    ),
    ({"RELAY_RUNNERS": ","}, "RELAY_RUNNERS is ',' and names no runner of this release; choose from: publish"),
    ({"RELAY_HTTP": "localhost:http"}, "RELAY_HTTP is 'http': a port is a number from 0, any that is free, to 65535"),
    (
        {"RELAY_HTTP": "0.0.0.0:0"},
        "RELAY_HTTP is reached from other machines on 0.0.0.0; set RELAY_HTTP_TOKEN, which is then asked for, or listen on 127.0.0.1",
    ),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_a_wrong_configuration_is_one_sentence_and_exit_2(
    wrong: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is started, so nothing else is said."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in {**COMPLETE, **wrong}.items():
        monkeypatch.setenv(name, value)

    assert main(["run"]) == 2

    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"relay: {sentence}\n")
