"""Texts of others inside Markdown: reasons that a framework printed, names from a file."""

import re
from collections.abc import Sequence

from openxla.benchmark.text import printable

_SPECIAL = re.compile(r"[\\`*\[\]|~]")
# Inside a word an underscore is one: names stay as they are.
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")
# A mention notifies a person, and a number links an issue, even behind a backslash. Inside a word,
# as in `jax_xla:xla@old`, there is no mention.
_CALL = re.compile(r"((?<!\w)@|#)(?=\w)")


def escaped(text: str) -> str:
    """Returns the text as one line without markup, links and mentions, which stays in its cell."""
    text = printable(" ".join(text.split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _UNDERSCORE.sub(r"\_", _SPECIAL.sub(r"\\\g<0>", text))
    return _CALL.sub("\\1\N{ZERO WIDTH SPACE}", text)


def row(cells: Sequence[str]) -> str:
    """Returns a row of a table; the cells are escaped."""
    return "| " + " | ".join(map(escaped, cells)) + " |"
