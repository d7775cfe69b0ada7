"""JSON files of other people, read strictly: nothing is guessed, coerced or left out."""

import collections
import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import cattrs

from openxla.benchmark.artifacts.stores import StoreError

T = TypeVar("T")

# A document is read into memory before anything in it is trusted.
MOST_BYTES = 16 << 20
_MOST_NAME_BYTES = 1024
_MOST_PART_BYTES = 240


class MalformedError(StoreError):
    """A manifest or lock file is not what it should be; the message names file and entry."""


class OtherVersionError(MalformedError):
    """A document has another version of its schema."""


def parse(text: bytes, kind: type[T], *, where: str) -> T:
    """Returns the record in a JSON document.

    Args:
      text: the document.
      kind: an attrs class; a key that it does not know is an error, as is a missing one. Its field
        `<something>_version` has the only version of the schema that is understood as its default.
      where: what messages call the document.

    Raises:
      MalformedError: it is something else.
    """
    if len(text) > MOST_BYTES:
        raise MalformedError(f"{where} is longer than {MOST_BYTES} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{where} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedError(f"{where} is JSON of another kind")
    fields = attrs.fields_dict(kind)  # type: ignore[arg-type]
    (version_key,) = (name for name in fields if name.endswith("_version"))
    found, version = document.get(version_key), fields[version_key].default
    if type(found) is not int or found != version:
        raise (OtherVersionError if type(found) is int else MalformedError)(
            f"{where} has {version_key} {found!r}; this program understands {version}. A newer "
            "release of the suite may read it"
        )
    try:
        return _CONVERTER.structure(document, kind)
    except Exception as error:
        messages = cattrs.transform_error(error, path="", format_exception=_words)
        raise MalformedError(f"{where} is malformed: {'; '.join(messages[:5])}") from error


def read(path: Path, kind: type[T]) -> T:
    """Returns the record in a JSON file.

    Raises:
      MalformedError: it cannot be read, or is something else.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise MalformedError(f"{path} cannot be read: {error.strerror}") from error
    return parse(text, kind, where=str(path))


def to_bytes(record: Any) -> bytes:
    """Returns a record as JSON, without what is None: the same record gives the same bytes."""
    document = _without_none(_CONVERTER.unstructure(record))
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


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
        _fail(instance, attribute, "is not a date with time and offset (ISO 8601)", value)


def is_object_name(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
    """Validates a relative path with slashes that stays where it is put."""
    if reason := why_no_object_name(value):
        _fail(instance, attribute, reason, value)


def why_no_object_name(name: str) -> str:
    """Returns why a text cannot name an object, or nothing."""
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "leads out of its directory"
    if not all(parts) or any(part.startswith(".") for part in parts):
        return "has a part that is empty or begins with a dot"
    if not name.isprintable() or "\\" in name:
        return "has a backslash or a character that cannot be printed"
    if len(name.encode()) > _MOST_NAME_BYTES or max(map(len, map(str.encode, parts))) > (
        _MOST_PART_BYTES
    ):
        return "is too long"
    return ""


def parents_of(names: Sequence[str]) -> set[str]:
    """Returns the directories that the names of files with slashes are in."""
    return {name[:i] for name in names for i, c in enumerate(name) if c == "/"}


def matches(pattern: str, what: str) -> Callable[[Any, "attrs.Attribute[Any]", str], None]:
    """Returns a validator of a text by a regular expression."""
    compiled = re.compile(pattern)

    def check(instance: Any, attribute: "attrs.Attribute[Any]", value: str) -> None:
        if not compiled.fullmatch(value):
            _fail(instance, attribute, f"is not {what}", value)

    return check


is_sha256 = matches(r"[0-9a-f]{64}", "a sha256 (64 digits 0-9 a-f)")


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
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _words(error: BaseException, _: Any) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)

    def exact(value: Any, kind: type) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not {kind.__name__}")
        return value

    def texts(value: Any, _: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise TypeError(f"{value!r} is not a dictionary of texts")
        return dict(value)

    for kind in (str, int):
        converter.register_structure_hook(kind, exact)
    converter.register_structure_hook_func(lambda kind: kind == Mapping[str, str], texts)
    return converter


_CONVERTER = _converter()
