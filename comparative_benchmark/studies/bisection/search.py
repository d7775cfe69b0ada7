"""Searches for the first bad candidate, independently of how candidates are judged.

Candidates are ordered, oldest first; the first is known to be good, the last to be bad. The search
is a binary search while answers are good or bad. A candidate that cannot be judged is skipped, and
the next question moves away from it, because neighbouring commits often break for the same reason
(as in `git bisect skip`). The result is a step: a good candidate, followed by a bad one, with only
skipped candidates between them. If answers alternate, there are several steps; the search finds
the last one that its answers show.
"""

import enum
from collections.abc import Callable, Mapping

import attrs


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
      suspects: candidates between the two, none of which could be judged; the first bad one is
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

    @property
    def answers(self) -> dict[int, Answer]:
        """Answers by position."""
        return dict(self._answers)

    def record(self, index: int, answer: Answer) -> None:
        """Records an answer.

        Raises:
          ValueError: the candidate does not exist, or is an end with another known answer.
        """
        if not 0 <= index < self._count:
            raise ValueError(f"candidate {index} does not exist; expected 0 to {self._count - 1}")
        if index in (0, self._count - 1) and answer is not self._answers[index]:
            raise ValueError(f"candidate {index} is the {self._answers[index].value} end")
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
            (index, min(later for later in goods if later > index))
            for index in sorted(bads)
            if any(later > index for later in goods)
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
