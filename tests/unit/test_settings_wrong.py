# ruff: noqa: E501 -- each sentence stands as it is printed
"""Wrong configurations, each with the one sentence that `relay run` ends in."""

import json
from pathlib import Path

import pytest

from relay.cli import main
from relay.cli.runners import RUNNERS
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
        {"DATABASE_URL": "postgresql://u@h:70000/db"},
        "DATABASE_URL cannot be read: its port is not a number from 1 to 65535; write it like postgresql://user:password@host:5432/db",
    ),
    (
        {"DATABASE_URL": "postgresql://u:a@b@h/db"},
        "DATABASE_URL cannot be read: percent-encode the characters @ : / ? # % in its user and password",
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
        {"PUBSUB_EMULATOR_HOST": "", "GOOGLE_CREDENTIALS_JSON": '{"type": "other"}'},
        "GOOGLE_CREDENTIALS_JSON is JSON, but no key or federation file that Google's library can use; give it the whole file, unchanged",
    ),
    (
        {"PUBSUB_EMULATOR_HOST": "", "GOOGLE_APPLICATION_CREDENTIALS": "other.json"},
        "GOOGLE_APPLICATION_CREDENTIALS is JSON, but no key or federation file that Google's library can use; give it the whole file, unchanged",
    ),
    (
        {"PUBSUB_EMULATOR_HOST": "", "GOOGLE_APPLICATION_CREDENTIALS": "none.json"},
        "GOOGLE_APPLICATION_CREDENTIALS names 'none.json', which cannot be read: No such file or directory; name a file that is there, or use GOOGLE_CREDENTIALS_JSON",
    ),
    (
        {"PUBSUB_ENDPOINT": "there:443"},
        "PUBSUB_EMULATOR_HOST (127.0.0.1:1) and PUBSUB_ENDPOINT (there:443) name two brokers; remove one of them",
    ),
    ({"RELAY_BROKER": "kafka"}, "RELAY_BROKER is 'kafka': input should be 'pubsub'"),
    ({"RELAY_TOPIC": "ab"}, "RELAY_TOPIC is 'ab', which has 2 character(s), a topic's name has 3 to 255"),
    (
        {"RELAY_TOPIC": "bad topic"},
        "RELAY_TOPIC is 'bad topic', which is no topic's name: those begin with a letter and go on with letters, digits and - _ . ~ + %",
    ),
    ({"RELAY_ROUTES": "order"}, "RELAY_ROUTES has the part 'order', which is no route; write it like order.*=orders"),
    (
        {"RELAY_ROUTES": "order.paid=orders invoice.*=billing"},
        "RELAY_ROUTES has the route 'order.paid=orders invoice.*=billing', which looks like several; put a comma between routes, like order.*=orders, invoice.*=billing",
    ),
    (
        {"RELAY_ROUTES": "*=orders"},
        "RELAY_ROUTES has the route '*=orders', whose pattern would match every event type; name the topic for all others in RELAY_TOPIC",
    ),
    (
        {"RELAY_ON_FAILED_HEAD": "wait"},
        "RELAY_ON_FAILED_HEAD has the part 'wait', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
    ),
    (
        {"RELAY_ON_FAILED_HEAD": "audit.*=skip, block"},
        "RELAY_ON_FAILED_HEAD has the part 'block' after its first; the default stands first, once",
    ),
    (
        {"RELAY_ON_FAILED_HEAD": "block audit.*=skip"},
        "RELAY_ON_FAILED_HEAD has the part 'block audit.*=skip', whose pattern has a space or a semicolon; put a comma between parts, like block, audit.*=skip, and write a type with a space by its beginning, like a*",
    ),
    (
        {"RELAY_ON_FAILED_HEAD": "skip=block"},
        "RELAY_ON_FAILED_HEAD has the part 'skip=block', which has 'skip' for a type; put a comma between the default and the types, like block, audit.*=skip",
    ),
    (
        {"RELAY_ON_FAILED_HEAD": "*=skip"},
        "RELAY_ON_FAILED_HEAD has the part '*=skip', whose pattern would match every event type; write the default for all others first, as block or skip alone",
    ),
    ({"RELAY_BATCH_SIZE": "0"}, "RELAY_BATCH_SIZE is '0': input should be greater than or equal to 1"),
    ({"RELAY_MAX_ATTEMPTS": "0"}, "RELAY_MAX_ATTEMPTS is '0': input should be greater than or equal to 1"),
    (
        {"RELAY_RUNNER_MAX_ITEMS": "none"},
        "RELAY_RUNNER_MAX_ITEMS is 'none': input should be a valid integer, unable to parse string as an integer",
    ),
    ({"RELAY_NOTIFY": "sometimes"}, "RELAY_NOTIFY is 'sometimes': write on or off"),
    (
        {"RELAY_LISTEN_URL": "mysql://h/db"},
        "RELAY_LISTEN_URL is not a connection string; write it like postgresql://user:password@host:5432/db",
    ),
    (
        {"RELAY_LISTEN_URL": "postgresql://u:a@b@h/db"},
        "RELAY_LISTEN_URL cannot be read: percent-encode the characters @ : / ? # % in its user and password",
    ),
    (
        {"RELAY_LISTEN_URL": "postgresql://u@h:70000/db"},
        "RELAY_LISTEN_URL cannot be read: its port is not a number from 1 to 65535; write it like postgresql://user:password@host:5432/db",
    ),
    ({"RELAY_POLL_MS": "soon"}, "RELAY_POLL_MS 'soon' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d"),
    ({"RELAY_IDLE_TX_MS": "25d"}, "RELAY_IDLE_TX_MS must not be longer than 24d, the most that Postgres takes"),
    (
        {"RELAY_IDLE_TX_MS": "15s"},
        "RELAY_PUBLISH_BUDGET_MS (15s) must stay below RELAY_IDLE_TX_MS (15s), or the database ends batches that still wait",
    ),
    (
        {"RELAY_RETRY_BASE_MS": "3m"},
        "RELAY_RETRY_BASE_MS (3m) is longer than RELAY_RETRY_MAX_MS (2m); lower the first or raise the second",
    ),
    (
        {"RELAY_IDLE_MIN_MS": "31s"},
        "RELAY_IDLE_MIN_MS (31s) is longer than RELAY_IDLE_MAX_MS (30s); lower the first or raise the second",
    ),
    (
        {"RELAY_RUNNER_MAX_MS": "9m"},
        "RELAY_RUNNER_MAX_MS (9m) is longer than RELAY_TICK_MAX_MS (8m); lower the first or raise the second",
    ),
    (
        {"RELAY_RUNNER_MAX_MS": "14s"},
        "RELAY_PUBLISH_BUDGET_MS (15s) is longer than RELAY_RUNNER_MAX_MS (14s); lower the first or raise the second",
    ),
    (
        {"RELAY_OUTAGE_MAX_MS": "499ms"},
        "RELAY_OUTAGE_MAX_MS (499ms) is shorter than the first pause after the broker failed (500ms); set it to 500ms or more",
    ),
    (
        {"DYNO": "relay.1", "RELAY_SHUTDOWN_MS": "26s"},
        "RELAY_SHUTDOWN_MS (26s) and the 4500ms after it do not end before Heroku kills relay.1 at 30s; set it to 25s or less",
    ),
    (
        {"RELAY_NAME": "x" * 64},
        f"RELAY_NAME is '{'x' * 64}', which Postgres would change; write up to 63 printable ASCII characters",
    ),
    (
        {"RELAY_NAME": "caf\u00e9"},
        "RELAY_NAME is 'caf\u00e9', which Postgres would change; write up to 63 printable ASCII characters",
    ),
    ({"RELAY_LOG_REDACT": "redact"}, "RELAY_LOG_REDACT is 'redact': write it as module:function"),
    ({"RELAY_LOG_LEVEL": "loud"}, "RELAY_LOG_LEVEL is 'loud': input should be 'debug', 'info', 'warning' or 'error'"),
    ({"RELAY_LOG_EVENTS": "maybe"}, "RELAY_LOG_EVENTS is 'maybe': write on or off"),
    ({"RELAY_RETENTION_TO": "shelf"}, "RELAY_RETENTION_TO is 'shelf': input should be 'nowhere' or 'archive'"),
    (
        {"RELAY_RETENTION": "59m"},
        "RELAY_RETENTION is 59m, and nobody would see what became of an event; give 1h or more, or 0 to keep all",
    ),
    (
        {"RELAY_RUNS_RETENTION": "1m"},
        "RELAY_RUNS_RETENTION is 1m; give 1h or more, such as 7d",
    ),
    (
        {"WORKER_API_BASE_URL": "api.internal"},
        (
            "WORKER_API_BASE_URL is 'api.internal', which is no address of a server; write it like "
            "https://api.internal:8443, without a user"
        ),
    ),
    (
        {"ARCHIVE_ENDPOINT": "https://u:hunter2@minio"},
        "ARCHIVE_ENDPOINT is no address of a server; write it like https://api.internal:8443, without a user",
    ),
    (
        {"ARCHIVE_BUCKET": "s3://"},
        "ARCHIVE_BUCKET names no place for files; write s3://bucket/folder or an absolute path, without a user",
    ),
    (
        {"ARCHIVE_BUCKET": "relative/path"},
        "ARCHIVE_BUCKET is no path from the root; write /srv/archive, or s3://bucket/folder for a bucket",
    ),
    (
        {"ARCHIVE_BUCKET": "."},
        "ARCHIVE_BUCKET is no path from the root; write /srv/archive, or s3://bucket/folder for a bucket",
    ),
    (
        {"RELAY_RUNNERS": ","},
        f"RELAY_RUNNERS is ',' and names no runner of this release; choose from: {', '.join(RUNNERS)}",
    ),
    (
        {"RELAY_HTTP": "localhost:http"},
        "RELAY_HTTP is 'localhost:http': a port is a number from 0, any that is free, to 65535",
    ),
    ({"RELAY_HTTP": "70000"}, "RELAY_HTTP is '70000': a port is a number from 0, any that is free, to 65535"),
    (
        {"RELAY_HTTP": ":8080"},
        "RELAY_HTTP is ':8080': write a port, such as 8080, or host:port, such as 0.0.0.0:8080 or [::]:8080",
    ),
    (
        {"RELAY_HTTP": "[::]:8080"},
        "RELAY_HTTP is reached from other machines on ::; set RELAY_HTTP_TOKEN, which is then asked for, or listen on 127.0.0.1",
    ),
    (
        {"DYNO": "web.1", "PORT": "5000"},
        "PORT of web.1 is reached from other machines on 0.0.0.0; set RELAY_HTTP_TOKEN, which is then asked for, or set RELAY_HTTP=off",
    ),
    (
        {"DYNO": "web.1", "PORT": "http"},
        "PORT is 'http': a port is a number from 0, any that is free, to 65535",
    ),
    (
        {"RELAY_HTTP_TOKEN": "hunter2"},
        "RELAY_HTTP_TOKEN is shorter than 16 characters and could be guessed; make one with: openssl rand -hex 32",
    ),
    (
        {"RELAY_HTTP_TOKEN": "hunter2 hunter2 hunter2"},
        "RELAY_HTTP_TOKEN must be printable ASCII without spaces; a header carries no other",
    ),
    (
        {"RELAY_HTTP": "0.0.0.0:0"},
        "RELAY_HTTP is reached from other machines on 0.0.0.0; set RELAY_HTTP_TOKEN, which is then asked for, or listen on 127.0.0.1",
    ),
]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text('{"type": "other"}')
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def set_wrong(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that is complete but for this."""
    for name, value in {**COMPLETE, **wrong}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_a_wrong_configuration_is_one_sentence_and_exit_2(
    wrong: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started, so nothing else is said."""
    set_wrong(wrong, monkeypatch)

    assert main(["run"]) == 2

    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"relay: {sentence}\n")


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_relay_config_finds_what_relay_run_refuses(
    wrong: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same words, before a deploy; what is only missing is a warning, for it may be set elsewhere."""
    set_wrong(wrong, monkeypatch)
    missing = "is not set" in sentence

    assert main(["config", "--json"]) == (0 if missing else 2)

    shown = json.loads(capsys.readouterr().out)
    assert shown["warnings" if missing else "faults"] == [sentence]
    assert shown["faults" if missing else "warnings"] == []
