"""Google Cloud Storage through its client library; reads go by range over plain HTTP."""

import base64
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from openxla.benchmark.artifacts.stores import (
    Advance,
    AlreadyExistsError,
    Body,
    DamagedError,
    LocalFile,
    NotFoundError,
    Store,
    StoreError,
    Stores,
    TransientError,
)
from openxla.benchmark.artifacts.stores.https import HttpReader, error_of
from openxla.benchmark.extras import install_command

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
# Larger files are uploaded in pieces, and only a failed piece is sent again. The library requires
# multiples of 256 KiB.
_PIECE_BYTES = 8 << 20
# Limit on the library's own retries; hours of retries against a failing service are useless.
_RETRY_S = 120.0
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GcsClient:
    """A client of the library with the application's default credentials, else anonymous.

    If `STORAGE_EMULATOR_HOST` is set (including its scheme), requests go there, without
    credentials.
    """

    def __init__(self, stores: Stores) -> None:
        try:
            with warnings.catch_warnings():
                # The warning suggests a package that only the gRPC transport needs.
                warnings.simplefilter("ignore", ImportWarning)
                from google.auth.transport.requests import Request
                from google.cloud import storage
        except ImportError as error:
            raise StoreError(
                "gs:// URLs need google-cloud-storage, which is not installed; run "
                f"`{install_command('gcs')}`, or read the same objects from "
                "https://storage.googleapis.com/<bucket>/<folder>"
            ) from error
        self._stores = stores
        credentials = _credentials(anonymous=stores.options.anonymous)
        # The library requires a project name; requests for objects do not use it.
        self.library = storage.Client(project="none", credentials=credentials)
        request = Request()

        def sign(url: str, headers: dict[str, str]) -> None:
            credentials.before_request(request, "GET", url, headers)

        self.reader = HttpReader(stores, sign)

    def patience(self) -> dict[str, Any]:
        """Returns timeouts, and the library's retry policy for idempotent requests."""
        from google.cloud.storage.retry import DEFAULT_RETRY

        seconds = self._stores.deadline.remaining_s(_RETRY_S)
        return {"timeout": self._stores.timeouts(), "retry": DEFAULT_RETRY.with_timeout(seconds)}


class GcsStore(Store):
    """Objects below a folder of a bucket."""

    def __init__(self, url: str, client: GcsClient) -> None:
        parts = urlsplit(url)
        self._folder = parts.path.strip("/")
        self.url = "/".join(part for part in (f"gs://{parts.netloc}", self._folder) if part)
        self._bucket_name = parts.netloc
        self._client = client
        self._bucket = client.library.bucket(parts.netloc)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns the objects of the folder."""
        above = f"{self._folder}/" if self._folder else ""
        with _translated(self.url):
            blobs = self._client.library.list_blobs(
                self._bucket, prefix=above + prefix, **self._client.patience()
            )
            found = {blob.name.removeprefix(above): int(blob.size) for blob in blobs}
        return dict(sorted(found.items()))

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
        """Uploads a file, on condition that the object does not exist."""
        blob = self._bucket.blob(self._key(name))
        blob.metadata = {"sha256": file.sha256}
        blob.chunk_size = _PIECE_BYTES if file.size_bytes > _PIECE_BYTES else None
        with _translated(self.url_of(name)), _Counted(file.path, advance) as stream:
            blob.upload_from_file(
                stream,
                size=file.size_bytes,
                content_type="application/octet-stream",
                if_generation_match=0,
                checksum="auto",
                **self._client.patience(),
            )

    def check(self, name: str, file: LocalFile) -> None:
        """Compares the size and the MD5 that the service computed from the received data."""
        url = self.url_of(name)
        with _translated(url):
            facts = self._bucket.get_blob(self._key(name), **self._client.patience())
        if facts is None:
            raise NotFoundError(f"{url}: no such object; check the URL")
        found = base64.b64decode(facts.md5_hash or "")
        if int(facts.size) != file.size_bytes or found != file.md5:
            raise DamagedError(
                f"{url} has {facts.size} bytes and MD5 {found.hex()}, but {file.path} has "
                f"{file.size_bytes} bytes and MD5 {file.md5.hex()}"
            )

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Translates the library's exceptions into store errors that name the object."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import InvalidResponse
    from requests import RequestException

    try:
        yield
    except (
        GoogleAPICallError,
        GoogleAuthError,
        InvalidResponse,
        RequestException,
        RetryError,
    ) as caught:
        error, again = caught, ""
        if isinstance(caught, RetryError):
            # A timeout error alone does not give the reason; the last retried error does.
            error, again = caught.cause or caught, " and the retries timed out"
        if isinstance(error, GoogleAuthError):
            raise StoreError(
                f"{url}: no valid credentials ({error}); run "
                "`gcloud auth application-default login`"
            ) from error
        if isinstance(error, RetryError) or not isinstance(
            error, GoogleAPICallError | InvalidResponse
        ):
            raise TransientError(f"{url}: the connection broke{again}: {error}") from error
        response = error.response
        status, headers = (0, {}) if response is None else (response.status_code, response.headers)
        found = error_of(status, url, headers)
        if not isinstance(found, AlreadyExistsError | NotFoundError):
            again += f" ({error})"
        raise type(found)(f"{found}{again}") from error


class _Counted(io.FileIO):
    """A file that reports its furthest read position as progress."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path)
        self._advance = advance
        self._furthest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(-1 if size is None else size)
        # Sending a piece again is not progress.
        if (position := self.tell()) > self._furthest:
            self._advance(position - self._furthest)
            self._furthest = position
        return piece


def _credentials(*, anonymous: bool) -> Any:
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError

    if anonymous or os.environ.get(EMULATOR_VARIABLE):
        return AnonymousCredentials()
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except DefaultCredentialsError:
        # Public objects need no credentials. For others the server answers 401 or 403, and the
        # message gives the remedy.
        return AnonymousCredentials()
    return credentials
