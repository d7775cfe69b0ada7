"""Where the history is, for commands that look whether there is one before they open it."""

import os
from pathlib import Path

HISTORY_VARIABLE = "CBS_HISTORY"


def default_location() -> str:
    """Returns `$CBS_HISTORY`, or a file in the user's data folder."""
    if configured := os.environ.get(HISTORY_VARIABLE):
        return configured
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return str(data / "common-benchmark-suite" / "history.sqlite")


def is_there() -> bool:
    """Tells whether a history is likely to be there: a file that is, or any URL."""
    location = default_location()
    return "://" in location or Path(location).expanduser().is_file()
