"""Public reads over HTTPS."""

from collections.abc import Iterator
from urllib.parse import quote

from openxla.benchmark.artifacts.stores.errors import StoreError
from openxla.benchmark.artifacts.stores.http_reading import HttpReader, check_url
from openxla.benchmark.artifacts.stores.interface import (
    Advance,
    Body,
    LocalFile,
    ObjectInfo,
    Store,
)


class HttpsStore(Store):
    """Objects below a URL; read only."""

    def __init__(self, url: str, reader: HttpReader) -> None:
        check_url(url)
        self.url = url.rstrip("/")
        self._reader = reader

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Raises StoreError: HTTP has no listing."""
        raise StoreError(
            f"{self.url} can not be listed over HTTPS; read its manifest, or use the gs:// URL"
        )

    def stat(self, name: str) -> ObjectInfo:
        """Returns the size that the server announces."""
        return ObjectInfo(name=name, size_bytes=self._reader.size_of(self.url_of(name)))

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens an object at an offset."""
        return self._reader.open(self.url_of(name), offset=offset)

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Raises StoreError: it is read only."""
        raise self._read_only(name)

    def check(self, name: str, file: LocalFile) -> None:
        """Raises StoreError: the server does not tell digests."""
        raise self._read_only(name)

    def url_of(self, name: str) -> str:
        """Returns the URL of an object."""
        return f"{self.url}/{quote(name)}"

    def _read_only(self, name: str) -> StoreError:
        return StoreError(
            f"{self.url_of(name)}: HTTPS is read only; publish to gs://bucket/folder or to a "
            "directory"
        )
