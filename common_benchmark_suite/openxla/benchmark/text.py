"""Makes untrusted texts safe for terminals, files and JSON."""

import re
from collections.abc import Iterable
from typing import Any

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def near(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the most similar known word; None if none is similar.

    Args:
      word: word as typed.
      known: known words.
      cutoff: required similarity, from 0 to 1.
    """
    # Imported late, because it is only needed for mistakes and would slow down every command.
    import difflib

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message that suggests the most similar word; empty without one."""
    close = near(word, known)
    return f"; did you mean {close}?" if close else ""


def choices(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Returns `did you mean X? choices are ...`, the former only if a word is similar."""
    names = list(known)
    close = near(word, names, cutoff=cutoff)
    return f"{f'did you mean {close}? ' if close else ''}choices are {', '.join(names)}"


def encodable(text: str) -> str:
    r"""Returns a text that UTF-8 can encode: lone surrogates become escapes.

    File names that are not UTF-8 contain them (PEP 383), and so may texts of exceptions: the byte
    0xe9 is shown as `\udce9`.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def encodable_json(value: Any) -> Any:
    """Returns a JSON value whose strings UTF-8 can encode, including keys; see `encodable`."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_json(name): encodable_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [encodable_json(item) for item in value]
    return value


def printable(text: str) -> str:
    """Returns a text with terminal control characters replaced by U+FFFD; line breaks stay.

    Characters that override or isolate the writing direction are replaced, too.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", encodable(text))


def one_line(text: str, longest: int = 300) -> str:
    """Returns the beginning of a text as one printable line."""
    return printable(" ".join(text[: 4 * longest].split()))[:longest]
