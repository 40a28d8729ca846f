"""The configuration file that goes over the one of initdb."""

from pathlib import Path

import pytest

from relay.dev.postgres import config_text
from relay.errors import DevError


def test_settings_come_after_what_initdb_wrote() -> None:
    """The last line of a setting wins."""
    assert config_text({"work_mem": "8MB"}, Path("/data")) == ("include = '/data/postgresql.conf'\nwork_mem = '8MB'\n")


def test_a_value_is_quoted() -> None:
    r"""Quotes and backslashes reach Postgres as they are."""
    assert r"search_path = 'it''s\\'" in config_text({"search_path": "it's\\"}, Path("/data"))


@pytest.mark.parametrize("setting", [("", "1"), ("a b", "1"), ("a = 1\nb", "1"), ("a", "1\n2")])
def test_what_is_no_setting_is_refused(setting: tuple[str, str]) -> None:
    """A line break would smuggle in a second setting."""
    with pytest.raises(DevError, match="is not a Postgres setting"):
        config_text(dict([setting]), Path("/data"))
