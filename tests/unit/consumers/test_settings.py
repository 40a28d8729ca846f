"""Every knob of consumers: its name, unit, default, and what is refused."""

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from consumers import Consumer
from consumers.backstage import missing, refusals
from consumers.errors import ConfigurationError
from consumers.settings import Settings, load
from relay.kernel.duration import written

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed
NAMES = [name.upper() for name in Settings.model_fields]


def text_of(value: object) -> str:
    """A value as the documentation writes it."""
    match value:
        case timedelta():
            return written(value)
        case bool():
            return "on" if value else "off"
        case SecretStr():
            return value.get_secret_value()
        case _:
            return str(value)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_these_are_the_settings_and_their_defaults() -> None:
    """Names and defaults are relied upon; a change here is a change for users."""
    assert {name.upper(): text_of(field.default) for name, field in Settings.model_fields.items()} == {
        "GOOGLE_CLOUD_PROJECT": "",
        "PUBSUB_PROJECT_ID": "",
        "PUBSUB_EMULATOR_HOST": "",
        "PUBSUB_ENDPOINT": "",
        "GOOGLE_CREDENTIALS_JSON": "",
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "REDIS_URL": "",
        "REDIS_TLS_VERIFY": "on",
        "REDIS_CA_FILE": "",
        "IDEMPOTENCY_PREFIX": "pf",
        "IDEMPOTENCY_TTL": "30d",
        "IDEMPOTENCY_LEASE": "1m",
        "DATABASE_URL": "",
        "INBOX_SCHEMA": "public",
        "INBOX_CONCURRENCY": "10",
        "INBOX_LEASE_MS": "1m",
        "INBOX_HEARTBEAT_MS": "15s",
        "INBOX_POLL_MS": "500ms",
        "INBOX_MAX_ATTEMPTS": "3",
        "INBOX_MAX_DEFERS": "1000",
        "INBOX_RETRY_BASE_MS": "5s",
        "INBOX_RETRY_MAX_MS": "2m",
        "INBOX_RETRY_JITTER_MS": "500ms",
        "INBOX_CONNECTIONS": "4",
        "INBOX_RETENTION": "90d",
        "INBOX_RETENTION_TO": "nowhere",
        "INBOX_WAIT_MS": "15s",
        "INBOX_WAIT_MOST_MS": "30s",
        "RELAY_SCHEMA": "public",
        "RELAY_APP": "",
        "RELAY_RUNS_RETENTION": "7d",
        "WORKER_API_BASE_URL": "",
        "WORKER_API_SERVICE_TOKEN": "",
        "ARCHIVE_BUCKET": "",
        "ARCHIVE_REGION": "",
        "ARCHIVE_ENDPOINT": "",
        "INBOX_SHARD_INDEX": "0",
        "INBOX_SHARD_COUNT": "1",
        "CONSUMERS_MAX_MESSAGES": "1000",
        "CONSUMERS_MAX_BYTES": "64000000",
        "CONSUMERS_ACK_DEADLINE": "1m",
        "CONSUMERS_SHUTDOWN_MS": "25s",
        "SCRATCH_DIR": "",
        "CONSUMERS_NAME": "",
        "CONSUMERS_LOG_LEVEL": "info",
        "CONSUMERS_LOG_EVENTS": "off",
        "CONSUMERS_LOG_REDACT": "",
        "CONSUMERS_STATS_MS": "1m",
        "DYNO": "",
    }
    assert load() == Settings.model_construct()


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_documents_itself(name: str) -> None:
    """Its text says what it does, and ends in the default where there is one."""
    field = Settings.model_fields[name.lower()]
    default = text_of(field.default)
    assert field.description
    assert field.description.endswith(f". {default}" if default else ".")


