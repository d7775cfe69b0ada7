"""A database of results over time: import, queries and regressions.

Its location is known here, so that commands need no database library to check that it exists.
"""

import os
from pathlib import Path

HISTORY_VARIABLE = "CBS_HISTORY"


def default_location() -> str:
    """Returns `$CBS_HISTORY`, or a file in the user's data folder."""
    if configured := os.environ.get(HISTORY_VARIABLE):
        return configured
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return str(data / "common-benchmark-suite" / "history.sqlite")


def default_exists() -> bool:
    """Returns whether a history probably exists there: an existing file, or any URL."""
    location = default_location()
    return "://" in location or Path(location).expanduser().is_file()
