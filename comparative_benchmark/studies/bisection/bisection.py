"""A bisection: are the ends what they are said to be, where is the step, is it really there?

Its oracle may be a race of environments, a userbenchmark, or whatever else tells good from bad.
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
    """What a bisection comes to.

    Attributes:
      ends: the last candidate against the first one.
      conclusion: where the step is; None if the last candidate is not bad.
      neighbours: the first bad candidate against the last good one; None where that was not raced.
    """

    candidates: tuple[Candidate, ...]
    ends: Comparison
    conclusion: Conclusion | None = None
    neighbours: Comparison | None = None

    @property
    def found(self) -> bool:
        """Whether one candidate is the first bad one, and differs from the one before it."""
        return (
            self.conclusion is not None
            and self.conclusion.exact
            and self.neighbours is not None
            and self.neighbours.answer is Answer.BAD
        )


class Bisection:
    """Asks an oracle until the first bad candidate is found; every answer is kept in a journal."""

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
        """Takes what the bisection needs to know.

        Args:
          oracle: tells good from bad.
          journal: with its candidates, oldest first; open.
          say: is told of every answer.
          threshold: from the bad cases at the bad end, the change below which a candidate is good.
          attempts: how often to look at a candidate while the answer is unclear.
          everything: judge every candidate, to see whether there is more than one step.
        """
        self._oracle = oracle
        self._journal = journal
        self._say = say
        self._threshold = threshold
        self._attempts = attempts
        self._everything = everything

    def run(self) -> Outcome:
        """Returns what it comes to.

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
        # The step was seen from afar, each side against the good end; here is where it must be.
        known = step == (0, len(candidates) - 1)
        neighbours = ends if known else self._compare(*step, focus)
        return Outcome(
            candidates=tuple(candidates),
            ends=ends,
            conclusion=conclusion,
            neighbours=neighbours,
        )

    def _compare(self, good: int, index: int, focus: Focus) -> Comparison:
        """Returns the entry of a pair, from the journal or else from the oracle."""
        candidates = self._journal.candidates
        first, second = candidates[good], candidates[index]
        found = self._journal.find(first.name, second.name)
        # What did not install may install now at an end; what was unclear may be allowed more.
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
    """Returns what a program may want to know of an outcome."""
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
    """Returns the reason of an answer, of the case that says most, in a few words."""
    if comparison.finding is None:
        return f": {comparison.reason}"
    cases = [case for case in comparison.finding.cases if case.answer is comparison.answer]
    worst = max(cases, key=lambda case: case.ratio.estimate if case.ratio else 0.0, default=None)
    if worst is None:
        return ""
    told = f"{worst.ratio}; {worst.reason}" if worst.ratio else worst.reason
    several = f", {len(cases)} of {len(comparison.finding.cases)} cases"
    return f": {told}{several if len(comparison.finding.cases) > 1 else ''}"
