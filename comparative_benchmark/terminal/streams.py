"""Standard streams that accept any text, and messages without secrets."""

import codecs
import os
import re
import sys

# Replacements for characters in tables and help that a stream's encoding lacks.
_PLAIN = str.maketrans(
    dict(
        zip(
            "\u00b1\u00d7\u221a\u2248\u00b5\u00b7\u2019", ("+-", *"x", "sqrt", *"~u.'"), strict=True
        )
    )
    | dict.fromkeys("\u2013\u2014\u2212", "-")
    | {"\u2026": "~", "\u2192": "->", "\u2264": "<=", "\u2265": ">="}
)
_PLAIN_HANDLER = "cbs_plain"

# User name and password before the host, and the values of a query. The pattern starts at the
# separator: searching for a word before it would take quadratic time.
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(?<=[?&])([\w.-]{1,200}=)[^\s&'\"]+")


def hold_standard_streams() -> None:
    """Opens /dev/null instead of closed standard streams (`cbs run <&-`).

    Otherwise the next file or pipe would get the number of the missing stream, and receive output
    meant for the terminal.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # All lower descriptors are open, so `open` returns this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    codecs.register_error(_PLAIN_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        # Tests and notebooks replace the streams with other objects.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_PLAIN_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replaces characters that a stream's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def without_secrets(message: str) -> str:
    """Returns a message with user names, passwords and query values removed from URLs.

    Our own messages should not contain any; this also covers messages from libraries.
    """
    return _QUERY.sub(r"\1***", _USER.sub("***@", message))
