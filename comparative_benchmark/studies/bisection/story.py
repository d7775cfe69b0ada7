"""The report at the end of a bisection."""

from comparative_benchmark.studies.bisection.bisection import Outcome
from comparative_benchmark.studies.bisection.journal import Comparison
from comparative_benchmark.studies.bisection.search import Answer


def tell(outcome: Outcome, word: str, *, what: str, effort: str, measured: bool = True) -> str:
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
            f"the answers alternate: {names[bad]} is bad, but {names[good]} after it is good. "
            "This is the last of several steps"
        )
    lines += _packages(outcome.neighbours or outcome.ends)
    return "\n".join(lines)


def _no_step(outcome: Outcome, last: str, than: str, effort: str) -> list[str]:
    if outcome.ends.answer is Answer.GOOD:
        verdict = f"{last} is not {than}"
        advice = "nothing to bisect"
    else:
        verdict = f"it is unclear whether {last} is {than} (attempts: {outcome.ends.attempts})"
        advice = f"increase one of {effort}, or reduce disturbances (see cbs doctor)"
    return [f"{verdict}: {advice}", *_cases(outcome.ends), *_packages(outcome.ends)]


def _step(outcome: Outcome, word: str, what: str, *, measured: bool) -> list[str]:
    where, candidates = outcome.conclusion, outcome.candidates
    assert where is not None
    first, last = candidates[where.first_bad], candidates[where.last_good]
    if where.suspects:
        between = ", ".join(candidates[index].short for index in where.suspects)
        lines = [
            f"{what} became {word} after {last.short}, at the latest in {first}",
            f"candidates between them that could not be judged: {between}",
        ]
    else:
        lines = [f"{what} became {word} in {first}; {last.short} is the last good one"]
    neighbours = outcome.neighbours
    if neighbours is not None and neighbours.answer is not Answer.BAD:
        than = f"{word} than {last.short}" if measured else word
        state = {
            Answer.GOOD: f"is not {than}",
            Answer.UNCLEAR: f"is not clearly {than}",
            Answer.SKIPPED: f"could not be compared with {last.short}",
        }[neighbours.answer]
        lines.append(
            f"but in a direct comparison {first.short} {state}: the change came in several small "
            "steps, or one answer is a chance result. Use --everything to judge each candidate"
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
        "these other packages differ between the two and may be the cause:",
        *(f"  {line}" for line in comparison.finding.packages),
    ]
