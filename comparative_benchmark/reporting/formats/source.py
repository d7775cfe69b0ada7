"""A foreign file: its JSON, validated by type, with line numbers for messages."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import msgspec
from msgspec import Raw

from comparative_benchmark.reporting.history.portable import Contents, FormatError

T = TypeVar("T")

_LARGEST_BYTES = 2 * 2**30
_LARGEST = 1e300
# A string, or the constants that some programs write for values that JSON lacks.
_NOT_A_NUMBER = re.compile(rb'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)')
_BYTE = re.compile(r"\(byte (\d+)\)")


@attrs.frozen
class Part:
    """A part of a file; its text is `file:line`."""

    source: "Source"
    content: bytes
    offset: int

    def __str__(self) -> str:
        line = self.source.content.count(b"\n", 0, self.offset) + 1
        return f"{self.source.name}:{line}"

    def decoded(self, kind: type[T]) -> T:
        """Returns the part as an object of a class.

        Raises:
          FormatError: it does not fit; the message names the field, but not the line.
        """
        try:
            return msgspec.json.decode(self.content, type=kind)
        except RecursionError as error:
            raise FormatError("nested too deeply") from error
        except msgspec.DecodeError as error:
            raise FormatError(str(error)) from error

    def items(self) -> Iterator["Part"]:
        """Yields the parts of a list, or the values of an object.

        Raises:
          FormatError: it is neither a list nor an object.
        """
        items: Any = self.decoded(list[Raw] | dict[str, Raw])  # type: ignore[arg-type]  # a union
        offset = self.offset
        for item in items.values() if isinstance(items, dict) else items:
            part = self.source.part(item, offset)
            yield part
            offset = part.offset + len(part.content)


def _with_null(content: bytes) -> bytes:
    if b"NaN" not in content and b"Infinity" not in content:
        return content
    return _NOT_A_NUMBER.sub(lambda found: found[1] or b"null", content)


@attrs.frozen
class Source:
    """The name and the content of a file to be imported."""

    name: str
    content: bytes = attrs.field(converter=_with_null)

    def decoded(self, kind: type[T], what: str = "") -> T:
        """Returns the whole document as an object of a class.

        Raises:
          FormatError: it is not JSON, or not `what`; the message gives the line.
        """
        try:
            return msgspec.json.decode(self.content, type=kind)
        except RecursionError as error:
            raise FormatError(f"{self.name}: not JSON: nested too deeply") from error
        except msgspec.ValidationError as error:
            raise FormatError(f"{self.name}:1: not {what}: {error}") from error
        except msgspec.DecodeError as error:
            byte = _BYTE.search(str(error))
            place = Part(self, b"", int(byte[1]) if byte else len(self.content))
            raise FormatError(f"{place}: not JSON ({error})") from error

    def part(self, raw: Raw, start: int = 0) -> Part:
        """Returns a part that was decoded as `Raw` and begins at `start` or later."""
        content = bytes(raw)
        return Part(self, content, max(self.content.find(content, start), 0))


Importer: TypeAlias = Callable[[Source], Contents]


def read_source(path: Path) -> Source:
    """Returns the content of a file.

    Raises:
      FormatError: the file cannot be read, or is not UTF-8; the message gives the line.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise FormatError(f"{path}: larger than {_LARGEST_BYTES / 2**30:g} GiB")
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from error
    try:
        return Source(str(path), content.decode("utf-8-sig").encode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}:{line}: not UTF-8 text ({error.reason})") from error


def numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    """Returns the fields that are finite numbers."""
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, (int, float)) and type(value) is not bool and abs(value) <= _LARGEST
    }


def printable(sentence: str) -> str:
    """Returns a sentence with quotes of a foreign file, without terminal control characters."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in sentence
    )
