"""A place for artifacts, by its URL."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from consumers.errors import ConfigurationError, UsageError
from consumers.relative_name import parts_of
from consumers.storage.files import FileTarget
from consumers.storage.manifest import SUFFIX
from consumers.storage.objects import ObjectTarget
from consumers.storage.target import Target
from relay.extras import installed_by

_LOCAL = ("", "file", "local")
_WRITE = "write file:///srv/media, s3://bucket/folder or gs://bucket"
_SECRET = re.compile(r"(?<=://)[^/]*@")


class ArtifactStore:
    """Where artifacts go: a directory, or whatever fsspec can reach. Nothing connects before its use.

    Example:
        MEDIA = ArtifactStore("s3://media/clips", endpoint_url="https://…")

    Args:
        url: An absolute path, or a URL such as file:///srv/media, s3://bucket/folder, gs://bucket or memory://folder.
        options: What the file system takes, such as credentials: as for `fsspec.filesystem`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = _text(url), options
        scheme, found, rest = self._url.partition("://")
        self._scheme, self._path = (scheme, rest) if found else ("", self._url)
        self._shown = _SECRET.sub("", self._url.rstrip("/"))
        if fault := self._fault():
            raise ConfigurationError(f"the store of an artifact {fault}; {_WRITE}")

    def __repr__(self) -> str:
        return f"ArtifactStore({self._shown!r})"

    def location(self, name: str) -> str:
        """Where the artifact of this name is, without a password."""
        return f"{self._shown if self._scheme else 'file://' + self._shown}/{name}"

    @cached_property
    def target(self) -> Target:
        """What stores it. May connect. Raises ConfigurationError where a package is missing."""
        if self._scheme in _LOCAL:
            return FileTarget(Path(self._path))
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 -- an extra, which only such stores need
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"artifacts at {self._scheme}:// need the package {error.name!r}, which is not installed; "
                f"run: {installed_by('artifacts')}"
            ) from error
        try:
            system, root = url_to_fs(self._url, **self._options)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                f"there is no file system for artifacts at {self._scheme}://; install the package that fsspec names "
                f"for it, such as s3fs or gcsfs: {_first_line(error)}"
            ) from None
        return ObjectTarget(system, root)

    def _fault(self) -> str:
        if not self._url.isprintable() or "?" in self._url or "#" in self._url:
            return "has characters that no path has: line breaks, ? or #"
        if self._scheme in _LOCAL and not self._path.startswith("/"):
            return f"is {self._shown!r}, which is neither a URL nor an absolute path"
        return "names no place" if not self._path.strip("/") and self._scheme != "memory" else ""


def _text(url: object) -> str:
    if not isinstance(url, str):
        raise ConfigurationError(f"the store of an artifact is a value of type {type(url).__name__}, no URL; {_WRITE}")
    return url


def name_of(name: str) -> str:
    """The name as it is stored. Raises UsageError for one that leads out of the store, or into a manifest's place."""
    text = "/".join(parts_of(name, "ctx.artifact"))
    if text.endswith(SUFFIX):
        raise UsageError(f"ctx.artifact: the name ends in {SUFFIX}, as the manifest of another artifact does")
    return text


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
