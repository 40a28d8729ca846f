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
    monkeypatch.setenv("RELAY_LISTEN_URL", url)
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


def shown_of(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The value and the source of a setting, as JSON has them."""
    assert main(["config", "--json"]) == 0
    (line,) = (line for line in json.loads(capsys.readouterr().out)["settings"] if line["name"] == name)
    return line["value"], line["source"]


def test_the_project_is_shown_with_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Google's own name supplies it, wherever it is set; ours goes over it."""
    Path(".env").write_text("GOOGLE_CLOUD_PROJECT=of-file\n")
    assert shown_of("PUBSUB_PROJECT_ID", capsys) == ("of-file", "GOOGLE_CLOUD_PROJECT")

    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-platform")
    assert shown_of("PUBSUB_PROJECT_ID", capsys) == ("of-platform", "GOOGLE_CLOUD_PROJECT")
    assert shown_of("GOOGLE_CLOUD_PROJECT", capsys) == ("of-platform", "platform")

    Path(".env").write_text("PUBSUB_PROJECT_ID=ours\n")
    assert shown_of("PUBSUB_PROJECT_ID", capsys) == ("ours", ".env")


@pytest.mark.parametrize(("given", "shown"), [("20000", "20s"), ("1500", "1500ms"), ("120s", "2m"), ("48h", "2d")])
def test_a_duration_is_shown_as_people_write_it(
    given: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However it was written."""
    monkeypatch.setenv("RELAY_STATS_MS", given)
    assert shown_of("RELAY_STATS_MS", capsys) == (shown, "environment")


def test_a_list_is_shown_as_it_was_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And the default where nothing was."""
    assert shown_of("RELAY_ON_FAILED_HEAD", capsys) == ("block", "default")
    monkeypatch.setenv("RELAY_ON_FAILED_HEAD", "skip, order.*=block")
    assert shown_of("RELAY_ON_FAILED_HEAD", capsys) == ("skip, order.*=block", "environment")


def test_a_list_is_shown_with_what_it_means(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is more than one word, and can be read."""
    meant = "    it says: order.* block, all others skip\n"
    for text, lines in (("skip, order.*=block", [meant]), ("skip", []), ("skip order.*=block", [])):
        monkeypatch.setenv("RELAY_ON_FAILED_HEAD", text)
        main(["config"])
        assert [line for line in capsys.readouterr().out.splitlines(keepends=True) if "it says" in line] == lines


def test_a_value_that_cannot_be_read_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what has to be found."""
    monkeypatch.setenv("RELAY_STATS_MS", "soon")
    assert main(["config"]) == 2
    assert "RELAY_STATS_MS=soon\n    environment, default 1m." in capsys.readouterr().out


def test_a_dot_env_that_cannot_be_read_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """The rest is shown all the same."""
    Path(".env").write_bytes(b"RELAY_TOPIC=\xff\xfe\n")
    assert main(["config"]) == 2
    said = capsys.readouterr()
    assert "RELAY_TOPIC=domain-events" in said.out
    assert "the environment or .env cannot be read" in said.err


def test_an_unknown_runner_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it is named."""
    monkeypatch.setenv("RELAY_RUNNERS", "publsh,publish,publsh")
    assert main(["config"]) == 0
    assert capsys.readouterr().err.count("RELAY_RUNNERS names 'publsh'") == 1


def test_the_reference_page_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert table() in PAGE.read_text()
