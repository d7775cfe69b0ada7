"""A bisection: confirms both ends, locates the step, and verifies it in a direct comparison.

The oracle that judges candidates may race environments or run a userbenchmark. A state file has the
question and all answers, so that an interrupted bisection can be resumed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import attrs
import msgspec
from filelock import FileLock, Timeout

from comparative_benchmark.results.results_file import plain, write_atomically
from comparative_benchmark.studies.bisection.search import (
    Answer,
    BisectError,
    Candidate,
    CaseAnswer,
    Conclusion,
    Finding,
    Focus,
    Oracle,
    UnjudgeableError,
    locate,
)

SCHEMA_VERSION: Literal[1] = 1


@attrs.frozen(kw_only=True)
class Comparison:
    """A comparison of a candidate with a good one.

    Attributes:
      good, candidate: names of candidates.
      attempts: number of attempts until the answer was clear, or the limit was reached.
      answer: the final answer.
      reason: why it could not be judged; None if it was.
      finding: finding of the last attempt; None without an attempt.
    """

    good: str
    candidate: str
    attempts: int
    answer: Answer
    reason: str | None = None
    finding: Finding | None = None


@attrs.frozen(kw_only=True)
class _Document:
    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["bisection"] = "bisection"
    question: dict[str, Any]
    candidates: list[Candidate]
    comparisons: list[Comparison]
    conclusion: dict[str, Any] | None = None


class Journal:
    """A state file, locked by one process at a time; use as a context manager."""

    def __init__(self, path: Path, question: Mapping[str, Any]) -> None:
        self.path = path
        self.candidates: list[Candidate] = []
        self.comparisons: list[Comparison] = []
        self._question = dict(question)
        self._lock = FileLock(path.parent / f".{path.name}.lock")

    def __enter__(self) -> Self:
        """Reads existing entries.

        Raises:
          BisectError: the file is in use, is damaged, or belongs to another bisection.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise BisectError(f"another bisection is running in {self.path.parent}") from error
        except OSError as error:
            raise BisectError(f"{self.path.parent} cannot be written: {error}") from error
        try:
            if self.path.exists():
                self._read()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def start(self, candidates: Sequence[Candidate]) -> None:
        """Records the candidates once, so that new releases do not change them."""
        self.candidates = list(candidates)
        self._write()

    def find(self, good: str, candidate: str) -> Comparison | None:
        """Returns the comparison of a pair, if it exists."""
        return next(
            (c for c in self.comparisons if (c.good, c.candidate) == (good, candidate)), None
        )

    def add(self, comparison: Comparison) -> None:
        """Records a comparison, replacing one of the same pair; it is on disk on return."""
        pair = (comparison.good, comparison.candidate)
        self.comparisons = [c for c in self.comparisons if (c.good, c.candidate) != pair]
        self.comparisons.append(comparison)
        self._write()

    def conclude(self, conclusion: Mapping[str, Any]) -> None:
        """Records the outcome."""
        self._write(conclusion)

    def _write(self, conclusion: Mapping[str, Any] | None = None) -> None:
        document = _Document(
            question=self._question,
            candidates=self.candidates,
            comparisons=self.comparisons,
            conclusion=None if conclusion is None else dict(conclusion),
        )
        try:
            write_atomically(self.path, plain(document))
        except OSError as error:
            raise BisectError(f"{self.path} cannot be written: {error}") from error

    def _read(self) -> None:
        other = "move it, or choose another folder with -o"
        try:
            stored = msgspec.json.decode(self.path.read_bytes(), type=_Document)
        except (OSError, ValueError, RecursionError) as error:
            raise BisectError(
                f"{self.path} is not a bisection state file ({error}); {other}"
            ) from error
        # Convert through JSON, which turns tuples into lists.
        ours = json.loads(json.dumps(self._question))
        # Files of earlier versions do not contain these.
        theirs = {name: ours.get(name) for name in ("machine", "variables")} | stored.question
        if differ := [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]:
            changes = "; ".join(
                f"{name} was {theirs.get(name)!r}, now {ours.get(name)!r}" for name in differ
            )
            raise BisectError(f"{self.path} belongs to another bisection ({changes}); {other}")
        self.candidates, self.comparisons = stored.candidates, stored.comparisons


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
    def is_exact(self) -> bool:
        """Whether a single first bad candidate was found and differs from the one before it."""
        return (
            self.conclusion is not None
            and self.conclusion.exact
            and self.neighbours is not None
            and self.neighbours.answer is Answer.BAD
        )


