"""Remote stores: HTTPS (read-only), and Google Cloud Storage through its client library.

Reads over HTTPS have range requests, restricted redirects and limited waits. Google Cloud Storage
is read by range over plain HTTP, too.
"""

import base64
import contextlib
import io
import ipaddress
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry, Timeout

from openxla.benchmark.artifacts.stores import (
    AccessDeniedError,
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
from openxla.benchmark.installation import install_command

Sign = Callable[[str, dict[str, str]], None]
"""Adds credentials for a URL to the headers of a request."""

_TRANSIENT = (408, 429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_MOST_CONNECTIONS = 32
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
# Larger files are uploaded in pieces, and only a failed piece is sent again. The library requires
# multiples of 256 KiB.
_PIECE_BYTES = 8 << 20
# Limit on the library's own retries; hours of retries against a failing service are useless.
_RETRY_S = 120.0
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class HttpReader:
    """Sends GET requests. Connections are kept open and shared by all threads."""

    def __init__(self, stores: Stores, sign: Sign | None = None) -> None:
        self._stores, self._sign = stores, sign
        self._pools: dict[str | None, urllib3.PoolManager] = {}

    def open(self, url: str, *, offset: int = 0, name: str = "") -> Body:
        """Returns the content of a URL from an offset; from 0 if the server ignores ranges.

        Args:
          url: URL to read.
          offset: where to begin.
          name: name for messages; the URL if empty.

        Raises:
          StoreError: the URL cannot be read.
        """
        name = name or url
        # Any other coding would change the bytes that the digest covers.
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        response = self._request(url, headers, name)
        if response.status == 416:
            response.close()
            if not offset:
                raise error_of(416, name, response.headers)
            # The object is shorter than our partial download, so that belongs to other content.
            return self.open(url, name=name)
        start, total = 0, _length(response.headers)
        if response.status == 206:
            part = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if not part or int(part[1]) != offset:
                response.close()
                raise TransientError(f"{name}: the server sent a different range than requested")
            start, total = offset, None if part[3] == "*" else int(part[3])

        def read(most: int) -> bytes:
            try:
                # `read` would wait for the whole piece, however slowly it arrives.
                return response.read1(most)
            except (HTTPError, OSError) as error:
                raise TransientError(f"{name}: the connection was lost: {error}") from error

        def close() -> None:
            # A connection with unread data cannot serve another request.
            if response.length_remaining:
                response.close()
            response.release_conn()

        return Body(offset=start, total_bytes=total, read=read, close=close)

    def _request(self, url: str, headers: Mapping[str, str], name: str) -> urllib3.BaseHTTPResponse:
        """Follows redirects; returns a response with status 200, 206 or 416."""
        asked, may_be_local = url, _is_loopback(url)
        for _ in range(_MOST_REDIRECTS + 1):
            _check_url(asked, may_be_local=may_be_local)
            sent = dict(headers)
            if self._sign is not None and urlsplit(asked).netloc == urlsplit(url).netloc:
                self._sign(asked, sent)
            connect_s, read_s = self._stores.timeouts()
            try:
                response = self._pool(asked).request(
                    "GET",
                    asked,
                    headers=sent,
                    redirect=False,
                    retries=False,
                    preload_content=False,
                    decode_content=False,
                    timeout=Timeout(connect=connect_s, read=read_s),
                )
            except (HTTPError, OSError) as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise StoreError(
                        f"{name}: the server's certificate is not trusted ({error}); set "
                        "SSL_CERT_FILE to trust other authorities"
                    ) from error
                raise TransientError(f"{name}: no response: {error}") from error
            if response.status in (200, 206, 416):
                return response
            location = response.headers.get("Location")
            response.close()
            if response.status not in _REDIRECTS or not location:
                raise error_of(response.status, name, response.headers)
            asked = urljoin(asked, location)
        raise StoreError(f"{name}: redirected more than {_MOST_REDIRECTS} times")

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        direct = _is_loopback(url) or proxy_bypass(parts.netloc)
        proxy = None if direct else getproxies().get(parts.scheme)
        if proxy not in self._pools:
            self._pools[proxy] = (
                urllib3.ProxyManager(proxy, maxsize=_MOST_CONNECTIONS)
                if proxy
                else urllib3.PoolManager(maxsize=_MOST_CONNECTIONS)
            )
        return self._pools[proxy]


class HttpsStore(Store):
    """Objects below a URL; read-only."""

    def __init__(self, url: str, reader: HttpReader) -> None:
        _check_url(url)
        self.url = url.rstrip("/")
        self._reader = reader

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Raises StoreError: HTTP has no listing."""
        raise StoreError(
            f"{self.url} cannot be listed over HTTPS; read its manifest, or use the gs:// URL"
        )

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens an object at an offset."""
        return self._reader.open(self.url_of(name), offset=offset)

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Raises StoreError: the store is read-only."""
        self.check(name, file)

    def check(self, name: str, file: LocalFile) -> None:
        """Raises StoreError: HTTP servers report no digests."""
        raise StoreError(
            f"{self.url_of(name)}: HTTPS is read-only; publish to gs://bucket/folder or to a "
            "directory"
        )

    def url_of(self, name: str) -> str:
        """Returns the URL of an object."""
        return f"{self.url}/{quote(name)}"


def _is_loopback(url: str) -> bool:
    """Returns whether a URL is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_url(url: str, *, may_be_local: bool = True) -> None:
    """Raises StoreError unless a URL is `https://`, or `http://` on this machine.

    Args:
      url: URL to read.
      may_be_local: False after a redirect by a remote server, which must not reach local servers.
    """
    scheme, local = urlsplit(url).scheme, _is_loopback(url)
    if local and not may_be_local:
        raise StoreError(f"{url}: refused to follow a remote server's redirect to localhost")
    if scheme != "https" and not (scheme == "http" and local):
        raise StoreError(f"{url}: use https://; http:// is allowed only for localhost")


def error_of(status: int, url: str, headers: Mapping[str, str]) -> StoreError:
    """Returns the error for a status code."""
    if status in (404, 410):
        return NotFoundError(f"{url}: no such object (HTTP {status}); check the URL")
    if status in (401, 403):
        return AccessDeniedError(
            f"{url}: access denied (HTTP {status}); check the URL and your credentials (for gs://, "
            "run `gcloud auth application-default login`)"
        )
    if status == 412:
        return AlreadyExistsError(f"{url} already exists (HTTP 412); artifacts are written once")
    if status not in _TRANSIENT:
        return StoreError(f"{url}: the server returned HTTP {status}")
    later = None
    with contextlib.suppress(InvalidHeader):
        value = headers.get("Retry-After")  # seconds, or a date
        later = None if value is None else Retry().parse_retry_after(value)
    return TransientError(f"{url}: the server returned HTTP {status}", retry_after_s=later)


def _length(headers: Mapping[str, str]) -> int | None:
    value = headers.get("Content-Length", "")
    return int(value) if value.isascii() and value.isdigit() else None


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
            sizes = {blob.name.removeprefix(above): int(blob.size) for blob in blobs}
        return dict(sorted(sizes.items()))

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
        md5 = base64.b64decode(facts.md5_hash or "")
        if int(facts.size) != file.size_bytes or md5 != file.md5:
            raise DamagedError(
                f"{url} has {facts.size} bytes and MD5 {md5.hex()}, but {file.path} has "
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
            raise TransientError(f"{url}: the connection was lost{again}: {error}") from error
        response = error.response
        status, headers = (0, {}) if response is None else (response.status_code, response.headers)
        reason = error_of(status, url, headers)
        if not isinstance(reason, AlreadyExistsError | NotFoundError):
            again += f" ({error})"
        raise type(reason)(f"{reason}{again}") from error


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
