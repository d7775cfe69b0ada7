"""File of measured pairs, one JSON line each, so that an interrupted script can continue."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

_FIELDS = {"section", "number", "configuration", "methods"}


class JournalError(ValueError):
    """A file cannot be read or continued; the message names a remedy."""


class Journal:
    """Entries of a file; `append` writes each entry to disk before it returns.

    Attributes:
      entries: in the order in which they were measured: `section` and `number` of the pair, the
        shared `configuration`, `methods`, and any further values of the caller.

    Raises:
      JournalError: a line is not an entry, or the configurations of entries differ.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            self.entries.append(_entry(line, f"{path}, line {number}"))
        for entry in self.entries:
            self.check(entry["configuration"])

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Raises `JournalError` if existing entries have another configuration."""
        if not self.entries:
            return
        known = self.entries[0]["configuration"]
        names = [n for n in {**known, **configuration} if known.get(n) != configuration.get(n)]
        if names:
            differ = "; ".join(f"{n} {known.get(n)} against {configuration.get(n)}" for n in names)
            raise JournalError(
                f"{self.path} has other settings ({differ}); choose another --output"
            )

    def has(self, section: str, number: int) -> bool:
        """Returns whether a pair has been measured."""
        return any((e["section"], e["number"]) == (section, number) for e in self.entries)

    def append(self, entry: Entry) -> None:
        """Adds an entry to the file and then to `entries`."""
        self.check(entry["configuration"])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)


def _entry(line: str, where: str) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if entry is None or not line.endswith("\n"):
        # A script that is killed during a write leaves such a line.
        raise JournalError(f"{where} is incomplete; remove that line")
    if not isinstance(entry, dict) or not set(entry) >= _FIELDS:
        raise JournalError(f"{where} is not an entry of these scripts; choose another --output")
    return entry
