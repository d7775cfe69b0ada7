"""Google Cloud Storage through its client library; reads go by range over plain HTTP."""

import base64
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import quote, urlsplit

from openxla.benchmark.artifacts.stores.errors import (
    AlreadyExistsError,
    DamagedError,
    NotFoundError,
    StoreError,
    TransientError,
)
from openxla.benchmark.artifacts.stores.http_reading import HttpReader, error_of
from openxla.benchmark.artifacts.stores.interface import (
    Advance,
    Body,
    LocalFile,
    ObjectInfo,
    Store,
    StoreOptions,
)

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
# What is larger goes up in pieces, of which a broken one is sent again; the library wants
# multiples of 256 KiB.
_PIECE_BYTES = 8 << 20
# As long as the library tries by itself; hours of a failing service help nobody.
_RETRY_S = 120.0
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GcsClient:
    """A client of the library with its credentials: the application's default, else anonymous.

    With `STORAGE_EMULATOR_HOST` set (with its scheme), requests go there, without credentials.
    """

    def __init__(self, options: StoreOptions) -> None:
        try:
            with warnings.catch_warnings():
                # It advises to install what only its gRPC transport needs.
                warnings.simplefilter("ignore", ImportWarning)
                from google.auth.transport.requests import Request
                from google.cloud import storage
        except ImportError as error:
            raise StoreError(
                "gs:// URLs need google-cloud-storage, which is not installed here; "
                "pip install 'common-benchmark-suite[gcs]', or read the same objects as "
                "https://storage.googleapis.com/<bucket>/<folder>"
            ) from error
        self.options = options
        credentials = _credentials(anonymous=options.anonymous)
        # A name is due where there is no project; objects need none.
        self.library = storage.Client(project="none", credentials=credentials)
        request = Request()

        def sign(url: str, headers: dict[str, str]) -> None:
            credentials.before_request(request, "GET", url, headers)

        self.reader = HttpReader(options, sign)

    def retry(self) -> Any:
        """Returns the library's own policy for requests that may be repeated."""
        from google.cloud.storage.retry import DEFAULT_RETRY

        left = self.options.deadline.remaining_s()
        return DEFAULT_RETRY.with_timeout(max(0.001, min(_RETRY_S, left)))


class GcsStore(Store):
    """Objects below a folder of a bucket."""

    def __init__(self, url: str, client: GcsClient) -> None:
        parts = urlsplit(url)
        self._folder = parts.path.strip("/")
        self.url = "/".join(part for part in (f"gs://{parts.netloc}", self._folder) if part)
        self._bucket_name = parts.netloc
        self._client = client
        self._bucket = client.library.bucket(parts.netloc)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields the objects of the folder."""
        above = f"{self._folder}/" if self._folder else ""
        with _Translated(self.url):
            blobs = self._client.library.list_blobs(
                self._bucket,
                prefix=above + prefix,
                timeout=self._timeout(),
                retry=self._client.retry(),
            )
            found = {blob.name.removeprefix(above): int(blob.size) for blob in blobs}
        for name in sorted(found):
            yield ObjectInfo(name=name, size_bytes=found[name])

    def stat(self, name: str) -> ObjectInfo:
        """Returns the size of an object."""
        return ObjectInfo(name=name, size_bytes=int(self._facts(name).size))

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens an object at an offset."""
        endpoint = self._client.library.api_endpoint
        path = quote(self._key(name), safe="")
        return self._client.reader.open(
            f"{endpoint}/download/storage/v1/b/{self._bucket_name}/o/{path}?alt=media",
            offset=offset,
            name=self.url_of(name),
        )

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Uploads a file under the condition that the object does not exist."""
        blob = self._bucket.blob(self._key(name))
        blob.metadata = {"sha256": file.sha256}
        blob.chunk_size = _PIECE_BYTES if file.size_bytes > _PIECE_BYTES else None
        with _Translated(self.url_of(name)), _Counted(file.path, advance) as stream:
            blob.upload_from_file(
                stream,
                size=file.size_bytes,
                content_type="application/octet-stream",
                if_generation_match=0,
                checksum="auto",
                timeout=self._timeout(),
                retry=self._client.retry(),
            )

    def check(self, name: str, file: LocalFile) -> None:
        """Compares size and the MD5 that the service has computed of what it received."""
        facts = self._facts(name)
        found = base64.b64decode(facts.md5_hash or "")
        if int(facts.size) != file.size_bytes or found != file.md5:
            raise DamagedError(
                f"{self.url_of(name)} has {facts.size} bytes and MD5 {found.hex()}, {file.path} "
                f"has {file.size_bytes} bytes and MD5 {file.md5.hex()}"
            )

    def _facts(self, name: str) -> Any:
        with _Translated(self.url_of(name)):
            blob = self._bucket.get_blob(
                self._key(name), timeout=self._timeout(), retry=self._client.retry()
            )
        if blob is None:
            raise NotFoundError(f"{self.url_of(name)}: there is no such object; check the URL")
        return blob

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _timeout(self) -> tuple[float, float]:
        return (self._client.options.connect_s(), self._client.options.read_s())


class _Translated:
    """Turns what the library raises into errors of stores, with the name of the object."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from google.api_core.exceptions import GoogleAPICallError, RetryError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.storage.exceptions import InvalidResponse
        from requests import RequestException

        again = ""
        if isinstance(error, RetryError):
            # It says only that time is over; the reason is what it gave up on.
            error, again = error.cause or error, "; tried again as long as there was time"
        if isinstance(error, GoogleAPICallError | InvalidResponse):
            response = error.response
            headers = {} if response is None else response.headers
            code = 0 if response is None else response.status_code
            found = error_of(code, self._url, headers)
            if not isinstance(found, AlreadyExistsError | NotFoundError):
                again += f" ({error})"
            raise type(found)(f"{found}{again}") from error
        if isinstance(error, GoogleAuthError):
            raise StoreError(
                f"{self._url}: no valid credentials ({error}); run "
                "`gcloud auth application-default login`"
            ) from error
        if isinstance(error, RequestException | RetryError):
            raise TransientError(f"{self._url}: the connection broke{again}: {error}") from error


class _Counted:
    """A file that reports how far it has been read for the first time."""

    def __init__(self, path: Path, advance: Advance) -> None:
        self._path, self._advance = path, advance
        self._furthest = 0
        self._file: BinaryIO

    def __enter__(self) -> Self:
        self._file = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        # A piece that is sent again is no progress.
        if (position := self._file.tell()) > self._furthest:
            self._advance(position - self._furthest)
            self._furthest = position
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _credentials(*, anonymous: bool) -> Any:
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError

    if anonymous or os.environ.get(EMULATOR_VARIABLE):
        return AnonymousCredentials()
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except DefaultCredentialsError:
        # Public objects need none; others answer 401 or 403, whose message says what to do.
        return AnonymousCredentials()
    return credentials
