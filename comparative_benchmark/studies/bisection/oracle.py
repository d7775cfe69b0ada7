"""Types shared by all kinds of bisections: candidates, answers, and the oracle protocol."""

import re
from typing import Protocol

import attrs

from comparative_benchmark.studies.bisection.search import Answer


class BisectError(Exception):
    """A bisection is not possible; the message gives the reason and the remedy."""


class UnjudgeableError(Exception):
    """A candidate cannot be installed, built or started; the message gives the reason."""


@attrs.frozen(kw_only=True)
class Candidate:
    """A release or a commit.

    Attributes:
      name: version, or digest of the commit.
      detail: additional description for people, e.g. the subject of the commit.
      is_commit: whether it is a commit.
    """

    name: str
    detail: str = ""
    is_commit: bool = False

    @property
    def short(self) -> str:
        """The name, abbreviated if it is a digest."""
        return self.name[:12] if self.is_commit else self.name

    @property
    def environment_name(self) -> str:
        """An identifier, the same for the same candidate."""
        return ("c" if self.is_commit else "v") + re.sub(r"\W", "_", self.short)

    def __str__(self) -> str:
        return f"{self.short} ({self.detail})" if self.detail else self.short


@attrs.frozen(kw_only=True)
class Ratio:
    """Ratio of candidate to good for the compared quantity, with its confidence interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f}-{self.high:.3f})"


@attrs.frozen(kw_only=True)
class CaseAnswer:
    """The answer for one case of a candidate."""

    case: str
    answer: Answer
    reason: str
    ratio: Ratio | None = None

    def __str__(self) -> str:
        ratio = f"{self.ratio}, " if self.ratio else ""
        return f"{self.case}: {self.answer.value}, {ratio}{self.reason}"


@attrs.frozen(kw_only=True)
class Focus:
    """Cases and threshold for comparing candidates.

    Attributes:
      cases: the cases that are bad at the bad end; None before they are known.
      threshold: smaller relative changes are good; None for the metric's default.
    """

    cases: frozenset[str] | None = None
    threshold: float | None = None


@attrs.frozen(kw_only=True)
class Finding:
    """Result of comparing a candidate with a good one.

    Attributes:
      cases: answers for the cases of the focus.
      results: path of the measurements, if any.
      packages: other packages that differ between the two, one per line.
    """

    cases: tuple[CaseAnswer, ...]
    results: str | None = None
    packages: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Bad if any case is bad, good if all are good."""
        answers = {item.answer for item in self.cases}
        if Answer.BAD in answers:
            return Answer.BAD
        if answers == {Answer.GOOD}:
            return Answer.GOOD
        return Answer.UNCLEAR if Answer.UNCLEAR in answers else Answer.SKIPPED


class Oracle(Protocol):
    """Judges candidates; hides how they are installed and measured."""

    def compare(
        self, good: Candidate, candidate: Candidate, focus: Focus, *, attempt: int
    ) -> Finding:
        """Compares a candidate with a good one, side by side.

        Args:
          good: the reference.
          candidate: the candidate to judge.
          focus: cases and threshold.
          attempt: 0, then increasing each time the answer was unclear; take more measurements.

        Raises:
          UnjudgeableError: one of the two is unavailable; the message names it.
        """
