"""The place that ARCHIVE_BUCKET names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.errors import ConfigurationError
from relay.extras import installed_by
from relay.kernel.failure import told
from relay.upkeep.archive.directory import Directory
from relay.upkeep.archive.objects import Objects
from relay.upkeep.archive.store import Store
from relay.upkeep_settings import UpkeepSettings

_LOCAL = ("", "file", "local")
_SECONDS_TO_CONNECT, _SECONDS_TO_ANSWER, _ATTEMPTS = 10, 30, 2


@dataclass(frozen=True, slots=True)
class Place:
    """What the settings say of it. Nothing is asked of it before it is opened."""

    url: str
    region: str = ""
    endpoint: str = ""

    @classmethod
    def of(cls, settings: UpkeepSettings) -> "Place":
        """That of a program's settings."""
        return cls(settings.archive_bucket, settings.archive_region, settings.archive_endpoint)

    def open(self) -> Store:
        """What keeps files there. Raises ConfigurationError where it is not set, or a package is missing."""
        if not self.url:
            raise ConfigurationError(UpkeepSettings.MISSING["archive_bucket"])
        scheme, found, rest = self.url.partition("://")
        if not found or scheme in _LOCAL:
            path = Path(rest if found else self.url)
            if not path.is_absolute():
                raise ConfigurationError(f"ARCHIVE_BUCKET is {self.url!r}; write the path from the root: /srv/archive")
            return Directory(path)
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 -- an extra, which only such a place needs

            system, root = url_to_fs(self.url, **(self._s3() if scheme == "s3" else {}))
        except ImportError as error:
            package = error.name or ("s3fs" if scheme == "s3" else f"of fsspec for {scheme}://")
            raise ConfigurationError(
                f"an archive at {scheme}:// needs the package {package!r}, which is not installed; "
                f"run: {installed_by('archive')}"
            ) from error
        except ValueError as error:
            raise ConfigurationError(
                f"ARCHIVE_BUCKET names {scheme}://, and {told(error)}; write s3:// or a path"
            ) from None
        return Objects(system, root, self.url)

    def _s3(self) -> Mapping[str, Any]:
        where = {"region_name": self.region, "endpoint_url": self.endpoint}
        return {
            # One of its own: what others in the process have opened has their settings, and what they believe is there.
            "skip_instance_cache": True,
            "use_listings_cache": False,
            "client_kwargs": {name: value for name, value in where.items() if value},
            "config_kwargs": {
                "connect_timeout": _SECONDS_TO_CONNECT,
                "read_timeout": _SECONDS_TO_ANSWER,
                "retries": {"max_attempts": _ATTEMPTS, "mode": "standard"},
            },
        }
