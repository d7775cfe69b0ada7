"""Searches for the first bad candidate, by asking an oracle that judges candidates.

Candidates are ordered, oldest first; the first is known to be good, the last to be bad. The search
is a binary search while answers are good or bad. A candidate that cannot be judged is skipped, and
the next question moves away from it, because neighbouring commits often break for the same reason
(as in `git bisect skip`). The result is a step: a good candidate, followed by a bad one, with only
skipped candidates between them. If answers alternate, there are several steps; the search finds
the last one that its answers show.
"""

import enum
import re
from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from comparative_benchmark.errors import UsageError


class Answer(enum.Enum):
    """The state of a candidate."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "unclear"
    SKIPPED = "skipped"


_JUDGED = (Answer.GOOD, Answer.BAD)


@attrs.frozen(kw_only=True)
class Conclusion:
    """Result of a search; candidates are given by position.

    Attributes:
      last_good, first_bad: the step.
      suspects: candidates between the two that could not be judged; the first bad one is
        `first_bad` or one of them. Empty if the step is exact.
      contradictions: pairs (bad, good) with the bad one first, which imply several steps.
    """

    last_good: int
    first_bad: int
    suspects: tuple[int, ...]
    contradictions: tuple[tuple[int, int], ...]

    @property
    def exact(self) -> bool:
        """Whether there is a single first bad candidate."""
        return not self.suspects


class Search:
    """The answers so far, and the choice of the next question."""

    def __init__(self, count: int, known: Mapping[int, Answer] | None = None) -> None:
        if count < 2:
            raise ValueError(f"a search needs at least 2 candidates, got {count}")
        self._count = count
        self._answers = {0: Answer.GOOD, count - 1: Answer.BAD}
        for index, answer in (known or {}).items():
            self.record(index, answer)

    def record(self, index: int, answer: Answer) -> None:
        """Records an answer.

        Raises:
          ValueError: the candidate does not exist, or is an end with another known answer.
        """
        if not 0 <= index < self._count:
            raise ValueError(f"candidate {index} does not exist; expected 0 to {self._count - 1}")
        if index in (0, self._count - 1) and answer is not self._answers[index]:
            raise ValueError(f"candidate {index} is known to be {self._answers[index].value}")
        self._answers[index] = answer

    def next_question(self, *, everything: bool = False) -> int | None:
        """Returns the candidate to judge next; None if no answer could change the conclusion.

        Args:
          everything: continue until each candidate has been judged, to detect every step.
        """
        good, bad = self._step()
        if untested := self._untested(good + 1, bad):
            unjudged = [i for i, answer in self._answers.items() if answer not in _JUDGED]

            def worth(index: int) -> tuple[int, int]:
                away = min((abs(index - other) for other in unjudged), default=self._count)
                # Prefer the middle, unless a candidate close to it could not be judged.
                return min(index - good, bad - index, 2 * away), -index

            return max(untested, key=worth)
        rest = self._untested(0, self._count) if everything else []
        return rest[len(rest) // 2] if rest else None

    def conclusion(self) -> Conclusion:
        """Returns the conclusion from the answers so far."""
        good, bad = self._step()
        bads = [i for i, answer in self._answers.items() if answer is Answer.BAD]
        goods = [i for i, answer in self._answers.items() if answer is Answer.GOOD]
        contradictions = [
            (index, min(later))
            for index in sorted(bads)
            if (later := [good for good in goods if good > index])
        ]
        return Conclusion(
            last_good=good,
            first_bad=bad,
            suspects=tuple(range(good + 1, bad)),
            contradictions=tuple(contradictions),
        )

    def _step(self) -> tuple[int, int]:
        """Returns the last good candidate and the first bad one after it."""
        good = max(i for i, answer in self._answers.items() if answer is Answer.GOOD)
        later = (i for i, answer in self._answers.items() if answer is Answer.BAD and i > good)
        return good, min(later)

    def _untested(self, start: int, stop: int) -> list[int]:
        return [index for index in range(start, stop) if index not in self._answers]


def locate(
    count: int,
    ask: Callable[[int], Answer],
    *,
    known: Mapping[int, Answer] | None = None,
    everything: bool = False,
) -> Conclusion:
    """Locates the step among `count` candidates with few questions.

    Args:
      count: number of candidates; the first is good and the last is bad.
      ask: judges a candidate; called at most once for each.
      known: earlier answers.
      everything: judge every candidate to detect multiple steps.
    """
    search = Search(count, known)
    while (index := search.next_question(everything=everything)) is not None:
        search.record(index, ask(index))
    return search.conclusion()


class BisectError(UsageError):
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
