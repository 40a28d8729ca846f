"""The same in a bucket: what a store refuses, loses, or has been given by somebody else."""

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from relay.upkeep.archive.archive import Archive
from relay.upkeep.archive.place import Place
from relay.upkeep.archive.record import Insistence, State
from relay.upkeep.archive.store import Check, PlaceAwayError, UnusablePlaceError
from relay.upkeep.archive.watch import StoppedError
from relay.upkeep.table_name import TableName
from tests.support.archives import FIRST, Shelf, archive, differences, exists, kept
from tests.support.bucket import Bucket, bucket

JANUARY = date(2026, 1, 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    """For all tests here."""
    with bucket("archive") as there:
        yield there


@pytest.fixture
def there(server: Bucket) -> Iterator[Bucket]:
    """Empty."""
    yield server
    server.empty()


@pytest.fixture
def shelf(database: str) -> Shelf:
    """January, with 5,000 rows of 400 bytes."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 5000, size=400)
    kept(database, "sources_2026_01")
    return shelf


def _archive(database: str, bucket: Bucket) -> Archive:
    return archive(database, f"s3://{bucket.name}/months", endpoint=bucket.endpoint, region="eu-central-1")


def test_a_month_goes_to_a_bucket_and_comes_back(shelf: Shelf, there: Bucket) -> None:
    """Read back, dropped, and restored."""
    files = _archive(shelf.database, there)
    (verified,) = files.export(shelf.origin, JANUARY).verified
    assert there.objects() == [f"months/{verified.files[0].name}"]
    assert len(files.drop(shelf.origin, JANUARY, Insistence("ana", "a test")).dropped) == 1

    files.restore(shelf.origin, JANUARY, into=TableName("public", "restored"))

    assert differences(shelf.database, "kept", "restored") == 0


def test_an_object_that_is_lost_or_changed_keeps_the_rows(shelf: Shelf, there: Bucket) -> None:
    """And is written again by the command that the error names."""
    files = _archive(shelf.database, there)
    files.export(shelf.origin, JANUARY)
    (key,) = there.objects()
    there.write(key, b"something else")
    changed = files.drop(shelf.origin, JANUARY, Insistence("ana", "a test")).faults
    there.empty()
    missing = files.export(shelf.origin, JANUARY).faults
    (doubted,) = files.standing(shelf.origin).exports

    assert "is not what was written" in str(changed[0])
    assert "is missing at s3://archive/months" in str(missing[0])
    assert (doubted.state, doubted.drop_eligible_at) == (State.SEALED, None)
    assert exists(shelf.database, "archive.sources_2026_01_p1")
    files.export(shelf.origin, JANUARY, again=True)
    assert not files.verify(shelf.origin).faults


def test_a_bucket_that_is_not_there_is_named(shelf: Shelf, there: Bucket) -> None:
    """Before anything is sealed; the next call goes on."""
    nowhere = Bucket(there.endpoint, "nowhere")

    with pytest.raises(UnusablePlaceError, match="s3://nowhere/months refuses"):
        _archive(shelf.database, nowhere).export(shelf.origin, JANUARY)

    assert _archive(shelf.database, there).standing(shelf.origin).exports == []
    assert _archive(shelf.database, there).export(shelf.origin, JANUARY).rows == 5000


@pytest.mark.usefixtures("server")  # which has credentials with it
def test_a_store_that_refuses_is_said_to(shelf: Shelf) -> None:
    """With where the rights are that it wants."""
    with _refusing() as endpoint, pytest.raises(UnusablePlaceError, match=r"s3://archive/months refuses .*archive.md"):
        _archive(shelf.database, Bucket(endpoint, "archive")).export(shelf.origin, JANUARY)


@pytest.mark.slow("waits for a store that is away")
def test_a_store_that_is_away_is_told_of_before_anything_is_sealed(shelf: Shelf, there: Bucket) -> None:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    files = _archive(shelf.database, Bucket(f"http://127.0.0.1:{port}", there.name))

    with pytest.raises(PlaceAwayError, match=r"call again when the place answers\. Nothing was changed"):
        files.export(shelf.origin, JANUARY)

    assert files.standing(shelf.origin).exports == []


def test_credentials_that_are_missing_are_named(
    shelf: Shelf, there: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sealed."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    files = _archive(shelf.database, there)

    with pytest.raises(UnusablePlaceError, match=r"no credentials for s3://archive/months, .*set AWS_ACCESS_KEY_ID"):
        files.export(shelf.origin, JANUARY)

    assert files.standing(shelf.origin).exports == []


@contextmanager
def _refusing() -> Iterator[str]:
    """A server that answers 403 to all."""

    class Refusal(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _refuse  # noqa: N815 -- as the base class has them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def broken_off() -> Check:
    """Ends an upload when parts of it were sent."""
    asked = count(1)

    def check() -> None:
        if next(asked) == 19:
            raise StoppedError

    return check


def test_an_upload_that_breaks_off_leaves_no_object(there: Bucket) -> None:
    """What asks whether to go on has ended it."""
    store = Place(f"s3://{there.name}/months", endpoint=there.endpoint).open()
    with store.draft("sources") as draft:
        draft.file.write(os.urandom(20 << 20))
        with pytest.raises(StoppedError):
            draft.keep("sources/1.parquet", broken_off())
        assert there.objects() == []
        draft.keep("sources/1.parquet", lambda: None)

    assert there.objects() == ["months/sources/1.parquet"]
    with store.reading("sources/1.parquet") as file:
        assert len(file.read()) == 20 << 20


def test_an_upload_that_can_not_even_be_ended_leaves_no_object(there: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is away by then; and whoever has ended it is told as before."""
    store = Place(f"s3://{there.name}/months", endpoint=there.endpoint).open()

    def away(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr("s3fs.core.S3FileSystem.abort_mpu", away)
    with store.draft("sources") as draft:
        draft.file.write(os.urandom(20 << 20))
        with pytest.raises(StoppedError):
            draft.keep("sources/1.parquet", broken_off())
    gc.collect()

    assert there.objects() == []
