"""A server that speaks S3, and a bucket on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import boto3
from moto.server import ThreadedMotoServer

_ACCOUNT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-central-1"}


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own."""

    endpoint: str
    name: str

    @property
    def settings(self) -> dict[str, str]:
        """What a command is told of it."""
        return {"ARCHIVE_BUCKET": f"s3://{self.name}/months", "ARCHIVE_ENDPOINT": self.endpoint, **_ACCOUNT}

    def objects(self) -> list[str]:
        """What is in it."""
        found = self._client().list_objects_v2(Bucket=self.name).get("Contents", [])
        return [each["Key"] for each in found]

    def write(self, key: str, content: bytes) -> None:
        """Put something there."""
        self._client().put_object(Bucket=self.name, Key=key, Body=content)

    def make(self) -> None:
        """Have it be there."""
        self._client().create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})

    def empty(self) -> None:
        """Remove what is in it."""
        for key in self.objects():
            self._client().delete_object(Bucket=self.name, Key=key)

    def _client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.endpoint)


@contextmanager
def bucket(name: str) -> Iterator[Bucket]:
    """One on a server that ends with the block; this process has an account there."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with patch.dict(os.environ, _ACCOUNT):
        server.start()
        try:
            host, port = server.get_host_and_port()
            found = Bucket(f"http://{host}:{port}", name)
            found.make()
            yield found
        finally:
            server.stop()
