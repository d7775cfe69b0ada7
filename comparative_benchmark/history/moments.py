"""Times and JSON as the database keeps them, and times as people type them."""

import datetime
import json
import re
from typing import Any

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class DamagedRowError(ValueError):
    """A row holds what no program of ours has written."""


def microseconds(time: datetime.datetime) -> int:
    """Returns microseconds since 1970, UTC."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def moment(time_us: int) -> datetime.datetime:
    """Returns the time of that many microseconds since 1970.

    Raises:
      DamagedRowError: no calendar has it.
    """
    try:
        return _EPOCH + datetime.timedelta(microseconds=time_us)
    except (OverflowError, TypeError):
        raise DamagedRowError(f"{time_us!r} is not a time in microseconds") from None


def json_value(text: str) -> Any:
    """Returns the value of a column's JSON text.

    Raises:
      DamagedRowError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise DamagedRowError(f"{str(text)[:80]!r} is not JSON") from None


def parsed(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """Returns the time of `2026-11-01`, `2026-11-01T06:00`, or `30d` (12h, 2w) before now.

    Without a zone it is UTC.

    Raises:
      ValueError: it is none of these.
    """
    if match := re.fullmatch(r"(\d{1,6})([hdw])", text):
        now = now or datetime.datetime.now(datetime.UTC)
        try:
            return now - datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is too long ago") from None
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
