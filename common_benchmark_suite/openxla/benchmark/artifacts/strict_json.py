"""JSON files of other people, read strictly: nothing is guessed, coerced or left out."""

import datetime
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import cattrs

from openxla.benchmark.artifacts.stores.errors import StoreError

T = TypeVar("T")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_NAME_BYTES = 1024
_MOST_PART_BYTES = 240


class MalformedError(StoreError):
    """A manifest or lock file is not what it should be; the message names file and entry."""


def parse(text: bytes, kind: type[T], *, where: str, version_key: str, version: int) -> T:
    """Returns the record in a JSON document.

    Args:
      text: the document.
      kind: an attrs class; a key that it does not know is an error, as is a missing one.
      where: what messages call the document.
      version_key: the key of the schema's version.
      version: the only one that is understood.

    Raises:
      MalformedError: it is something else.
    """
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{where} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedError(f"{where} is JSON of another kind")
    found = document.get(version_key)
    if type(found) is not int or found != version:
        raise MalformedError(
            f"{where} has {version_key} {found!r}; this program understands {version}. A newer "
            "release of the suite may read it"
        )
    try:
        return _CONVERTER.structure(document, kind)
    except Exception as error:
        messages = cattrs.transform_error(error, path="", format_exception=_words)
        raise MalformedError(f"{where}: {'; '.join(messages[:5])}") from error


def to_bytes(record: Any) -> bytes:
    """Returns a record as JSON, without what is None: the same record gives the same bytes."""
    document = _without_none(_CONVERTER.unstructure(record))
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


def write_atomically(path: Path, text: bytes) -> None:
    """Writes beside a file, syncs, renames: a reader sees the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def is_sha256(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
    """Validates a digest."""
    if not _SHA256.fullmatch(value):
        _fail(instance, attribute, "is no sha256 (64 digits 0-9 a-f)", value)


def is_size(instance: Any, attribute: "attrs.Attribute[Any]", value: int) -> None:
    """Validates a number of bytes."""
    if value < 0:
        _fail(instance, attribute, "is negative", value)


def is_date(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
    """Validates an ISO 8601 date with time and offset."""
    try:
        aware = datetime.datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        _fail(instance, attribute, "is no date with time and offset (ISO 8601)", value)


def is_object_name(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
    """Validates a relative path with slashes that stays where it is put."""
    if reason := why_no_object_name(value):
        _fail(instance, attribute, reason, value)


def why_no_object_name(name: str) -> str:
    """Returns why a text can not name an object, or nothing."""
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "leads out of its directory"
    if not all(parts) or any(part.startswith(".") for part in parts):
        return "has a part that is empty or begins with a dot"
    if not name.isprintable() or "\\" in name:
        return "has a backslash or a character that can not be printed"
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "is no valid Unicode"
    if longest > _MOST_PART_BYTES or len(name.encode()) > _MOST_NAME_BYTES:
        return "is too long"
    return ""


def matches(pattern: str, what: str) -> Callable[[Any, "attrs.Attribute[Any]", str], None]:
    """Returns a validator of a text by a regular expression."""
    compiled = re.compile(pattern)

    def check(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
        if not compiled.fullmatch(value):
            _fail(instance, attribute, f"is no {what}", value)

    return check


def sorted_copy(values: Mapping[str, str]) -> dict[str, str]:
    """Converts to a dictionary in the order of its keys."""
    return dict(sorted(values.items()))


def _fail(instance: Any, attribute: "attrs.Attribute[Any]", reason: str, value: object) -> None:
    label = getattr(instance, "path", None) or getattr(instance, "artifact_type", None)
    entry = f" of {label!r}" if isinstance(label, str) and attribute.name != "path" else ""
    raise ValueError(f"{attribute.name} {value!r}{entry} {reason}")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return check


def _words(error: BaseException, _: Any) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return str(error)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, int):
        converter.register_structure_hook(kind, _exactly(kind))

    def texts(value: Any, _: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise TypeError(f"{value!r} is no dictionary of texts")
        return dict(value)

    converter.register_structure_hook_func(lambda kind: kind == Mapping[str, str], texts)
    return converter


_CONVERTER = _converter()