def test_the_environment_goes_over_dot_env(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the relay; an empty value means unset."""
    Path(".env").write_text(f"REDIS_URL=' rediss://:{SECRET}@h:1 '\nCONSUMERS_MAX_MESSAGES=5\nIDEMPOTENCY_TTL=48h\n")
    monkeypatch.setenv("CONSUMERS_MAX_MESSAGES", "6")
    monkeypatch.setenv("IDEMPOTENCY_TTL", "")
    monkeypatch.setenv("IDEMPOTENCY_LEASE", "30s")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme")

    settings = load()

    assert settings.redis_url.get_secret_value() == f"rediss://:{SECRET}@h:1"
    assert (settings.consumers_max_messages, settings.require_project()) == (6, "acme")
    assert (settings.store.prefix, settings.store.ttl, settings.store.lease) == (
        "pf",
        timedelta(hours=48),
        timedelta(seconds=30),
    )
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"CONSUMERS_MAX_MESSAGES": "0"},
            "CONSUMERS_MAX_MESSAGES is '0': input should be greater than or equal to 1",
        ),
        ({"CONSUMERS_MAX_BYTES": "64MB"}, "CONSUMERS_MAX_BYTES is '64MB': input should be a valid integer"),
        ({"CONSUMERS_STATS_MS": "0"}, "CONSUMERS_STATS_MS must be longer than zero"),
        ({"CONSUMERS_SHUTDOWN_MS": "soon"}, "CONSUMERS_SHUTDOWN_MS 'soon' is not a duration; write it like 500ms"),
        ({"CONSUMERS_LOG_LEVEL": "loud"}, "CONSUMERS_LOG_LEVEL is 'loud': input should be 'debug', 'info', 'warning'"),
        ({"CONSUMERS_LOG_EVENTS": "maybe"}, "CONSUMERS_LOG_EVENTS is 'maybe': write on or off"),
        ({"IDEMPOTENCY_TTL": "0"}, "IDEMPOTENCY_TTL must be longer than zero"),
        ({"IDEMPOTENCY_LEASE": "10ms"}, "IDEMPOTENCY_LEASE is '10ms': input should be greater than or equal to"),
        (
            {"INBOX_RETENTION": "90"},
            "INBOX_RETENTION is 90ms, after which duplicates would be handled again; give 1h or more, such as 90d",
        ),
        ({"INBOX_SCHEMA": " "}, "INBOX_SCHEMA is ' ': string should have at least 1 character"),
        ({"IDEMPOTENCY_PREFIX": "a{b"}, "IDEMPOTENCY_PREFIX is 'a{b': "),
        ({"GOOGLE_CREDENTIALS_JSON": SECRET}, "GOOGLE_CREDENTIALS_JSON is neither a key file's JSON nor its base64"),
        (
            {"PUBSUB_EMULATOR_HOST": "h:1", "PUBSUB_ENDPOINT": "there:443"},
            "PUBSUB_EMULATOR_HOST (h:1) and PUBSUB_ENDPOINT (there:443) name two brokers; remove one of them",
        ),
        (
            {"CONSUMERS_SHUTDOWN_MS": "29s", "DYNO": "worker.1"},
            "CONSUMERS_SHUTDOWN_MS (29s) and the 4500ms after it do not end before Heroku kills worker.1 at 30s",
        ),
        (
            {"SCRATCH_DIR": "scratch"},
            "SCRATCH_DIR is 'scratch'; write an absolute path, such as /var/tmp/outbox-scratch",
        ),
        (
            {"INBOX_LEASE_MS": "20s", "INBOX_HEARTBEAT_MS": "11s"},
            "INBOX_HEARTBEAT_MS is 11s, more than half of INBOX_LEASE_MS, which is 20s: one late heartbeat would lose",
        ),
        (
            {"INBOX_RETRY_BASE_MS": "3m"},
            "INBOX_RETRY_MAX_MS is 2m, less than INBOX_RETRY_BASE_MS, which is 3m; give that or more",
        ),
        ({"INBOX_MAX_ATTEMPTS": "0"}, "INBOX_MAX_ATTEMPTS is 0; give 1 to try once, more to retry, or -1 for no limit"),
        (
            {"INBOX_SHARD_INDEX": "4", "INBOX_SHARD_COUNT": "4"},
            "INBOX_SHARD_INDEX is 4 of INBOX_SHARD_COUNT, 4; the parts count from 0 to 3",
        ),
        (
            {"INBOX_RETENTION": "10m"},
            "INBOX_RETENTION is 10m, after which duplicates would be handled again; give 1h or",
        ),
        ({"REDIS_CA_FILE": "none.pem"}, "REDIS_CA_FILE names 'none.pem', which cannot be read: No such file"),
        (
            {"REDIS_CA_FILE": "ca.pem", "REDIS_TLS_VERIFY": "off"},
            "REDIS_CA_FILE is set, and REDIS_TLS_VERIFY is off: nothing is checked against it; remove one of them",
        ),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    given: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name, the value, and what would be right; as an error of the SDK's own."""
    Path("ca.pem").write_text("")
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError) as refusal:
        load()

    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)
    assert SECRET not in str(refusal.value)


