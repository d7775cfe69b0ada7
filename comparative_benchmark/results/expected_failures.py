"""Known failures: how to recognise them, their reason, and their expiry date.

The list is stored next to this module. A run that fails as listed stays green; other failures,
passes of listed cases and outdated entries are reported.
"""

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.errors import UsageError

EXPECTED_FAILURES_FILE = Path(__file__).with_suffix(".toml")

# Statuses that may be expected. `unsupported` states its own reason and never fails a run.
_FAILURES = ("unsteady", "wrong_output", "failed", "out_of_memory", "timeout", "crashed")
_TEXTS = ("name", "competitor", "device", "status", "reason", "link")
_PATTERNS = ("name", "competitor", "device")


class ExpectedFailuresError(UsageError, ValueError):
    """The list is malformed; the message names the file, the entry and the error."""


@attrs.frozen(kw_only=True)
class ExpectedFailure:
    """One known failure.

    Attributes:
      name: regular expression that matches the full case name.
      competitor: regular expression that matches the full `backend:compiler+options`.
      device: regular expression that matches the full device name.
      status: expected status of the trial.
      reason: reason for the failure, in one sentence.
      link: URL of the discussion.
      expires: last day on which the failure is expected.
      may_pass: whether the case is so close to the limit that the outcome depends on the CPU; a
        pass is then not reported. Defaults to false.
    """

    name: str
    competitor: str
    device: str
    status: str
    reason: str
    link: str
    expires: datetime.date
    may_pass: bool = False

    def covers(self, ending: "Ending") -> bool:
        """Returns whether the entry matches a case, competitor and device, regardless of status."""
        # Ignore the environment's name in a competitor (`jax_xla:xla@old`).
        competitor = ending.competitor.partition("@")[0]
        patterns = (self.name, self.competitor, self.device)
        return all(map(re.fullmatch, patterns, (ending.case_name, competitor, ending.device)))

    def __str__(self) -> str:
        return f"{self.name} {self.competitor} {self.device}"


@attrs.frozen(kw_only=True)
class Ending:
    """Status of one case run by one competitor on one device."""

    case_name: str
    competitor: str
    device: str
    status: str


@attrs.frozen(kw_only=True)
class Judgement:
    """Outcomes of a run compared with the list of expected failures.

    Attributes:
      expected: for each outcome that is as expected, its entry.
      passes: entries whose case was `ok`, with that outcome, except those with `may_pass`.
      expired: entries that match an outcome but are out of date; they excuse nothing.
    """

    expected: Mapping[Ending, ExpectedFailure]
    passes: Sequence[tuple[ExpectedFailure, Ending]]
    expired: Sequence[ExpectedFailure]

    @property
    def stale(self) -> bool:
        """Whether any entry needs attention."""
        return bool(self.passes or self.expired)

    def complaints(self) -> list[str]:
        """Returns one line for each entry that needs attention."""
        return [
            *(
                f"unexpected pass: {ending.case_name} {ending.competitor}, expected "
                f"{entry.status}; remove the expected failure {entry}"
                for entry, ending in self.passes
            ),
            *(
                f"expected failure expired on {entry.expires}: {entry} ({entry.reason}; "
                f"{entry.link}); remove the entry or set a later date"
                for entry in self.expired
            ),
        ]


def load(path: Path = EXPECTED_FAILURES_FILE) -> list[ExpectedFailure]:
    """Returns the entries of a list, in order.

    Raises:
      ExpectedFailuresError: the list cannot be read or is malformed.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExpectedFailuresError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectedFailuresError(f"{path} is not TOML: {error}") from error
    entries = document.pop("expected", [])
    if document or not isinstance(entries, list):
        others = ", ".join(document) or "`expected` as another type"
        raise ExpectedFailuresError(f"{path} may contain only [[expected]] tables, got {others}")
    return [_entry(f"{path}, entry {number}", item) for number, item in enumerate(entries, 1)]


def judge(
    entries: Sequence[ExpectedFailure], endings: Iterable[Ending], *, today: datetime.date
) -> Judgement:
    """Compares outcomes with the entries; if several entries match, the first one applies."""
    expected: dict[Ending, ExpectedFailure] = {}
    passes: list[tuple[ExpectedFailure, Ending]] = []
    expired: dict[ExpectedFailure, None] = {}
    for ending in endings:
        about = [entry for entry in entries if entry.covers(ending)]
        current = [entry for entry in about if entry.expires >= today]
        expired.update(dict.fromkeys(entry for entry in about if entry.expires < today))
        if ending.status == "ok":
            passes += [(entry, ending) for entry in current if not entry.may_pass]
        elif same := [entry for entry in current if entry.status == ending.status]:
            expected[ending] = same[0]
    return Judgement(expected=expected, passes=passes, expired=list(expired))


def _entry(where: str, item: Any) -> ExpectedFailure:
    if not isinstance(item, dict):
        raise ExpectedFailuresError(f"{where} is not a table")
    if problem := _problem(item):
        raise ExpectedFailuresError(f"{where}: {problem}")
    return ExpectedFailure(**item)


def _problem(item: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with an entry; None if it is valid."""
    known = {field.name for field in attrs.fields(ExpectedFailure)}
    needed = {f.name for f in attrs.fields(ExpectedFailure) if f.default is attrs.NOTHING}
    if lacking := sorted(needed - set(item)):
        return f"missing {', '.join(lacking)}"
    if unknown := sorted(set(item) - known):
        return f"unknown {', '.join(unknown)}; expected {', '.join(sorted(known))}"
    for key in _TEXTS:
        if not isinstance(item[key], str) or not item[key].strip():
            return f"{key} must be a non-empty string, got {item[key]!r}"
    for key in _PATTERNS:
        try:
            re.compile(item[key])
        except re.error as error:
            return f"{key} {item[key]!r} is not a regular expression: {error}"
    if item["status"] not in _FAILURES:
        return f"status {item['status']!r} is not one of {', '.join(_FAILURES)}"
    if not item["link"].startswith(("https://", "http://")):
        return f"link {item['link']!r} is not an http:// or https:// URL"
    if not isinstance(item.get("may_pass", False), bool):
        return f"may_pass must be true or false, got {item['may_pass']!r}"
    # `isinstance` also accepts a datetime, which is a subclass of date.
    if type(item["expires"]) is not datetime.date:
        return f"expires must be a date such as 2027-03-31, got {item['expires']!r}"
    return None
