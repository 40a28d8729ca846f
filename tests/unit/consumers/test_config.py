"""`consumers config`, and the reference page that is made from the same texts."""

import json
import sys
from pathlib import Path

import pytest

from consumers.cli import main
from consumers.settings import Settings

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://:{SECRET}@h:6379/1", "redis://***@h:6379/1"),
        (f"rediss://u:{SECRET}@h", "rediss://***@h"),
        (f"redis+sentinel://u:{SECRET}@a:1,b:2/master", "redis+sentinel://***@a:1,b:2/master"),
        ("redis://h:6379", "redis://h:6379"),
        (f"redis://:a@{SECRET}@h", "***"),
        (f"redis://:{SECRET}/x@h", "***"),
        (f"redis://h:6379?password={SECRET}", "***"),
        (f"redis://:#{SECRET}@h", "***"),
        (SECRET, "***"),
    ],
)
def test_no_password_is_shown(
    url: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor what may be one; all else is, for it is what has to be looked at."""
    monkeypatch.setenv("REDIS_URL", url)
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", f'{{"a": "{SECRET}"}}')

    for arguments in (["config"], ["config", "--json"]):
        main(arguments)
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
    (line,) = (line for line in json.loads(said.out)["settings"] if line["name"] == "REDIS_URL")
    assert line["value"] == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://u:{SECRET}@h:5432/db", "postgresql://***@h:5432/db"),
        (f"host=h password={SECRET}", "***"),
        (f"postgresql://h/db?password={SECRET}", "***"),
    ],
)
def test_no_password_of_the_inbox_is_shown(
    url: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever way it is written; whether libpq can read it is not asked."""
    monkeypatch.setenv("DATABASE_URL", url)
    assert main(["config", "--json"]) == 0
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    (line,) = (line for line in json.loads(said.out)["settings"] if line["name"] == "DATABASE_URL")
    assert line["value"] == shown


def test_an_incomplete_configuration_is_shown_with_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """It is for finding out, and exits 0."""
    Path(".env").write_text("IDEMPOTENCY_TTL=48h\n")

    assert main(["config", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    (ttl,) = (line for line in shown["settings"] if line["name"] == "IDEMPOTENCY_TTL")
    assert (ttl["value"], ttl["source"], ttl["default"]) == ("2d", ".env", "30d")
    assert [warning.split()[0] for warning in shown["warnings"]] == ["PUBSUB_PROJECT_ID", "REDIS_URL"]


def test_every_fault_is_shown_and_exits_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the values: those that cannot be read, and those that a start refuses."""
    monkeypatch.setenv("CONSUMERS_STATS_MS", "soon")
    assert main(["config"]) == 2
    said = capsys.readouterr()
    assert "CONSUMERS_STATS_MS=soon\n    environment, default 1m." in said.out
    assert said.err == (
        "consumers: CONSUMERS_STATS_MS 'soon' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d\n"
    )

    monkeypatch.delenv("CONSUMERS_STATS_MS")
    monkeypatch.setenv("REDIS_URL", "http://h")
    monkeypatch.setenv("CONSUMERS_LOG_REDACT", "hook")
    assert main(["config"]) == 2
    faults = [line.split()[1] for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert faults == ["REDIS_URL", "CONSUMERS_LOG_REDACT"]


def test_a_hook_in_the_current_folder_is_found_by_the_script_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start finds it there; the check must not say otherwise."""
    Path("the_redaction_of_a_user.py").write_text("def redact(line):\n    return line\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in {"", str(Path.cwd())}])
    monkeypatch.setenv("CONSUMERS_LOG_REDACT", "the_redaction_of_a_user:redact")

    assert main(["config"]) == 0
    assert "cannot be imported" not in capsys.readouterr().err
