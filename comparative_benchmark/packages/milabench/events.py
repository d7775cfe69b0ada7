"""What scripts say while they run: JSON lines, and JSON in escape sequences of their output.

Both come from foreign code, so neither is believed: lines may be garbage, endless, or halves, and
whatever is not an event is counted and left out. Escapes are those of `voir.smuggle`: ESC `[`,
hexadecimal digits written as `0-9:;<=>?`, and `z`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

# No event of milabench is so long.
_LONGEST = 2**20
_SEQUENCE = re.compile(rb"\x1b\[([0-9:;<=>?]*)z")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*)?\Z")
_AS_HEX = bytes.maketrans(b":;<=>?", b"abcdef")


class EventLines:
    """Events of a stream of JSON lines.

    Attributes:
      garbage: lines that were none.
    """

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yields the events that a further piece of the stream completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skipping:
                # The end of a line that was too long.
                self._skipping = False
            elif line.strip() and (event := self._event(line)) is not None:
                yield event
        self._rest = rest
        if len(rest) > _LONGEST:
            self.garbage += not self._skipping
            self._rest, self._skipping = b"", True

    def close(self) -> None:
        """Counts what is left unfinished."""
        self.garbage += bool(self._rest.strip())
        self._rest = b""

    def _event(self, line: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        self.garbage += 1
        return None


class SmuggledEvents:
    """Events in the escape sequences of a program's output, and the output without them."""

    def __init__(self) -> None:
        self._lines = EventLines()
        self._pending = b""
        self._broken = 0

    @property
    def garbage(self) -> int:
        """Sequences and lines that were no events."""
        return self._broken + self._lines.garbage

    def feed(self, data: bytes) -> tuple[bytes, list[dict[str, Any]]]:
        """Returns text and events of a further piece of the output."""
        if not self._pending and b"\x1b" not in data:
            return data, []
        whole = self._pending + data
        unfinished = _UNFINISHED.search(whole, max(0, whole.rfind(b"\x1b")))
        end = unfinished.start() if unfinished else len(whole)
        self._pending = whole[end:]
        if len(self._pending) > _LONGEST:
            self._broken += 1
            self._pending = b""
        events: list[dict[str, Any]] = []

        def take(match: re.Match[bytes]) -> bytes:
            try:
                smuggled = bytes.fromhex(match[1].translate(_AS_HEX).decode())
            except ValueError:
                self._broken += 1
                return b""
            events.extend(self._lines.feed(smuggled))
            return b""

        return _SEQUENCE.sub(take, whole[:end]), events

    def close(self) -> bytes:
        """Returns text that looked like the beginning of a sequence."""
        rest, self._pending = self._pending, b""
        if rest.startswith(b"\x1b["):
            self._broken += 1
            rest = b""
        self._lines.close()
        return rest
