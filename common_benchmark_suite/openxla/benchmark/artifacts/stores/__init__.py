"""Where artifacts are published: a local directory, HTTPS (read only), Google Cloud Storage."""

import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from openxla.benchmark.artifacts.stores.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    DamagedError,
    DeadlineError,
    NoSpaceError,
    NotFoundError,
    StoreError,
    TransientError,
)
from openxla.benchmark.artifacts.stores.interface import (
    Body,
    Deadline,
    LocalFile,
    ObjectInfo,
    Store,
    StoreOptions,
)
from openxla.benchmark.artifacts.stores.local import LocalStore

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "Body",
    "DamagedError",
    "Deadline",
    "DeadlineError",
    "LocalFile",
    "LocalStore",
    "NoSpaceError",
    "NotFoundError",
    "ObjectInfo",
    "Store",
    "StoreError",
    "StoreOptions",
    "Stores",
    "TransientError",
]


class Stores:
    """Opens stores by URL; those of one scheme share their connections and credentials."""

    def __init__(self, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self._lock = threading.Lock()
        self._shared: dict[str, object] = {}

    def at(self, url: str) -> Store:
        """Returns the store at a URL: `https://`, `gs://`, `file://`, or the path of a directory.

        Raises:
          StoreError: there is no store for such a URL, or a library that it needs is missing.
        """
        parts = urlsplit(url)
        if parts.username or parts.password:
            host = url.rpartition("@")[2]
            raise StoreError(
                f"a URL at {host} holds a user name or a password, which would end up in logs and "
                "lock files; leave them out"
            )
        if parts.query or parts.fragment:
            raise StoreError(f"{url}: the URL of a store has no query and no fragment")
        if parts.scheme in ("http", "https"):
            return self._https(url)
        if parts.scheme == "gs" and not parts.netloc:
            raise StoreError(f"{url} names no bucket; write gs://bucket/folder")
        if parts.scheme == "gs":
            return self._gcs(url)
        if parts.scheme == "file" and not parts.netloc:
            return LocalStore(Path(unquote(parts.path)))
        if parts.scheme:
            raise StoreError(
                f"{url}: no store for {parts.scheme}://; known are https://, gs://, file:// and "
                "the path of a directory"
            )
        return LocalStore(Path(url))

    def _https(self, url: str) -> Store:
        # Imported late, as is the next one: who fetches nothing pays for no HTTP library.
        from openxla.benchmark.artifacts.stores.http_reading import HttpReader
        from openxla.benchmark.artifacts.stores.https import HttpsStore

        with self._lock:
            reader = self._shared.setdefault("https", HttpReader(self.options))
        assert isinstance(reader, HttpReader)
        return HttpsStore(url, reader)

    def _gcs(self, url: str) -> Store:
        from openxla.benchmark.artifacts.stores.gcs import GcsClient, GcsStore

        with self._lock:
            if "gs" not in self._shared:
                self._shared["gs"] = GcsClient(self.options)
            client = self._shared["gs"]
        assert isinstance(client, GcsClient)
        return GcsStore(url, client)
