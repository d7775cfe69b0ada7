"""The ends of the command line: streams that are there, and messages that hold no secret."""

import os
import re
import sys

# A name and a password before the host, and the values of a query.
_USER = re.compile(r"(\w+://)[^/@\s]+@")
_QUERY = re.compile(r"(?<=[?&])([\w.-]+=)[^\s&'\"/:;,)]+")


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


def without_secrets(message: str) -> str:
    """Returns a message whose URLs hold neither user names, passwords nor values of queries.

    Whatever refuses a URL should name it without them; this holds for libraries' messages, too.
    """
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", message))
