"""A file that someone else wrote: its text, its JSON, and the line of a part of it."""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from json.decoder import JSONObject  # type: ignore[attr-defined]  # not in the stubs
from json.scanner import py_make_scanner  # type: ignore[attr-defined]  # not in the stubs
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.formats.result import FormatError, Result

_LARGEST_BYTES = 2 * 2**30


@attrs.frozen
class Source:
    """The name and the text of a file to be imported."""

    name: str
    text: str

    def json(self) -> Any:
        """Returns the document of the whole file.

        Raises:
          FormatError: it is no JSON; the message tells the line.
        """
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            raise FormatError(
                f"{self.name}:{error.lineno}: no JSON ({error.msg}, column {error.colno})"
            ) from error
        except (RecursionError, ValueError) as error:
            raise FormatError(f"{self.name}: no JSON that can be read ({error})") from error

    def line(self, offset: int) -> int:
        """Returns the line of a character, from 1 on."""
        return self.text.count("\n", 0, offset) + 1

    def at(self, *path: str | int) -> str:
        """Returns `file:line` of the innermost object at a path of names and positions."""
        document, starts = self._located
        known = [starts[id(item)] for item in _along(document, path) if id(item) in starts]
        return f"{self.name}:{self.line(max(known, default=0))}"

    @functools.cached_property
    def _located(self) -> tuple[Any, dict[int, int]]:
        """The document, and where its objects begin; slow, for files with a fault only."""
        starts: dict[int, int] = {}
        decoder: Any = json.JSONDecoder()

        def parse_object(state: tuple[str, int], *arguments: Any) -> Any:
            value, end = JSONObject(state, *arguments)
            starts[id(value)] = state[1] - 1
            return value, end

        decoder.parse_object = parse_object
        decoder.scan_once = py_make_scanner(decoder)
        try:
            return decoder.decode(self.text), starts
        except (ValueError, RecursionError):
            return None, {}


@attrs.frozen
class Place:
    """A part of a file; as text `file:line`, which is worked out only when it is wanted."""

    source: Source
    path: tuple[str | int, ...]
    known_line: int | None = None

    def __str__(self) -> str:
        if self.known_line is not None:
            return f"{self.source.name}:{self.known_line}"
        return self.source.at(*self.path)


@attrs.frozen
class Imported:
    """What a file gave.

    Attributes:
      results: in the order of the file.
      refused: a sentence with file and line for each part that could not be read.
      skipped: how many configurations the file says were not run.
    """

    results: tuple[Result, ...]
    refused: tuple[str, ...] = ()
    skipped: int = 0


Importer = Callable[[Source], Imported]


def read_source(path: Path) -> Source:
    """Returns the file as text.

    Raises:
      FormatError: it can not be read, or is no UTF-8; the message tells the line.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise FormatError(f"{path}: larger than {_LARGEST_BYTES / 2**30:g} GiB")
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from error
    try:
        return Source(str(path), content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}:{line}: no text in UTF-8 ({error.reason})") from error


def field(holder: Any, name: str, kind: type, *, optional: bool = False) -> Any:
    """Returns a field of a foreign object.

    Raises:
      FormatError: it is not there, or of another type.
    """
    if not isinstance(holder, dict):
        raise FormatError(f"{ascii(holder)[:60]} is no object")
    value = holder.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        have = "is missing" if name not in holder else f"is {ascii(value)[:60]}"
        raise FormatError(f"field {name!r} {have}")
    return value


def _along(document: Any, path: Sequence[str | int]) -> Iterator[Any]:
    yield document
    for step in path:
        try:
            document = document[step]
        except (LookupError, TypeError):
            return
        yield document