def test_a_mistyped_name_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that could only be ours; the relay's are its own to judge."""
    monkeypatch.setenv("CONSUMERS_MAX_MESAGES", SECRET)
    monkeypatch.setenv("IDEMPOTENCY_TLL", "1h")
    monkeypatch.setenv("IDEMPOTENCY_XYZ", "1h")
    monkeypatch.setenv("INBOX_SHEMA", "x")
    monkeypatch.setenv("RELAY_TOPPIC", "x")
    monkeypatch.setenv("REDIS_TIMEOUT", "x")

    assert Settings.strangers() == [
        "CONSUMERS_MAX_MESAGES is no setting of the consumers and has no effect; did you mean CONSUMERS_MAX_MESSAGES?",
        "IDEMPOTENCY_TLL is no setting of the consumers and has no effect; did you mean IDEMPOTENCY_TTL?",
        "IDEMPOTENCY_XYZ is no setting of the consumers and has no effect; `python -m consumers config` lists them all",
        "INBOX_SHEMA is no setting of the consumers and has no effect; did you mean INBOX_SCHEMA?",
    ]


@pytest.mark.parametrize("url", ["sqlite:///db", "postgresql+asyncpg://u@h/db", f"postgresql://u:{SECRET}@h:x"])
def test_a_database_of_the_service_is_none_of_ours(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no inbox may have a DATABASE_URL for anything."""
    monkeypatch.setenv("DATABASE_URL", url)
    assert refusals(load(pubsub_project_id="p", redis_url="redis://h")) == []


def test_what_is_missing_depends_on_the_consumers() -> None:
    """Without deduplication Redis is not asked for anything."""
    settings = load()
    consumers = [Consumer("a", dedup="none"), Consumer("b"), Consumer("c", dedup="mark")]

    project, *redis = missing(settings, consumers)

    assert project == "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your subscriptions"
    assert redis == [
        "REDIS_URL is not set; write it like rediss://:password@host:6379, or choose dedup='inbox' or 'none' "
        f"(consumer {name!r} has dedup={dedup!r})"
        for name, dedup in (("b", "claim"), ("c", "mark"))
    ]
    assert missing(load(pubsub_project_id="p", redis_url="redis://h"), consumers) == []
    assert missing(load(pubsub_project_id="p"), consumers[:1]) == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"redis_url": f"http://:{SECRET}@h"}, "REDIS_URL cannot be used: the URL http://***@h does not lead"),
        ({"google_credentials_json": '{"type": "other"}'}, "GOOGLE_CREDENTIALS_JSON is JSON, but no key"),
        ({"consumers_log_redact": "hook"}, "CONSUMERS_LOG_REDACT is 'hook': write it as module:function"),
        ({"consumers_log_redact": "no_such:hook"}, "CONSUMERS_LOG_REDACT is 'no_such:hook', which cannot be imported"),
        ({"consumers_log_redact": "sys:path"}, "CONSUMERS_LOG_REDACT is 'sys:path', which is not a function"),
    ],
)
def test_what_a_start_refuses_is_found_without_connecting(given: dict[str, str], sentence: str) -> None:
    """For `run` and `config` alike."""
    (fault,) = refusals(load(**given))
    assert fault.startswith(sentence)
    assert SECRET not in fault


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/2", "redis+cluster://a:1,b:2", "redis+sentinel://a/m"])
def test_every_kind_of_redis_is_taken(url: str) -> None:
    """Of which a client is made that has not connected yet."""
    assert refusals(load(redis_url=url, redis_tls_verify=False)) == []


@pytest.mark.parametrize(("given", "meant"), [("0", 0), ("off", 0), (" OFF ", 0), ("2h", 2), ("30d", 720)])
def test_a_retention_of_the_inbox_may_be_off(monkeypatch: pytest.MonkeyPatch, given: str, meant: int) -> None:
    """Then everything is kept."""
    monkeypatch.setenv("INBOX_RETENTION", given)
    assert load().inbox_retention == timedelta(hours=meant)
