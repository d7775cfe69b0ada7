r"""Messages between session and worker: JSON, one per line, each preceded by its length.

A line is `<length> <json>\n`. The length distinguishes a complete message from one truncated by the
death of its writer, and from stray bytes that a library wrote to the wrong descriptor.
"""

import json
from typing import Any, NoReturn, TypeAlias

Message: TypeAlias = dict[str, Any]

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class ProtocolError(ValueError):
    """Bytes on the pipe are not a message."""


def encode(message: Message) -> bytes:
    """Encodes a message as bytes; numbers must be finite.

    Raises:
      ValueError: the message contains values that JSON cannot represent.
    """
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    return b"%d %s\n" % (len(body), body)


class Decoder:
    """Decodes a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Adds bytes and returns the messages that are now complete.

        Raises:
          ProtocolError: the stream does not consist of messages.
        """
        self._buffer += data
        messages = []
        while (end := self._complete_length()) is not None:
            start = self._buffer.index(b" ") + 1
            messages.append(_parse(bytes(self._buffer[start : end - 1])))
            del self._buffer[:end]
        return messages

    def _complete_length(self) -> int | None:
        """Returns the end of the first message, or None if it is incomplete."""
        head, blank, _ = bytes(self._buffer[:20]).partition(b" ")
        if not blank:
            if len(head) >= 20 or not (head == b"" or head.isdigit()):
                raise ProtocolError(f"expected a length, got {head!r}")
            return None
        if not head.isdigit() or int(head) > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"invalid length {head!r}")
        end = len(head) + 1 + int(head) + 1
        if len(self._buffer) < end:
            return None
        if self._buffer[end - 1 : end] != b"\n":
            raise ProtocolError("a message is longer than announced")
        return end


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"invalid JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"expected a JSON object, got {body[:40]!r}")
    return message
