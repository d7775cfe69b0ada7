"""Candidates, and what it takes to judge one: the words that all kinds of bisections share."""

import re
from typing import Protocol

import attrs

from comparative_benchmark.studies.bisection.search import Answer


class BisectError(Exception):
    """A bisection cannot be; the message says why and what to do."""


class UnjudgeableError(Exception):
    """A candidate cannot be judged: it does not install, build or start; the message says why."""


@attrs.frozen(kw_only=True)
class Candidate:
    """A release or a commit.

    Attributes:
      name: version, or digest of the commit.
      detail: what a person knows it by besides, e.g. the subject of the commit.
      is_commit: whether it is one.
    """

    name: str
    detail: str = ""
    is_commit: bool = False

    @property
    def short(self) -> str:
        """The name as people write it."""
        return self.name[:12] if self.is_commit else self.name

    @property
    def environment_name(self) -> str:
        """An identifier, the same for the same candidate."""
        return ("c" if self.is_commit else "v") + re.sub(r"\W", "_", self.short)

    def __str__(self) -> str:
        return f"{self.short} ({self.detail})" if self.detail else self.short


@attrs.frozen(kw_only=True)
class Ratio:
    """Candidate over good, of whatever is looked at, with the interval that the answer rests on."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f}-{self.high:.3f})"


@attrs.frozen(kw_only=True)
class CaseAnswer:
    """One case of a candidate against that of the good one."""

    case: str
    answer: Answer
    reason: str
    ratio: Ratio | None = None

    def __str__(self) -> str:
        ratio = f"{self.ratio}, " if self.ratio else ""
        return f"{self.case}: {self.answer.value}, {ratio}{self.reason}"


@attrs.frozen(kw_only=True)
class Focus:
    """What a candidate is asked about.

    Attributes:
      cases: the cases that are bad at the bad end; None before that is known.
      threshold: a change below it is not the one that is sought; None for that of the metric.
    """

    cases: frozenset[str] | None = None
    threshold: float | None = None


@attrs.frozen(kw_only=True)
class Finding:
    """What came of comparing a candidate with a good one.

    Attributes:
      cases: each case of the focus.
      results: the file that holds the evidence, if there is one.
      packages: what differs between the two besides what is bisected, one a line.
    """

    cases: tuple[CaseAnswer, ...]
    results: str | None = None
    packages: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Bad if any case is, good if all are."""
        answers = {item.answer for item in self.cases}
        if Answer.BAD in answers:
            return Answer.BAD
        if answers == {Answer.GOOD}:
            return Answer.GOOD
        return Answer.UNCLEAR if Answer.UNCLEAR in answers else Answer.SKIPPED


class Oracle(Protocol):
    """Tells good from bad. Everything that a bisection must do to find out is behind it."""

    def compare(
        self, good: Candidate, candidate: Candidate, focus: Focus, *, attempt: int
    ) -> Finding:
        """Returns what the candidate is, compared with the good one, side by side.

        Args:
          good: what to compare with.
          candidate: what to judge.
          focus: what to look at.
          attempt: 0, and one more each time the answer was unclear: look closer.

        Raises:
          UnjudgeableError: one of the two cannot be had; the message names it.
        """
