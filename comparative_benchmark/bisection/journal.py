"""The state file: what is asked, and every answer, so that an interrupted bisection goes on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
from filelock import FileLock, Timeout

from comparative_benchmark.bisection.oracle import (
    BisectError,
    Candidate,
    CaseAnswer,
    Finding,
    Ratio,
)
from comparative_benchmark.bisection.search import Answer
from comparative_benchmark.results.store import write_atomically

SCHEMA_VERSION = 1


@attrs.frozen(kw_only=True)
class Comparison:
    """One entry: a candidate against a good one.

    Attributes:
      good, candidate: names of candidates.
      attempts: how often it was tried until the answer was clear, or given up.
      answer: what it came to.
      reason: why it could not be judged; None if it was.
      finding: of the last attempt; None if there was none.
    """

    good: str
    candidate: str
    attempts: int
    answer: Answer
    reason: str | None = None
    finding: Finding | None = None


class Journal:
    """A state file that one process at a time works with; use as a context manager."""

    def __init__(self, path: Path, question: Mapping[str, Any]) -> None:
        self.path = path
        self.candidates: list[Candidate] = []
        self.comparisons: list[Comparison] = []
        self._question = dict(question)
        self._lock = FileLock(path.parent / f".{path.name}.lock")

    def __enter__(self) -> Self:
        """Reads what is there.

        Raises:
          BisectError: another process works with it, it is damaged, or asks another question.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise BisectError(f"another bisection is at work in {self.path.parent}") from error
        except OSError as error:
            raise BisectError(f"{self.path.parent} can not be written: {error}") from error
        try:
            if self.path.exists():
                self._read()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def start(self, candidates: Sequence[Candidate]) -> None:
        """Notes the line of candidates, once: what is released meanwhile does not move it."""
        self.candidates = list(candidates)
        self._write()

    def find(self, good: str, candidate: str) -> Comparison | None:
        """Returns the entry of that pair, if there is one."""
        return next(
            (c for c in self.comparisons if (c.good, c.candidate) == (good, candidate)), None
        )

    def add(self, comparison: Comparison) -> None:
        """Notes an entry, in place of one of the same pair; it is on disk when this returns."""
        pair = (comparison.good, comparison.candidate)
        self.comparisons = [c for c in self.comparisons if (c.good, c.candidate) != pair]
        self.comparisons.append(comparison)
        self._write()

    def conclude(self, conclusion: Mapping[str, Any]) -> None:
        """Writes down what it came to."""
        self._write(conclusion)

    def _write(self, conclusion: Mapping[str, Any] | None = None) -> None:
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": "bisection",
            "question": self._question,
            "candidates": [attrs.asdict(candidate) for candidate in self.candidates],
            "comparisons": [_as_json(comparison) for comparison in self.comparisons],
            "conclusion": conclusion,
        }
        try:
            write_atomically(self.path, document)
        except OSError as error:
            raise BisectError(f"{self.path} can not be written: {error}") from error

    def _read(self) -> None:
        other = "move it away, or choose another folder with -o"
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            version, kind = document["schema_version"], document["kind"]
            question = document["question"]
            candidates = [Candidate(**item) for item in document["candidates"]]
            comparisons = [_from_json(item) for item in document["comparisons"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BisectError(
                f"{self.path} is no state of a bisection ({error!r}); {other}"
            ) from error
        if (version, kind) != (SCHEMA_VERSION, "bisection"):
            raise BisectError(f"{self.path} is {kind} of schema version {version}; {other}")
        # As JSON gives it back: tuples are lists there.
        ours = json.loads(json.dumps(self._question))
        differ = [name for name in {**question, **ours} if question.get(name) != ours.get(name)]
        if differ:
            told = "; ".join(
                f"{name} was {question.get(name)!r}, is {ours.get(name)!r}" for name in differ
            )
            raise BisectError(f"{self.path} holds another bisection ({told}); {other}")
        self.candidates, self.comparisons = candidates, comparisons


def _as_json(comparison: Comparison) -> dict[str, Any]:
    def plain(_: Any, __: Any, value: Any) -> Any:
        return value.value if isinstance(value, Answer) else value

    return attrs.asdict(comparison, value_serializer=plain)


def _from_json(item: Mapping[str, Any]) -> Comparison:
    finding = None
    if (found := item["finding"]) is not None:
        cases = [
            CaseAnswer(
                case=case["case"],
                answer=Answer(case["answer"]),
                reason=case["reason"],
                ratio=Ratio(**case["ratio"]) if case["ratio"] else None,
            )
            for case in found["cases"]
        ]
        finding = Finding(
            cases=tuple(cases), results=found["results"], packages=tuple(found["packages"])
        )
    return Comparison(
        good=item["good"],
        candidate=item["candidate"],
        attempts=item["attempts"],
        answer=Answer(item["answer"]),
        reason=item["reason"],
        finding=finding,
    )
