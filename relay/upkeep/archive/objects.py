"""Archives wherever fsspec leads, such as a bucket of anything that speaks S3."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

from relay.errors import RelayError
from relay.kernel.failure import told
from relay.upkeep.archive.store import CHUNK, Check, UnusablePlaceError, in_words

# So much of a file is in memory while it is sent or read; S3 takes no part below 5 MB but the last.
_BLOCK = 8 << 20
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}


class Objects:
    """A store shows an object as a whole or not at all."""

    def __init__(self, system: Any, root: str, shown: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self.shown = shown

    def require(self) -> None:
        """Of a store nothing is known before it is asked for an object."""

    def require_writable(self, folder: str) -> None:
        """Of S3, begin an upload and end it, which takes the rights that a file takes; of others, ask for the place."""
        with _of_a_store(f"a file of {folder}", self.shown):
            try:
                if hasattr(self._system, "call_s3"):
                    self._begin_and_abort(f"{self._root}/{folder}/.tried")
                else:
                    self._ask()
            except (FileNotFoundError, PermissionError) as error:
                raise UnusablePlaceError(
                    f"{self.shown} refuses a file of {folder}: {told(error)}; docs/archive.md lists the rights "
                    "that are needed there. Nothing was changed"
                ) from error

    def _begin_and_abort(self, path: str) -> None:
        bucket, key, _ = self._system.split_path(path)
        begun = self._system.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
        self._system.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=begun["UploadId"])

    def _ask(self) -> None:
        with suppress(FileNotFoundError):  # where folders are but parts of names
            self._system.info(self._root)

    @contextmanager
    def draft(self, folder: str) -> Iterator["_Upload"]:
        """A file to write, in the folder for temporary ones; the system removes it with the process."""
        with in_words(f"a file of {folder}", gettempdir()), TemporaryFile() as file:
            yield _Upload(self._system, self._root, self.shown, file)

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """An object, from its beginning."""
        with _of_a_store(name, self.shown):
            self._system.invalidate_cache()
            with self._system.open(f"{self._root}/{name}", "rb", block_size=_BLOCK) as file:
                yield file


class _Upload:
    """One that is being written."""

    def __init__(self, system: Any, root: str, shown: str, file: BinaryIO) -> None:
        self.file = file
        self._system = system
        self._root = root
        self._shown = shown

    def keep(self, name: str, check: Check) -> None:
        """Send it."""
        check()
        self.file.flush()
        self.file.seek(0)
        with _of_a_store(name, self._shown):
            sent = self._system.open(f"{self._root}/{name}", "wb", block_size=_BLOCK)
            try:
                while chunk := self.file.read(CHUNK):
                    check()
                    sent.write(chunk)
            except BaseException:  # whatever ends it: to close it would be to have a half under the name
                # First: a store that is away takes no end either, and what is open is closed when it is forgotten.
                sent.closed = True
                with suppress(Exception):
                    sent.discard()
                raise
            sent.close()


@contextmanager
def _of_a_store(what: str, place: str) -> Iterator[None]:
    """The same sentences for what the libraries of stores raise, which is no OSError always."""
    with in_words(what, place):
        try:
            yield
        except (OSError, RelayError):
            raise
        except Exception as error:  # those of these libraries are of no one kind
            if type(error).__name__ in _NO_CREDENTIALS:
                raise UnusablePlaceError(
                    f"there are no credentials for {place}, which ARCHIVE_BUCKET names: {told(error)}; set "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine a role"
                ) from error
            if type(error).__module__.partition(".")[0] not in {"botocore", "aiobotocore", "aiohttp", "s3fs", "fsspec"}:
                raise
            raise OSError(told(error)) from error
