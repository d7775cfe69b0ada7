"""The wire format of protocol buffers, as far as reading a file's outline takes it.

https://protobuf.dev/programming-guides/encoding: a message is a row of fields, each a number with a
kind, then a varint, 4 or 8 bytes, or a length and so many bytes. Nothing is copied.
"""

from collections.abc import Iterator

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5


class MalformedError(ValueError):
    """These bytes are no message, or not all of it."""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields number and value of each field; texts, bytes and messages as views.

    Raises:
      MalformedError: the bytes end within a field, or are none.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _LENGTH:
            size, at = _varint(message, at)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise MalformedError(f"invalid field at byte {at}")
        if number == 0 or at + size > end:
            raise MalformedError(f"a field of {size} bytes extends past the end")
        yield number, message[at : at + size]
        at += size


def numbers(value: int | memoryview) -> list[int]:
    """Returns the integers of a repeated field: one, or a packed row of them."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def view(value: int | memoryview) -> memoryview:
    """Returns a field that has to be bytes.

    Raises:
      MalformedError: it is a number.
    """
    if isinstance(value, int):
        raise MalformedError("expected a message, got a number")
    return value


def text(value: int | memoryview) -> str:
    """Returns a field that has to be a text."""
    return bytes(view(value)).decode(errors="replace")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise MalformedError(f"unterminated varint at byte {at}")
