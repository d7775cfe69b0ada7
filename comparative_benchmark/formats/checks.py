"""What the fields of a result may hold; a file may say anything."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from comparative_benchmark.history.rows import STATUSES

# Between these limits sums, means and quotients of times are finite.
_LEAST, _MOST = 1e-100, 1e100


class FormatError(ValueError):
    """A file, or a part of one, is not what its format says; the message tells what and where."""


def text(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is no text, or none that can be written."""
    if not isinstance(value, str):
        raise FormatError(f"{attribute.name}: {shown(value)} is no text")
    _encodable(attribute.name, value)


def _encodable(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{name}: {shown(value)} holds half a surrogate pair") from error


def optional_text(instance: Any, attribute: Any, value: Any) -> None:
    """Refuses what is neither None nor a text."""
    if value is not None:
        text(instance, attribute, value)


def texts(instance: Any, attribute: Any, value: Any) -> None:
    """Refuses a sequence with anything but texts."""
    for item in value:
        text(instance, attribute, item)


def status(_: Any, __: Any, value: Any) -> None:
    """Refuses what is no status."""
    if value not in STATUSES:
        raise FormatError(f"status: {shown(value)} is none of {', '.join(STATUSES)}")


def number(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
      FormatError: it is no finite number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{name}: {shown(value)} is no number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise FormatError(f"{name}: {shown(value)} is no finite number")
    return found


def amount(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is neither None nor a number from 0 on."""
    if value is not None and not 0 <= number(attribute.name, value) <= _MOST:
        raise FormatError(f"{attribute.name}: {shown(value)} is no amount from 0 to {_MOST:g}")


def amounts(instance: Any, attribute: Any, value: Any) -> None:
    """Refuses a sequence with anything but numbers from 0 on."""
    for item in value:
        if item is None:
            raise FormatError(f"{attribute.name}: null is no number")
        amount(instance, attribute, item)


def count(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is neither None nor a whole number from 0 on."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise FormatError(f"{attribute.name}: {shown(value)} is no whole number")


def samples(_: Any, attribute: Any, value: Any) -> None:
    """Refuses processes without samples, and samples that are no times."""
    for process in value:
        if not process:
            raise FormatError(f"{attribute.name}: a process without samples")
        for item in process:
            if not _LEAST <= number(attribute.name, item) <= _MOST:
                raise FormatError(f"{attribute.name}: {shown(item)} is no time")


def numbers_by_name(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is no mapping of names to numbers."""
    json_object(_, attribute, value)
    for name, item in value.items():
        number(f"{attribute.name}.{name}", item)


def texts_by_name(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is no mapping of names to texts."""
    json_object(_, attribute, value)
    for name, item in value.items():
        if not isinstance(item, str):
            raise FormatError(f"{attribute.name}.{name}: {shown(item)} is no text")


def json_object(_: Any, attribute: Any, value: Any) -> None:
    """Refuses what is no mapping, or holds what JSON has no word for."""
    if not isinstance(value, Mapping):
        raise FormatError(f"{attribute.name}: {shown(value)} is no object")
    _check_json(attribute.name, value)


def _check_json(where: str, value: Any) -> None:
    if isinstance(value, str):
        _encodable(where, value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise FormatError(f"{where}: the name {shown(name)} is no text")
            _encodable(where, name)
            _check_json(f"{where}.{name}", item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_json(where, item)
    elif not (value is None or isinstance(value, bool)):
        number(where, value)


def shown(value: Any) -> str:
    """Returns a value for a message, in a few characters that any terminal prints."""
    found = ascii(value)
    return found if len(found) <= 60 else f"{found[:57]}..."


def printable(sentence: str) -> str:
    """Returns a sentence with parts of a foreign file: no character that steers a terminal."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in sentence
    )


def as_tuple(value: Any) -> Any:
    """Returns a list as a tuple, and anything else as it is."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def nested(value: Any) -> Any:
    """Returns a list of lists as tuples."""
    return tuple(map(as_tuple, value)) if isinstance(value, (list, tuple)) else value


def sequence(check: Callable[..., None]) -> Callable[..., None]:
    """Returns a check of sequences: refuses what is none, and asks the check for the rest."""

    def checked(instance: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, tuple):
            raise FormatError(f"{attribute.name}: {shown(value)} is no list")
        check(instance, attribute, value)

    return checked


def sequence_of_sequences(instance: Any, attribute: Any, value: Any) -> None:
    """Refuses a sequence with anything but samples of processes."""
    for item in value:
        if not isinstance(item, tuple):
            raise FormatError(f"{attribute.name}: {shown(item)} is no list")
    samples(instance, attribute, value)
