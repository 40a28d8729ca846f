"""Jobs, their history and archives, as settings that several programs have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator

from relay.kernel.duration import PositiveDuration, parse, written
from relay.setting_base import SettingBase

_SHORTEST_HISTORY = parse("1h")
_SHOWN = 100


class UpkeepSettings(SettingBase):
    """The names are the environment's, in lower case; a text that ends in a value gives the default."""

    MISSING: ClassVar[Mapping[str, str]] = {
        "archive_bucket": "ARCHIVE_BUCKET is not set; write it like s3://bucket/folder, or /srv/archive",
    }

    relay_app: str = ""
    """module:name of your own Jobs; they run beside the rest of the process, each once over all replicas."""
    relay_runs_retention: PositiveDuration = parse("7d")
    """How long the history of a job's runs is kept. 7d"""
    worker_api_base_url: str = ""
    """What the paths of HTTP jobs are behind, such as https://api.internal. Required where there is such a job."""
    worker_api_service_token: SecretStr = SecretStr("")
    """What HTTP jobs send as x-service-token. Required where there is such a job."""
    archive_bucket: str = ""
    """Where `relay archive` puts its files: s3://bucket/folder, a bucket's name alone, or an absolute path."""
    archive_region: str = ""
    """The region of an S3 bucket; without it, the one that AWS's own settings name."""
    archive_endpoint: str = ""
    """Another server that speaks S3, such as https://minio.internal:9000."""

    @field_validator("worker_api_base_url", "archive_endpoint")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value:
            return value
        try:
            parts = urlsplit(value)
            found = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
        except ValueError:
            found = None
        if not found or parts.username or parts.password or parts.query or parts.fragment:
            # A user's password, or what is asked for, is nobody's to read.
            shown = "" if set("@?#") & set(value) else f"is {value[:_SHOWN]!r}, which "
            raise ValueError(
                f"{shown}is no address of a server; write it like https://api.internal:8443, without a user"
            )
        return value.rstrip("/")

    @field_validator("archive_bucket")
    @classmethod
    def _is_place(cls, value: str) -> str:
        scheme, found, rest = value.partition("://")
        if not found:
            # A name alone is that of a bucket.
            if not value or Path(value).is_absolute():
                return value
            if "/" in value.rstrip("/") or not value[0].isalnum():
                raise ValueError("is no path from the root; write /srv/archive, or s3://bucket/folder for a bucket")
            return f"s3://{value.rstrip('/')}"
        if not rest.strip("/") or "@" in rest.partition("/")[0]:
            raise ValueError("names no place for files; write s3://bucket/folder or an absolute path, without a user")
        return f"{scheme.lower()}://{rest.rstrip('/')}"

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the settings together."""
        yield from super().faults()
        if self.relay_runs_retention < _SHORTEST_HISTORY:
            yield (
                f"RELAY_RUNS_RETENTION is {written(self.relay_runs_retention)}; "
                f"give {written(_SHORTEST_HISTORY)} or more, such as 7d"
            )
