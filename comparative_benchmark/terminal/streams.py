"""The ends of the command line: streams that take what is written, messages without secrets."""

import codecs
import os
import re
import sys

# What tables and help are written with, for streams that have no such character.
_PLAIN = str.maketrans(
    dict(
        zip(
            "\u00b1\u00d7\u221a\u2248\u00b5\u00b7\u2019", ("+-", *"x", "sqrt", *"~u.'"), strict=True
        )
    )
    | dict.fromkeys("\u2013\u2014\u2212", "-")
    | {"\u2026": "...", "\u2192": "->", "\u2264": "<=", "\u2265": ">="}
)
_PLAIN_HANDLER = "cbs_plain"

# A name and a password before the host, and the values of a query.
# From the separator on: a search for a word in front of it would take quadratic time.
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(?<=[?&])([\w.-]{1,200}=)[^\s&'\"/:;,)]+")


def hold_standard_streams() -> None:
    """Opens /dev/null in the place of standard streams that are closed (`cbs run <&-`).

    Otherwise the next file or pipe that is opened gets the number of the missing stream, and what
    is meant for the terminal ends in it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    codecs.register_error(_PLAIN_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        # Tests and notebooks put other objects in their place.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_PLAIN_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Stands in for characters that a stream's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def without_secrets(message: str) -> str:
    """Returns a message whose URLs hold neither user names, passwords nor values of queries.

    Whatever refuses a URL should name it without them; this holds for libraries' messages, too.
    """
    return _QUERY.sub(r"\1***", _USER.sub("***@", message))
