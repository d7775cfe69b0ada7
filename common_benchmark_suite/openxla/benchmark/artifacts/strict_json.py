"""Strict reading of untrusted JSON files: nothing is guessed, coerced or ignored."""

import collections
import itertools
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from openxla.benchmark.artifacts.stores import StoreError

# A document is read into memory before it is validated.
MOST_BYTES = 16 << 20
_MOST_NAME_BYTES = 1024
_MOST_PART_BYTES = 240

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0)]


class MalformedError(StoreError):
    """A manifest or lock file is malformed; the message names file and entry."""


class OtherVersionError(MalformedError):
    """The schema version of a document is not supported."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document, or a part of one.

    The default of a document's field `<something>_version` is the only supported version of its
    schema.
    """


R = TypeVar("R", bound=Record)


def parse(text: bytes, kind: type[R], *, where: str) -> R:
    """Returns the record in a JSON document; messages call it `where`.

    Raises:
      MalformedError: a key is unknown, missing or duplicate, or a value has the wrong type.
    """
    if len(text) > MOST_BYTES:
        raise MalformedError(f"{where} is longer than {MOST_BYTES} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{where} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedError(f"{where} is not a JSON object")
    for field in msgspec.structs.fields(kind):
        value = document.get(field.name)
        if field.name.endswith("_version") and (type(value) is not int or value != field.default):
            raise (OtherVersionError if type(value) is int else MalformedError)(
                f"{where} has {field.name} {value!r}, but this release reads only "
                f"{field.default}; another release of the suite may read the file"
            )
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise MalformedError(f"{where} is malformed: {error}") from error


def read(path: Path, kind: type[R]) -> R:
    """Returns the record in a JSON file.

    Raises:
      MalformedError: the file cannot be read, or holds another kind of document.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise MalformedError(f"{path} cannot be read: {error.strerror}") from error
    return parse(text, kind, where=str(path))


def to_bytes(record: Record) -> bytes:
    """Returns a record as JSON, without None values: the same record gives the same bytes.

    Raises:
      ValidationError: the result would be invalid.
    """
    document = _without_none(msgspec.to_builtins(record))
    msgspec.convert(document, type(record))
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


def why_no_object_name(name: str) -> str:
    """Returns why a text cannot name an object; empty if it can."""
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "points outside its directory"
    if not all(parts) or any(part.startswith(".") for part in parts):
        return "has a part that is empty or begins with a dot"
    if not name.isprintable() or "\\" in name:
        return "has a backslash or an unprintable character"
    longest = max(len(part.encode()) for part in parts)
    if longest > _MOST_PART_BYTES or len(name.encode()) > _MOST_NAME_BYTES:
        return "is too long"
    return ""


def check_names(names: Collection[str], *reserved: str) -> None:
    """Raises ValueError if the names cannot coexist in a directory, or with reserved names."""
    for name, count in collections.Counter(iter(names)).items():
        if reason := why_no_object_name(name):
            raise ValueError(f"the path {name!r} {reason}")
        if count > 1:
            raise ValueError(f"duplicate path {name!r}")
        if name in reserved:
            raise ValueError(f"the path {name!r} is reserved")
    # In this order, the files of a directory follow its name. A set of all directories could be
    # thousands of times as large as the document.
    ordered = sorted((*names, *reserved), key=lambda name: name.split("/"))
    for name, following in itertools.pairwise(ordered):
        if following.startswith(f"{name}/"):
            raise ValueError(f"the path {name!r} is both a file and a directory")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        ((twice, _),) = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {twice!r}")
    return unique