@attrs.frozen
class Bisection:
    """Queries an oracle until the first bad candidate is found, recording answers in a journal.

    Attributes:
      oracle: judges candidates.
      journal: an open journal with the candidates, oldest first.
      say: receives each answer as a line of text.
      threshold: computes, from the bad cases at the bad end, the relative change below which a
        candidate is good; without cases, the user's own.
      attempts: maximum number of comparisons per candidate while the answer is unclear.
      everything: judge every candidate to detect multiple steps.
    """

    _oracle: Oracle
    _journal: Journal
    _say: Callable[[str], None] = attrs.field(kw_only=True)
    _threshold: Callable[[Sequence[CaseAnswer]], float | None] = attrs.field(
        default=lambda _: None, kw_only=True
    )
    _attempts: int = attrs.field(default=2, kw_only=True)
    _everything: bool = attrs.field(default=False, kw_only=True)

    def run(self) -> Outcome:
        """Runs the bisection.

        Raises:
          BisectError: an end cannot be judged.
        """
        candidates = self._journal.candidates
        ends = self._compare(0, len(candidates) - 1, Focus(threshold=self._threshold(())))
        if ends.answer is Answer.SKIPPED:
            raise BisectError(f"the good and bad ends cannot be compared: {_reason(ends)}")
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
            candidates=tuple(candidates), ends=ends, conclusion=conclusion, neighbours=neighbours
        )

    def _compare(self, good: int, index: int, focus: Focus) -> Comparison:
        """Returns the comparison of a pair from the journal, or else from the oracle."""
        candidates = self._journal.candidates
        first, second = candidates[good], candidates[index]
        result = self._journal.find(first.name, second.name)
        # Retry an end that failed to install, and unclear answers if more attempts are allowed.
        retried = result is not None and (
            (result.answer is Answer.SKIPPED and (good, index) == (0, len(candidates) - 1))
            or (result.answer is Answer.UNCLEAR and result.attempts < self._attempts)
        )
        if result is None or retried:
            tried = result.attempts if result and result.answer is Answer.UNCLEAR else 0
            result = self._ask(first, second, focus, tried)
            self._journal.add(result)
        self._say(f"{second} against {first.short}: {result.answer.value}{_reason_text(result)}")
        return result

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
                raise BisectError("nothing to compare: no selected case or metric can be measured")
            attempt += 1
            if finding.answer is not Answer.UNCLEAR or attempt >= self._attempts:
                return Comparison(
                    good=good.name,
                    candidate=candidate.name,
                    attempts=attempt,
                    answer=finding.answer,
                    finding=finding,
                )
            self._say(f"the result for {candidate} is unclear; repeating with more measurements")


def as_json(outcome: Outcome) -> Mapping[str, Any]:
    """Returns the outcome as JSON values."""
    names = [candidate.name for candidate in outcome.candidates]
    where = outcome.conclusion
    return {
        "found": outcome.is_exact,
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


def _reason(comparison: Comparison) -> str:
    if comparison.finding is None:
        return str(comparison.reason)
    return "; ".join(str(case) for case in comparison.finding.cases)


def _reason_text(comparison: Comparison) -> str:
    """Returns a short reason for an answer, from the case with the largest ratio."""
    if comparison.finding is None:
        return f": {comparison.reason}"
    cases = [case for case in comparison.finding.cases if case.answer is comparison.answer]
    worst = max(cases, key=lambda case: case.ratio.estimate if case.ratio else 0.0, default=None)
    if worst is None:
        return ""
    text = f"{worst.ratio}; {worst.reason}" if worst.ratio else worst.reason
    several = f", {len(cases)} of {len(comparison.finding.cases)} cases"
    return f": {text}{several if len(comparison.finding.cases) > 1 else ''}"


def as_text(outcome: Outcome, word: str, *, what: str, effort: str, measured: bool = True) -> str:
    """Returns the outcome in sentences, the conclusion first.

    Args:
      outcome: outcome of the bisection.
      word: describes a bad candidate, e.g. `slower`.
      what: the bisected package or repository.
      effort: options that make an unclear answer clearer.
      measured: whether `word` is relative to another candidate.
    """
    names = [candidate.short for candidate in outcome.candidates]
    where = outcome.conclusion
    if where is None:
        than = f"{word} than {names[0]}" if measured else word
        return "\n".join(_no_step(outcome, f"{what} {names[-1]}", than, effort))
    lines = _step(outcome, word, what, measured=measured)
    if outcome.neighbours is not None:
        lines += _cases(outcome.neighbours)
    for bad, good in where.contradictions:
        lines.append(
            f"the results alternate: {names[bad]} is bad, but {names[good]} after it is good. "
            "The change above is the last of several"
        )
    lines += _packages(outcome.neighbours or outcome.ends)
    return "\n".join(lines)


def _no_step(outcome: Outcome, last: str, than: str, effort: str) -> list[str]:
    if outcome.ends.answer is Answer.GOOD:
        verdict = f"{last} is not {than}"
        advice = "nothing to bisect"
    else:
        verdict = f"it is unclear whether {last} is {than} (attempts: {outcome.ends.attempts})"
        advice = f"increase one of {effort}, or reduce disturbances (run `cbs doctor`)"
    return [f"{verdict}: {advice}", *_cases(outcome.ends), *_packages(outcome.ends)]


def _step(outcome: Outcome, word: str, subject: str, *, measured: bool) -> list[str]:
    where, candidates = outcome.conclusion, outcome.candidates
    assert where is not None
    first, last = candidates[where.first_bad], candidates[where.last_good]
    if where.suspects:
        between = ", ".join(candidates[index].short for index in where.suspects)
        lines = [
            f"{subject} became {word} after {last.short} and no later than {first}",
            f"candidates in between without a clear result: {between}",
        ]
    else:
        lines = [f"{subject} became {word} in {first}; the last good candidate is {last.short}"]
    neighbours = outcome.neighbours
    if neighbours is not None and neighbours.answer is not Answer.BAD:
        than = f"{word} than {last.short}" if measured else word
        state = {
            Answer.GOOD: f"is not {than}",
            Answer.UNCLEAR: f"is not clearly {than}",
            Answer.SKIPPED: f"could not be compared with {last.short}",
        }[neighbours.answer]
        lines.append(
            f"but in a direct comparison, {first.short} {state}: the change may have come in "
            "small steps, or one result may be noise. Use --everything to test all candidates"
        )
    return lines


def _cases(comparison: Comparison) -> list[str]:
    if comparison.finding is None:
        return [f"  {comparison.reason}"]
    lines = [f"  {case}" for case in comparison.finding.cases]
    if comparison.finding.results:
        lines.append(f"  results: {comparison.finding.results}")
    return lines


def _packages(comparison: Comparison) -> list[str]:
    if comparison.finding is None or not comparison.finding.packages:
        return []
    return [
        "other packages that differ between the two candidates and may be the cause:",
        *(f"  {line}" for line in comparison.finding.packages),
    ]
