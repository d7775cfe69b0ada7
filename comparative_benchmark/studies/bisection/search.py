"""Which candidate is the first bad one: a search over answers that knows not how they come about.

Candidates stand in a line, oldest first. The first one is known to be good, the last one to be bad.
Each question halves the line while its answer is good or bad; a candidate that cannot be judged is
left out, and the next question moves away from it, since what breaks one commit mostly breaks its
neighbours (as `git bisect skip` does). What is found is a step: a good candidate, then a bad one,
with nothing between them but what could not be judged. Where answers go back and forth there is
more than one step; the search finds one of them, the last that its answers show.
"""

import enum
from collections.abc import Callable, Mapping

import attrs


class Answer(enum.Enum):
    """What is known of a candidate."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "unclear"
    SKIPPED = "skipped"


_JUDGED = (Answer.GOOD, Answer.BAD)


@attrs.frozen(kw_only=True)
class Conclusion:
    """What a search comes to; candidates are positions in the line.

    Attributes:
      last_good, first_bad: the step.
      suspects: candidates between the two, none of which could be judged; the first bad one is
        `first_bad` or one of them. Empty if the step is exact.
      contradictions: (bad, good) with the bad one before the good one: more than one step.
    """

    last_good: int
    first_bad: int
    suspects: tuple[int, ...]
    contradictions: tuple[tuple[int, int], ...]

    @property
    def exact(self) -> bool:
        """Whether there is one first bad candidate."""
        return not self.suspects


class Search:
    """The answers so far, and what to ask next."""

    def __init__(self, count: int, known: Mapping[int, Answer] | None = None) -> None:
        if count < 2:
            raise ValueError(f"a search needs at least 2 candidates, got {count}")
        self._count = count
        self._answers = {0: Answer.GOOD, count - 1: Answer.BAD}
        for index, answer in (known or {}).items():
            self.record(index, answer)

    @property
    def answers(self) -> dict[int, Answer]:
        """What is known, by position."""
        return dict(self._answers)

    def record(self, index: int, answer: Answer) -> None:
        """Notes an answer.

        Raises:
          ValueError: there is no such candidate, or it is an end and known to be otherwise.
        """
        if not 0 <= index < self._count:
            raise ValueError(f"candidate {index} does not exist; expected 0 to {self._count - 1}")
        if index in (0, self._count - 1) and answer is not self._answers[index]:
            raise ValueError(f"candidate {index} is the {self._answers[index].value} end")
        self._answers[index] = answer

    def next_question(self, *, everything: bool = False) -> int | None:
        """Returns the candidate to judge next; None if no answer could change the conclusion.

        Args:
          everything: go on until each candidate has been asked about, to see every step.
        """
        good, bad = self._step()
        if untested := self._untested(good + 1, bad):
            unjudged = [i for i, answer in self._answers.items() if answer not in _JUDGED]

            def worth(index: int) -> tuple[int, int]:
                away = min((abs(index - other) for other in unjudged), default=self._count)
                # The middle, unless something close to it could not be judged.
                return min(index - good, bad - index, 2 * away), -index

            return max(untested, key=worth)
        rest = self._untested(0, self._count) if everything else []
        return rest[len(rest) // 2] if rest else None

    def conclusion(self) -> Conclusion:
        """Returns what the answers come to so far."""
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
    """Returns where the step is among `count` candidates, asking as few times as it can.

    Args:
      count: candidates; the first is good and the last is bad.
      ask: judges a candidate; called at most once for each.
      known: answers from before.
      everything: ask about every candidate, to see whether there is more than one step.
    """
    search = Search(count, known)
    while (index := search.next_question(everything=everything)) is not None:
        search.record(index, ask(index))
    return search.conclusion()
