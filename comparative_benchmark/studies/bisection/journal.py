"""The state file with the question and all answers, for resuming an interrupted bisection."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import attrs
import msgspec
from filelock import FileLock, Timeout

from comparative_benchmark.results.results_file import plain, write_atomically
from comparative_benchmark.studies.bisection.oracle import BisectError, Candidate, Finding
from comparative_benchmark.studies.bisection.search import Answer

SCHEMA_VERSION: Literal[1] = 1


@attrs.frozen(kw_only=True)
class Comparison:
    """A comparison of a candidate with a good one.

    Attributes:
      good, candidate: names of candidates.
      attempts: number of attempts until the answer was clear, or the limit was reached.
      answer: the final answer.
      reason: why it could not be judged; None if it was.
      finding: finding of the last attempt; None if there was none.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            found = msgspec.json.decode(self.path.read_bytes(), type=_Document)
        except (OSError, ValueError, RecursionError) as error:
            raise BisectError(
                f"{self.path} is not a bisection state file ({error}); {other}"
            ) from error
        # Convert through JSON, which turns tuples into lists.
        ours = json.loads(json.dumps(self._question))
        both = {**found.question, **ours}
        if differ := [name for name in both if found.question.get(name) != ours.get(name)]:
            told = "; ".join(
                f"{name} was {found.question.get(name)!r}, now {ours.get(name)!r}"
                for name in differ
            )
            raise BisectError(f"{self.path} belongs to another bisection ({told}); {other}")
        self.candidates, self.comparisons = found.candidates, found.comparisons
