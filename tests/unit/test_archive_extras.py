"""What an archive needs and is not there: packages, and places that are none."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.errors import ConfigurationError
from relay.upkeep.archive import archive
from relay.upkeep.archive.archive import Archive
from relay.upkeep.archive.directory import Directory
from relay.upkeep.archive.place import Place


def _archive(place: Place) -> Archive:
    def never() -> psycopg.Connection[Any]:
        raise AssertionError("nobody connects")

    return Archive(never, "public", place)


def test_without_pyarrow_the_command_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sealed."""
    monkeypatch.setattr(archive, "find_spec", lambda _: None)

    with pytest.raises(
        ConfigurationError, match=r"'pyarrow', which is not installed; run: pip install '.*\[archive\]'"
    ):
        _archive(Place("/srv/archive")).require()


def test_without_s3fs_the_command_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder needs it not."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # It keeps what it found once.
    monkeypatch.delitem(import_module("fsspec.registry")._registry, "s3", raising=False)

    with pytest.raises(
        ConfigurationError, match=r"s3:// needs the package 's3fs', .*; run: pip install '.*\[archive\]'"
    ):
        Place("s3://bucket").open()
    assert isinstance(Place("/srv/archive").open(), Directory)
    assert Place("file:///srv/archive").open().shown == str(Path("/srv/archive"))


@pytest.mark.parametrize("url", ["", "file://relative", "nothing://there"])
def test_a_place_that_is_none_is_refused(url: str) -> None:
    """With how one is written."""
    with pytest.raises(ConfigurationError, match=r"ARCHIVE_BUCKET .*/"):
        Place(url).open()
