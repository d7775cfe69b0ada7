"""A bisection: confirms both ends, locates the step, and verifies it in a direct comparison.

The oracle that judges candidates may race environments or run a userbenchmark.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.studies.bisection.journal import Comparison, Journal
from comparative_benchmark.studies.bisection.oracle import (
    BisectError,
    Candidate,
    CaseAnswer,
    Focus,
    Oracle,
    UnjudgeableError,
)
from comparative_benchmark.studies.bisection.search import Answer, Conclusion, locate


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a bisection.

    Attributes:
      ends: the last candidate compared with the first one.
      conclusion: location of the step; None if the last candidate is not bad.
      neighbours: the first bad candidate compared with the last good one; None if not compared.
    """

    candidates: tuple[Candidate, ...]
    ends: Comparison
    conclusion: Conclusion | None = None
    neighbours: Comparison | None = None

    @property
    def found(self) -> bool:
        """Whether a single first bad candidate was found and differs from the one before it."""
        return (
            self.conclusion is not None
            and self.conclusion.exact
            and self.neighbours is not None
            and self.neighbours.answer is Answer.BAD
        )


class Bisection:
    """Queries an oracle until the first bad candidate is found, recording answers in a journal."""

    def __init__(
        self,
        oracle: Oracle,
        journal: Journal,
        *,
        say: Callable[[str], None],
        threshold: Callable[[Sequence[CaseAnswer]], float | None] = lambda _: None,
        attempts: int = 2,
        everything: bool = False,
    ) -> None:
        """Creates a bisection.

        Args:
          oracle: judges candidates.
          journal: an open journal with the candidates, oldest first.
          say: receives each answer as a line of text.
          threshold: computes, from the bad cases at the bad end, the relative change below which a
            candidate is good.
          attempts: maximum number of comparisons per candidate while the answer is unclear.
          everything: judge every candidate to detect multiple steps.
        """
        self._oracle = oracle
        self._journal = journal
        self._say = say
        self._threshold = threshold
        self._attempts = attempts
        self._everything = everything

    def run(self) -> Outcome:
        """Runs the bisection.

        Raises:
          BisectError: an end cannot be judged.
        """
        candidates = self._journal.candidates
        ends = self._compare(0, len(candidates) - 1, Focus())
        if ends.answer is Answer.SKIPPED:
            raise BisectError(f"the ends cannot be compared: {_why(ends)}")
        if ends.answer is not Answer.BAD:
            return Outcome(candidates=tuple(candidates), ends=ends)
        bad = _bad_cases(ends)
        focus = Focus(cases=frozenset(c.case for c in bad), threshold=self._threshold(bad))
        conclusion = locate(
            len(candidates),
            lambda index: self._compare(0, index, focus).answer,
            everything=self._everything,
        )
        step = (conclusion.last_good, conclusion.first_bad)
        # So far each side was only compared with the good end; compare them with each other.
        known = step == (0, len(candidates) - 1)
        neighbours = ends if known else self._compare(*step, focus)
        return Outcome(
            candidates=tuple(candidates),
            ends=ends,
            conclusion=conclusion,
            neighbours=neighbours,
        )

    def _compare(self, good: int, index: int, focus: Focus) -> Comparison:
        """Returns the comparison of a pair from the journal, or else from the oracle."""
        candidates = self._journal.candidates
        first, second = candidates[good], candidates[index]
        found = self._journal.find(first.name, second.name)
        # Retry an end that failed to install, and unclear answers if more attempts are allowed.
        retried = found is not None and (
            (found.answer is Answer.SKIPPED and (good, index) == (0, len(candidates) - 1))
            or (found.answer is Answer.UNCLEAR and found.attempts < self._attempts)
        )
        if found is None or retried:
            tried = found.attempts if found and found.answer is Answer.UNCLEAR else 0
            found = self._ask(first, second, focus, tried)
            self._journal.add(found)
        self._say(f"{second} against {first.short}: {found.answer.value}{_in_words(found)}")
        return found

    def _ask(self, good: Candidate, candidate: Candidate, focus: Focus, attempt: int) -> Comparison:
        while True:
            try:
                finding = self._oracle.compare(good, candidate, focus, attempt=attempt)
            except UnjudgeableError as error:
                return Comparison(
                    good=good.name,
                    candidate=candidate.name,
                    attempts=attempt + 1,
                    answer=Answer.SKIPPED,
                    reason=str(error),
                )
            if not finding.cases:
                raise BisectError("nothing was compared: the backend cannot run any selected case")
            attempt += 1
            if finding.answer is not Answer.UNCLEAR or attempt >= self._attempts:
                return Comparison(
                    good=good.name,
                    candidate=candidate.name,
                    attempts=attempt,
                    answer=finding.answer,
                    finding=finding,
                )
            self._say(f"{candidate} is unclear; repeating with more measurements")


def as_json(outcome: Outcome) -> Mapping[str, Any]:
    """Returns the outcome as JSON values."""
    names = [candidate.name for candidate in outcome.candidates]
    where = outcome.conclusion
    return {
        "found": outcome.found,
        "good": names[0],
        "bad": names[-1],
        "ends": outcome.ends.answer.value,
        "last_good": names[where.last_good] if where else None,
        "first_bad": names[where.first_bad] if where else None,
        "suspects": [names[index] for index in where.suspects] if where else [],
        "contradictions": [[names[a], names[b]] for a, b in where.contradictions] if where else [],
        "confirmed": None if outcome.neighbours is None else outcome.neighbours.answer.value,
    }


def _bad_cases(comparison: Comparison) -> list[CaseAnswer]:
    assert comparison.finding is not None
    return [case for case in comparison.finding.cases if case.answer is Answer.BAD]


def _why(comparison: Comparison) -> str:
    if comparison.finding is None:
        return str(comparison.reason)
    return "; ".join(str(case) for case in comparison.finding.cases)


def _in_words(comparison: Comparison) -> str:
    """Returns a short reason for an answer, from the case with the largest ratio."""
    if comparison.finding is None:
        return f": {comparison.reason}"
    cases = [case for case in comparison.finding.cases if case.answer is comparison.answer]
    worst = max(cases, key=lambda case: case.ratio.estimate if case.ratio else 0.0, default=None)
    if worst is None:
        return ""
    told = f"{worst.ratio}; {worst.reason}" if worst.ratio else worst.reason
    several = f", {len(cases)} of {len(comparison.finding.cases)} cases"
    return f": {told}{several if len(comparison.finding.cases) > 1 else ''}"
