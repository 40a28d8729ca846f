"""Every knob: its name, unit, default, and what is refused."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr

from relay.errors import ConfigurationError
from relay.kernel.duration import written
from relay.settings import Settings, load

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed


def text_of(default: Any) -> str:
    """A default as the documentation writes it."""
    match default:
        case timedelta():
            return written(default)
        case bool():
            return "on" if default else "off"
        case SecretStr():
            return default.get_secret_value()
        case _:
            return str(default)


class Documented(NamedTuple):
    """A line of the table in the documentation."""

    name: str
    default: str
    text: str


# Everything that such a table needs, from the settings themselves.
TABLE = [
    Documented(name.upper(), text_of(field.default), field.description or "")
    for name, field in Settings.model_fields.items()
]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for line in TABLE:
        monkeypatch.delenv(line.name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_these_are_the_settings_and_their_defaults() -> None:
    """Names and defaults are relied upon; a change here is a change for users."""
    assert {line.name: line.default for line in TABLE} == {
        "DATABASE_URL": "",
        "RELAY_SCHEMA": "public",
        "RELAY_NOTIFY": "on",
        "RELAY_LISTEN_URL": "",
        "GOOGLE_CLOUD_PROJECT": "",
        "PUBSUB_PROJECT_ID": "",
        "PUBSUB_EMULATOR_HOST": "",
        "PUBSUB_ENDPOINT": "",
        "GOOGLE_CREDENTIALS_JSON": "",
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "RELAY_BROKER": "pubsub",
        "RELAY_TOPIC": "domain-events",
        "RELAY_ROUTES": "",
        "RELAY_BATCH_SIZE": "1000",
        "RELAY_SLOTS": "3",
        "RELAY_POLL_MS": "500ms",
        "RELAY_POLL_JITTER_MS": "250ms",
        "RELAY_PUBLISH_BUDGET_MS": "15s",
        "RELAY_IDLE_TX_MS": "20s",
        "RELAY_OUTAGE_MAX_MS": "10s",
        "RELAY_MAX_ATTEMPTS": "25",
        "RELAY_RETRY_BASE_MS": "5s",
        "RELAY_RETRY_MAX_MS": "2m",
        "RELAY_RETRY_JITTER_MS": "500ms",
        "RELAY_ON_FAILED_HEAD": "block",
        "RELAY_SHUTDOWN_MS": "25s",
        "RELAY_RUNNERS": "publish,retention,jobs",
        "RELAY_RUNNER_MAX_ITEMS": "200",
        "RELAY_TICK_MAX_MS": "8m",
        "RELAY_RUNNER_MAX_MS": "1m",
        "RELAY_BUSY_MS": "250ms",
        "RELAY_IDLE_MIN_MS": "1s",
        "RELAY_IDLE_MAX_MS": "30s",
        "RELAY_IDLE_JITTER_MS": "500ms",
        "RELAY_ERROR_BACKOFF_MS": "30s",
        "RELAY_ERROR_BACKOFF_JITTER_MS": "2s",
        "RELAY_RETENTION": "30d",
        "RELAY_RETENTION_TO": "nowhere",
        "RELAY_APP": "",
        "RELAY_RUNS_RETENTION": "7d",
        "WORKER_API_BASE_URL": "",
        "WORKER_API_SERVICE_TOKEN": "",
        "ARCHIVE_BUCKET": "",
        "ARCHIVE_REGION": "",
        "ARCHIVE_ENDPOINT": "",
        "RELAY_NAME": "",
        "RELAY_LOG_LEVEL": "info",
        "RELAY_LOG_EVENTS": "off",
        "RELAY_LOG_REDACT": "",
        "RELAY_STATS_MS": "1m",
        "RELAY_HTTP": "",
        "RELAY_HTTP_TOKEN": "",
        "PORT": "",
        "DYNO": "",
    }
    assert load() == Settings.model_construct()


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_every_setting_documents_itself(line: Documented) -> None:
    """Its text says what it does, and ends in the default where there is one."""
    assert line.text
    if line.default:
        assert line.text.endswith(f". {line.default}")


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_every_setting_is_read_from_the_environment(line: Documented, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its name in capitals."""
    values = {
        "GOOGLE_CREDENTIALS_JSON": "{}",
        "GOOGLE_APPLICATION_CREDENTIALS": "key.json",
        "RELAY_BATCH_SIZE": "7",
        "RELAY_SLOTS": "7",
        "RELAY_BROKER": "pubsub",
        "RELAY_TOPIC": "orders",
        "RELAY_ROUTES": "order.*=orders",
        "RELAY_ON_FAILED_HEAD": "skip, order.*=block",
        "RELAY_TICK_MAX_MS": "61s",
        "RELAY_LOG_EVENTS": "on",
        "RELAY_NOTIFY": "off",
        "RELAY_MAX_ATTEMPTS": "7",
        "RELAY_RUNNER_MAX_ITEMS": "7",
        "RELAY_LOG_LEVEL": "debug",
        "RELAY_PUBLISH_BUDGET_MS": "7s",
        "RELAY_RETENTION": "7d",
        "RELAY_RETENTION_TO": "archive",
        "RELAY_RUNS_RETENTION": "8d",
        "WORKER_API_BASE_URL": "https://api.internal:8443",
        "ARCHIVE_BUCKET": "s3://rows/old",
        "ARCHIVE_ENDPOINT": "http://127.0.0.1:9000",
    }
    value = values.get(line.name, "21s" if line.name.endswith("_MS") else "host=x")
    monkeypatch.setenv(line.name, value)
    Path("key.json").write_text("{}")

    assert text_of(getattr(load(), line.name.lower())) == value


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_an_empty_value_means_unset(line: Documented, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line `RELAY_TOPIC=` must not publish to a topic without a name."""
    monkeypatch.setenv(line.name, "")
    Path(".env").write_text(f"{line.name}=\n")

    assert load() == Settings.model_construct()
    assert text_of(getattr(load(), line.name.lower())) == line.default


def test_dot_env_is_read_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, quotes and other programs' lines included; the environment goes over it, an empty value does not."""
    Path(".env").write_text(
        "# ours\nRELAY_TOPIC='from-file'\nexport RELAY_SCHEMA=shop\nRELAY_BATCH_SIZE=5\nSOMEBODY_ELSES=1\n"
    )
    monkeypatch.setenv("RELAY_BATCH_SIZE", "6")
    monkeypatch.setenv("RELAY_TOPIC", "")

    settings = load()

    assert (settings.relay_topic, settings.relay_schema, settings.relay_batch_size) == ("from-file", "shop", 6)


def test_the_projects_own_name_goes_over_googles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform sets GOOGLE_CLOUD_PROJECT by itself; who sets the other one means it, wherever."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "platform")
    assert load().require_project() == "platform"

    Path(".env").write_text("PUBSUB_PROJECT_ID=file\n")
    assert load().require_project() == "file"

    monkeypatch.setenv("PUBSUB_PROJECT_ID", "environment")
    assert load().require_project() == "environment"


def test_white_space_around_a_value_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets come with a line's end attached."""
    monkeypatch.setenv("DATABASE_URL", " postgresql://u:p@h/db\n")
    monkeypatch.setenv("RELAY_TOPIC", " orders ")
    monkeypatch.setenv("RELAY_LOG_LEVEL", " DEBUG ")

    settings = load()

    assert settings.require_database() == "postgresql://u:p@h/db"
    assert (settings.relay_topic, settings.relay_log_level) == ("orders", "debug")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("RELAY_BATCH_SIZE", "0", "RELAY_BATCH_SIZE is '0': input should be greater than or equal to 1"),
        ("RELAY_BATCH_SIZE", "10001", "RELAY_BATCH_SIZE is '10001': input should be less than or equal to 10000"),
        ("RELAY_BATCH_SIZE", "many", "RELAY_BATCH_SIZE is 'many': input should be a valid integer"),
        ("RELAY_TOPIC", " ", "RELAY_TOPIC is ' ': string should have at least 1 character"),
        ("RELAY_SCHEMA", " ", "RELAY_SCHEMA is ' ': string should have at least 1 character"),
        ("RELAY_LOG_LEVEL", "loud", "RELAY_LOG_LEVEL is 'loud': input should be 'debug', 'info', 'warning' or 'error'"),
        ("RELAY_POLL_MS", "-1", "RELAY_POLL_MS '-1' is not a duration; write it like 500ms"),
        ("RELAY_POLL_MS", "1.5", "RELAY_POLL_MS '1.5' is not a duration"),
        ("RELAY_SHUTDOWN_MS", "soon", "RELAY_SHUTDOWN_MS 'soon' is not a duration"),
        ("RELAY_SHUTDOWN_MS", "99999d", "RELAY_SHUTDOWN_MS '99999d' is longer than 36500d"),
        ("RELAY_POLL_MS", "0", "RELAY_POLL_MS must be longer than zero"),
        ("RELAY_OUTAGE_MAX_MS", "0", "RELAY_OUTAGE_MAX_MS must be longer than zero"),
        ("RELAY_PUBLISH_BUDGET_MS", "0", "RELAY_PUBLISH_BUDGET_MS must be longer than zero"),
        ("RELAY_IDLE_TX_MS", "0", "RELAY_IDLE_TX_MS must be longer than zero"),
        ("RELAY_IDLE_TX_MS", "25d", "RELAY_IDLE_TX_MS must not be longer than 24d"),
        ("RELAY_TICK_MAX_MS", "0", "RELAY_TICK_MAX_MS must be longer than zero"),
        ("RELAY_RUNNER_MAX_MS", "0", "RELAY_RUNNER_MAX_MS must be longer than zero"),
        ("RELAY_IDLE_TX_MS", "15s", "RELAY_PUBLISH_BUDGET_MS (15s) must stay below RELAY_IDLE_TX_MS (15s)"),
        ("RELAY_RETRY_BASE_MS", "121s", "RELAY_RETRY_BASE_MS (121s) is longer than RELAY_RETRY_MAX_MS (2m)"),
        ("RELAY_IDLE_MIN_MS", "31s", "RELAY_IDLE_MIN_MS (31s) is longer than RELAY_IDLE_MAX_MS (30s)"),
        ("RELAY_RUNNER_MAX_MS", "10m", "RELAY_RUNNER_MAX_MS (10m) is longer than RELAY_TICK_MAX_MS (8m)"),
        ("RELAY_RUNNER_MAX_MS", "9s", "RELAY_PUBLISH_BUDGET_MS (15s) is longer than RELAY_RUNNER_MAX_MS (9s)"),
        ("RELAY_OUTAGE_MAX_MS", "499ms", "RELAY_OUTAGE_MAX_MS (499ms) is shorter than the first pause"),
        ("RELAY_ROUTES", "order", "RELAY_ROUTES has the part 'order', which is no route; write it like order.*=orders"),
        ("RELAY_ON_FAILED_HEAD", "wait", "RELAY_ON_FAILED_HEAD has the part 'wait', which is neither block nor skip"),
        ("RELAY_ON_FAILED_HEAD", "a=skip,a=block", "RELAY_ON_FAILED_HEAD names 'a' twice, for skip and for block"),
        ("RELAY_MAX_ATTEMPTS", "0", "RELAY_MAX_ATTEMPTS is '0': input should be greater than or equal to 1"),
        ("RELAY_BROKER", "kafka", "RELAY_BROKER is 'kafka': input should be 'pubsub'"),
        ("RELAY_PUBLISH_BUDGET_MS", "21s", "RELAY_PUBLISH_BUDGET_MS (21s) must stay below RELAY_IDLE_TX_MS"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name, the value, and what would be right."""
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError) as refusal:
        load()

    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["RELAY_POLL_JITTER_MS", "RELAY_SHUTDOWN_MS"])
def test_zero_is_taken_where_it_is_a_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jitter, no patience."""
    monkeypatch.setenv(name, "0")

    assert getattr(load(), name.lower()) == timedelta(0)


def test_every_fault_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody mends them one restart at a time."""
    monkeypatch.setenv("RELAY_BATCH_SIZE", "many")
    monkeypatch.setenv("RELAY_POLL_MS", "0")
    Path(".env").write_text("RELAY_LOG_LEVEL=loud\nDATABASE_URL=postgresql://u:p@[h/db\n")

    with pytest.raises(ConfigurationError) as refusal:
        load()

    assert [line.split()[0] for line in str(refusal.value).splitlines()] == [
        "DATABASE_URL",
        "RELAY_BATCH_SIZE",
        "RELAY_POLL_MS",
        "RELAY_LOG_LEVEL",
    ]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host:5432/db?no_such_parameter=1",
        f"user={SECRET} password",
        f"postgresql://user:{SECRET}@[::1/db",
        f"postgresql://user:{SECRET}%zz@host/db",
        f"mysql://user:{SECRET}@host/db",
    ],
)
def test_a_malformed_database_url_is_refused_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libpq's own sentence would repeat it, and so would a traceback."""
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(ConfigurationError) as refusal:
        load()

    assert str(refusal.value) == (
        "DATABASE_URL is not a connection string; write it like postgresql://user:password@host:5432/db"
    )
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f'"postgresql://u:{SECRET}@h/db"', "DATABASE_URL begins with a quote"),
        (f"postgresql+psycopg://u:{SECRET}@h/db", "DATABASE_URL names a driver in its scheme"),
    ],
)
def test_a_url_of_another_tool_is_told_what_to_change(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two forms that are most often copied from elsewhere."""
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ConfigurationError) as refusal:
        load()
    assert words in str(refusal.value)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("url", [f"postgres://u:{SECRET}@h/db", f"host=h user=u password={SECRET}"])
def test_the_password_is_never_printed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by accident nor in a dump of the settings."""
    monkeypatch.setenv("DATABASE_URL", url)

    settings = load()

    assert SECRET in settings.require_database()
    for printed in (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert SECRET not in printed


KEY = {"type": "service_account", "private_key": f"-----BEGIN\n{SECRET}\nEND-----\n", "odd": "?>~ÿ¿"}
KEY_JSON = json.dumps(KEY, indent=2)
KEY_BASE64 = base64.b64encode(KEY_JSON.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        KEY_JSON,
        f"\n {KEY_JSON}\n",
        KEY_JSON.replace("\\n", "\n"),
        KEY_BASE64,
        base64.encodebytes(KEY_JSON.encode()).decode(),
        base64.urlsafe_b64encode(KEY_JSON.encode()).decode(),
        KEY_BASE64.rstrip("="),
    ],
    ids=["JSON", "spaced", "with line breaks in a text", "base64", "in lines", "for URLs", "without padding"],
)
def test_a_key_is_taken_as_json_or_as_base64(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the platform's form of a multi-line secret is."""
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", text)

    settings = load()

    assert settings.google_key() == KEY
    for printed in (repr(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert SECRET not in printed
        assert KEY_BASE64[:40] not in printed


def test_without_a_key_there_is_none() -> None:
    """Then the library looks for credentials by itself."""
    assert load().google_key() is None


def test_a_key_comes_from_dot_env_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In single quotes as it is, in double quotes with its line breaks resolved."""
    one_line = json.dumps(KEY)
    for line in (f"'{one_line}'", '"' + one_line.replace('"', '\\"') + '"'):
        Path(".env").write_text(f"GOOGLE_CREDENTIALS_JSON={line}\n")
        assert load().google_key() == KEY
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", '{"type": "other"}')
    assert load().google_key() == {"type": "other"}


@pytest.mark.parametrize(
    "text",
    [
        f"{{{SECRET}",
        f'{{"private_key": "{SECRET}',
        f'["{SECRET}"]',
        SECRET,
        f"/run/{SECRET}.json",
        base64.b64encode(f'"{SECRET}"'.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode(),
        KEY_BASE64[:-9],
        f"ÿ{SECRET}",
    ],
)
def test_a_malformed_key_is_refused_without_its_content(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the JSON parser's sentence nor a traceback may show it."""
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", text)

    with pytest.raises(ConfigurationError) as refusal:
        load()

    assert str(refusal.value) == (
        "GOOGLE_CREDENTIALS_JSON is neither a key file's JSON nor its base64; set it to the content of the file, "
        "or to what `base64 < key.json` prints"
    )
    assert refusal.value.__suppress_context__


def test_what_is_required_and_missing_is_said_at_once() -> None:
    """Each with its sentence."""
    with pytest.raises(ConfigurationError, match=r"DATABASE_URL is not set.*PUBSUB_PROJECT_ID is not set"):
        load().require("database_url", "pubsub_project_id")
    with pytest.raises(ConfigurationError, match=r"^DATABASE_URL is not set; write it like postgresql://"):
        load().require_database()
    with pytest.raises(ConfigurationError, match=r"^PUBSUB_PROJECT_ID is not set; name the Google Cloud project"):
        load().require_project()


def test_a_dot_env_that_cannot_be_read_is_a_fault_of_the_configuration() -> None:
    """Bytes that are no text, for example."""
    Path(".env").write_bytes(b"RELAY_TOPIC=\xff\xfe\n")

    with pytest.raises(ConfigurationError, match=r"the environment or \.env cannot be read"):
        load()


def test_settings_do_not_change() -> None:
    """They are read once and passed down."""
    with pytest.raises(ValueError, match="frozen"):
        load().relay_topic = "another"


def test_a_dyno_ends_by_itself_before_heroku_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cancelled after the soft timeout is rolled back in time, too."""
    monkeypatch.setenv("DYNO", "relay.1")
    load()
    monkeypatch.setenv("RELAY_SHUTDOWN_MS", "26s")
    with pytest.raises(ConfigurationError, match=r"^RELAY_SHUTDOWN_MS .* Heroku kills relay.1 at 30s; set"):
        load()


def test_two_brokers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can want both."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:8085")
    monkeypatch.setenv("PUBSUB_ENDPOINT", "there:443")
    with pytest.raises(ConfigurationError, match="name two brokers; remove one of them"):
        load()


def test_a_name_that_has_no_effect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is written; its value is not repeated."""
    monkeypatch.setenv("RELAY_TOPPIC", SECRET)
    Path(".env").write_text(f"RELAY_SHARD_COUNT=2\nRELAY_XYZZY={SECRET}\nRELAY_TOPIC=orders\n")

    assert Settings.strangers() == [
        "RELAY_SHARD_COUNT has no effect in this release; remove it",
        "RELAY_TOPPIC is no setting of the relay and has no effect; did you mean RELAY_TOPIC?",
        "RELAY_XYZZY is no setting of the relay and has no effect; `python -m relay config` lists them all",
    ]


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read: No such file"), (SECRET, "is no JSON object")])
def test_a_key_file_that_is_none_is_refused(content: str | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its content; an emulator asks for no file."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    if content:
        Path("key.json").write_text(content)
    with pytest.raises(ConfigurationError) as refusal:
        load()
    assert str(refusal.value).startswith(f"GOOGLE_APPLICATION_CREDENTIALS names 'key.json', which {words}")
    assert SECRET not in str(refusal.value)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:8085")
    load()
