"""Texts of strangers, made safe for terminals, files and JSON."""

import re
from collections.abc import Iterable
from typing import Any


def near(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the nearest of these words; None if nothing is like it.

    Args:
      word: as it was typed.
      known: words that there are.
      cutoff: how like it must be, from 0 to 1.
    """
    # Only a mistake wants it, and every command would wait for the import.
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message that suggests the nearest of these; empty if none is near."""
    close = near(word, known)
    return f"; did you mean {close}?" if close else ""


def choices(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Returns `did you mean X? choices are ...`, the former if one is near."""
    names = list(known)
    close = near(word, names, cutoff=cutoff)
    return f"{f'did you mean {close}? ' if close else ''}choices are {', '.join(names)}"


_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def encodable(text: str) -> str:
    r"""Returns a text that UTF-8 can encode: half of a surrogate pair becomes an escape.

    File names that are not UTF-8 hold them (PEP 383), and so may texts of exceptions: the byte
    0xe9 is shown as `\udce9`.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def encodable_json(value: Any) -> Any:
    """Returns a JSON value whose texts UTF-8 can encode, names included; see `encodable`."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_json(name): encodable_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [encodable_json(item) for item in value]
    return value


def printable(text: str) -> str:
    """Returns a text without control characters of terminals; line breaks stay.

    Characters that change the direction of writing are control characters, too.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", encodable(text))


def one_line(text: str, longest: int = 300) -> str:
    """Returns the beginning of a text as one printable line."""
    return printable(" ".join(text[: 4 * longest].split()))[:longest]
