"""`relay config`, and the reference page that is made from the same texts."""

import json
from pathlib import Path

import pytest

from relay.cli import main
from relay.cli.config import table
from relay.settings import Settings

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@h/db",
        f"postgresql://u@h/db?password={SECRET}&sslpassword={SECRET}",
        f"host=h user=u password={SECRET}",
        f"postgresql://u:a@{SECRET}@h/db",
        f"postgresql://u:{SECRET}/x@h/db",
        f"postgresql://u:{SECRET}@[h/db",
    ],
)
def test_no_form_of_a_password_is_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is what follows from a malformed one."""
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("RELAY_HTTP_TOKEN", SECRET * 4)

    for arguments in (["config"], ["config", "--json"]):
        main(arguments)
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert "***" in said.out


def test_an_incomplete_configuration_is_shown_with_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """It is for finding out."""
    Path(".env").write_text("RELAY_TOPIC=orders\n")

    assert main(["config", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    (topic,) = (line for line in shown["settings"] if line["name"] == "RELAY_TOPIC")
    assert (topic["value"], topic["source"], topic["default"]) == ("orders", ".env", "domain-events")
    assert [warning.split()[0] for warning in shown["warnings"]] == ["DATABASE_URL", "PUBSUB_PROJECT_ID"]


def test_every_fault_is_shown_and_exits_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the values."""
    monkeypatch.setenv("RELAY_RETRY_BASE_MS", "5m")
    monkeypatch.setenv("RELAY_IDLE_MIN_MS", "1h")

    assert main(["config"]) == 2

    said = capsys.readouterr()
    assert "RELAY_RETRY_BASE_MS=5m\n    environment, default 5s." in said.out
    assert [line.split()[1] for line in said.err.splitlines()] == ["RELAY_RETRY_BASE_MS", "RELAY_IDLE_MIN_MS"]


def test_the_reference_page_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert table() in PAGE.read_text()
