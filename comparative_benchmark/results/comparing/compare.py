"""Compares results: two files case by case, or the competitors of one file with a baseline.

A case is a workload run by one competitor on one device. Cases that cannot be compared have a
reason; only verified, finished trials have a ratio, and errors never become a verdict.

All comparisons of one workload's competitors are judged as one family of tests. Readers look for
the best line of a table and compare it with all others, whatever the baseline is. The best and the
worst of nine equal programs differ by chance far more often than two given ones, so verdicts must
hold among all pairs. Tables, recommendations, reports and the API all use these verdicts.
"""

import contextlib
import itertools
import math
import multiprocessing
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    DECISIVE_PROCESSES,
    MIN_PROCESSES,
    NOISE_THRESHOLD,
    VERDICT_LEVEL,
    Verdict,
    holm,
)
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import LATENCY, Case, cases_of, latest, matched
from comparative_benchmark.results.comparing.comparison import (
    Comparison,
    Fate,
    Summary,
    compared,
    exit_code,
    summarize_comparisons,
    without_ratio,
)
from comparative_benchmark.results.comparing.noise_floor import (
    FEWEST_FOR_95,
    common_move,
    contended_side,
    is_of_move,
    program_digest,
    same_program,
    surroundings,
)
from comparative_benchmark.results.record import Document, Result, Status
from openxla.benchmark import synonyms


class Family:
    """The comparisons of the competitors of one workload.

    Uses Holm's procedure over all pairs: if all competitors are equal, the chance of any false
    `faster` or `slower` is 2 %, the same as for a single pair. Intervals are not adjusted.
    """

    def __init__(self, cases: Sequence[Case], *, threshold: float) -> None:
        """Creates the family of one workload's results; those without a ratio are excluded."""
        self._cases = list(cases)
        self._threshold = threshold
        self._pairs: dict[tuple[int, int], Comparison] = {}
        self._certain: dict[frozenset[int], bool] | None = None

    def comparison(self, old: Case, new: Case) -> Comparison:
        """Returns the comparison of a case with another one of the family."""
        item = self._pair(old, new)
        if not item.is_decided or self._is_certain(old, new):
            return item
        pairs = len(self._certain or ())
        return item.withhold(
            f"not significant among the {pairs} pairs of competitors for this workload"
        )

    def lacks_processes(self, old: Case, new: Case) -> bool:
        """Returns whether two competitors are undecided and have few processes."""
        item = self.comparison(old, new)
        fewest = min(len(case.metrics.processes or ()) for case in (old, new))
        is_open = item.verdict is Verdict.UNCLEAR and not item.disturbed
        return is_open and MIN_PROCESSES <= fewest < DECISIVE_PROCESSES

    def _is_certain(self, old: Case, new: Case) -> bool:
        if len(self._cases) == 2:
            return True
        if self._certain is None:
            self._certain = self._tested()
        return self._certain[_key(old, new)]

    def _tested(self) -> dict[frozenset[int], bool]:
        """Returns which of the testable pairs differ significantly."""
        p_values = {}
        for first, second in itertools.combinations(self._cases, 2):
            p_value = self._p_value(first, second)
            if p_value is not None:
                p_values[_key(first, second)] = p_value
        rejected = holm(list(p_values.values()), 1 - VERDICT_LEVEL)
        return dict(zip(p_values, rejected, strict=True))

    def _p_value(self, first: Case, second: Case) -> float | None:
        """Returns the p-value of a pair; None if neither side can be the baseline of the other."""
        pairs = [(first, second), (second, first)]
        # A recipe is compared with its stack, but not the other way round.
        pairs.sort(key=lambda pair: tuple(map(id, pair)) not in self._pairs)
        known = (self._pair(*pair).p_value for pair in pairs)
        return next((p_value for p_value in known if p_value is not None), None)

    def _pair(self, old: Case, new: Case) -> Comparison:
        key = (id(old), id(new))
        if key not in self._pairs:
            self._pairs[key] = compared(old, new, threshold=self._threshold)
        return self._pairs[key]


def lacks_processes(results: Sequence[Result]) -> bool:
    """Returns whether any two competitors of a workload are undecided and have few processes."""
    cases = [Case(result=result) for result in results if result.status is Status.OK]
    family = Family(cases, threshold=NOISE_THRESHOLD)
    return any(family.lacks_processes(*pair) for pair in itertools.combinations(cases, 2))


def _key(first: Case, second: Case) -> frozenset[int]:
    return frozenset((id(first), id(second)))


Job = TypeVar("Job")
Answer = TypeVar("Answer")


def map_jobs(
    function: Callable[[Job], Answer], jobs: Sequence[Job], *, processes: int
) -> list[Answer]:
    """Applies a function to each job and returns the results in order.

    Args:
      function: function defined at module level, so that processes can import it.
      jobs: arguments, which must be picklable.
      processes: number of processes; 1 means this process.
    """
    if processes <= 1:
        return list(map(function, jobs))
    # Do not fork, because the program may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        return list(pool.map(function, jobs, chunksize=max(1, len(jobs) // 64)))


def process_count(count: int, *, least: int) -> int:
    """Returns the number of processes to use: one per CPU, or 1 if there are few items.

    Outside `cbs`, it is 1: new processes import the main module, which may be a user's script.
    """
    is_worth_it = "comparative_benchmark.cli.command" in sys.modules and count >= least
    return len(os.sched_getaffinity(0)) if is_worth_it else 1


__all__ = [
    "Comparison",
    "Fate",
    "Summary",
    "compare_documents",
    "compare_to_baseline",
    "exit_code",
    "summarize_comparisons",
]

DEFAULT_BASELINE = "pt_inductor:eager"
# Starting processes takes about as long as comparing this number of pairs.
_WORTH_PROCESSES = 500
_FATES = {Status.WRONG_OUTPUT: Fate.WRONG, Status.UNSUPPORTED: Fate.UNSUPPORTED}


def compare_documents(
    baseline: Document,
    candidate: Document,
    *,
    threshold: float = NOISE_THRESHOLD,
    count_unchanged: bool = False,
    changed_models: bool = False,
    usual_change: Callable[[Case], float] = lambda _: 0.0,
) -> list[Comparison]:
    """Compares each case of either document, the candidate with the baseline.

    Cases are matched by workload digest, competitor, device, framework and measured quantity;
    failing that, by benchmark name or by architecture and batch size, to report what differs. If a
    file contains a case several times, the latest counts. Ratios are unpaired unless both sides ran
    in the same race: the machine may have changed between the files, which statistics cannot
    detect.

    Args:
      baseline: the document to compare with.
      candidate: the document to judge.
      threshold: smaller differences in latency count as noise.
      count_unchanged: whether a difference may be `faster` or `slower` although the machine may
        have caused it: the compiled program and the packages are the same, unchanged programs
        differ as much between these files (docs/design/0005-unchanged-programs.md), all cases moved
        together, or other processes disturbed one side.
      changed_models: whether to compare cases of the same name with different workloads, with a
        note.
      usual_change: returns the relative difference of a case from run to run, by its history.
    """
    pairs = list(matched(latest(cases_of(baseline)), latest(cases_of(candidate))))
    jobs = {
        position: (old, new, threshold, changed_models)
        for position, (old, new) in enumerate(pairs)
        if old and new
    }
    count = process_count(len(jobs), least=_WORTH_PROCESSES)
    items = map_jobs(_compared, list(jobs.values()), processes=count)
    both = dict(zip(jobs, items, strict=True))
    floor = _floor((*pairs[position], item) for position, item in both.items())
    move = common_move(
        (item.competitor.partition(":")[0], item.log_ratio.estimate)
        for (old, new, *_), item in zip(jobs.values(), items, strict=True)
        if item.log_ratio
        and not item.paired
        and item.quantity == LATENCY
        # A changed model may itself be slower or faster.
        and old.workload == new.workload
    )
    comparisons: list[Comparison] = []
    for position, (old, new) in enumerate(pairs):
        if old is None and new:
            comparisons.append(_alone(new, "not in the baseline"))
        elif old is None or new is None:
            comparisons.append(without_ratio(new or old, Fate.MISSING, "not in the candidate"))
        elif count_unchanged:
            comparisons.append(both[position])
        else:
            item = _judged_by_program(both[position], old, new)
            comparisons.append(_judged_by_machine(item, (old, new), floor, move, usual_change))
    return comparisons


def _compared(job: tuple[Case, Case, float, bool]) -> Comparison:
    old, new, threshold, changed_models = job
    return compared(old, new, threshold=threshold, changed_models=changed_models)


def compare_to_baseline(
    cases: Iterable[Case], baseline: str = DEFAULT_BASELINE, *, threshold: float = NOISE_THRESHOLD
) -> list[Comparison]:
    """Compares each competitor of a workload with the baseline competitor.

    Paired by process and round if both ran in the same race, else unpaired. Verdicts hold among all
    pairs of a workload's competitors, see `Family`. A workload that the baseline ran in several
    frameworks is compared within the same framework, or with the only result of the baseline.
    """
    comparisons: list[Comparison] = []
    groups: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in latest(cases):
        groups[case.workload, case.device, case.quantity].append(case)
    for group in groups.values():
        bases = [case for case in group if case.competitor == baseline]
        wrong = (base for base in bases if base.status is Status.WRONG_OUTPUT)
        comparisons += [without_ratio(base, Fate.WRONG, base.why) for base in wrong]
        comparisons += filter(None, against_baseline(group, baseline, threshold=threshold))
    return comparisons


def against_baseline(
    group: Sequence[Case], baseline: str, *, threshold: float = NOISE_THRESHOLD
) -> list[Comparison | None]:
    """Compares each case of a workload with its baseline, see `compare_to_baseline`.

    The result is None for the baseline's own cases.
    """
    bases = [case for case in group if case.competitor == baseline]
    family = Family(group, threshold=threshold)
    comparisons: list[Comparison | None] = []
    for case in group:
        same = [base for base in bases if base.framework == case.framework] or bases
        if case.competitor == baseline:
            comparisons.append(None)
        elif len(same) == 1:
            comparisons.append(family.comparison(same[0], case))
        else:
            number = "several results" if same else "no result"
            comparisons.append(_alone(case, f"{number} for {baseline}"))
    return comparisons


def _alone(case: Case, reason: str) -> Comparison:
    """Returns a case that lacks a baseline, which wrong or unsupported cases do not need."""
    why = reason if case.status is Status.OK else case.why
    return without_ratio(case, _FATES.get(case.status, Fate.MISSING), why)


def _judged_by_program(item: Comparison, old: Case, new: Case) -> Comparison:
    """Withholds the verdict if the program is the same on both sides.

    The compiler cannot make such a program faster or slower. If packages or settings differ, the
    verdict stays, with a note. Verdicts from rounds of one race also stay: drift cancels out there,
    so the machine cannot cause a difference.
    """
    if not _is_of_two_times(item) or not same_program(old, new):
        return item
    if differ := surroundings(old, new):
        if program_digest(new.metrics) is None:  # then the packages define the program
            return item
        return attrs.evolve(
            item, reason=f"{item.reason}; the compiled program is the same, but {differ}"
        )
    assert item.ratio is not None
    percent = 100 * (item.ratio.estimate - 1)
    same = "the compiled program and" if program_digest(new.metrics) else "nothing is compiled and"
    reason = (
        f"{same} the package versions are identical, so the machine caused the "
        f"{percent:{'+.1f' if abs(percent) < 10 else '+.0f'}} % difference"
    )
    return item.withhold(reason)


def _judged_by_machine(
    item: Comparison,
    sides: tuple[Case, Case],
    floor: float,
    move: float,
    usual_change: Callable[[Case], float],
) -> Comparison:
    """Withholds a verdict on a difference that the machine may have caused.

    Intervals cover the variance within the files, but not changes of the machine between them.

    Args:
      item: comparison of the two sides.
      sides: baseline and candidate.
      floor: relative difference of unchanged programs between the files.
      move: log ratio by which all cases moved, see `common_move`.
      usual_change: see `compare_documents`.
    """
    if not _is_of_two_times(item) or item.log_ratio is None:
        return item
    reason = _machines_reason(item.log_ratio.estimate, sides, floor, move, usual_change)
    return item.withhold(reason) if reason else item


def _is_of_two_times(item: Comparison) -> bool:
    """Returns whether a verdict compares latencies that were measured at different times."""
    return item.is_decided and not item.paired and item.quantity == LATENCY


def _machines_reason(
    log: float,
    sides: tuple[Case, Case],
    floor: float,
    move: float,
    usual_change: Callable[[Case], float],
) -> str:
    """Returns why the machine may have caused a difference; empty without evidence."""
    difference = math.expm1(abs(log))
    if difference <= floor:
        return (
            f"unchanged programs differ by up to {floor:.1%} between these files, so the machine "
            "may have caused this difference"
        )
    if is_of_move(log, move):
        direction = "slower" if move > 0 else "faster"
        median = f"{math.expm1(abs(move)):.0%}"
        return f"every backend is {direction} (median {median}), so the machine may have changed"
    side = contended_side(*sides)
    if side and difference <= CLOSE - 1:
        return f"other processes disturbed only the {side}, so the conditions differ"
    if difference <= (usual := usual_change(sides[1])):
        return f"according to the history, this case varies by up to {usual:.1%} between runs"
    return ""


def _floor(compared_cases: Iterable[tuple[Any, ...]]) -> float:
    """Returns the relative difference of unchanged programs between two files; 0 if unknown.

    Uses only these two files, because the machine's noise at other times does not apply to them.
    """
    logs = [
        abs(math.log(item.ratio.estimate))
        for old, new, item in compared_cases
        if item.ratio is not None
        and not item.paired
        and item.quantity == LATENCY
        and same_program(old, new)
        and not surroundings(old, new)
    ]
    if not logs:
        return 0.0
    share = 0.95 if len(logs) >= FEWEST_FOR_95 else 1.0
    return math.expm1(float(np.quantile(logs, share)))


def usual_baseline(cases: Sequence[Case]) -> str | None:
    """Returns the baseline for a table of results; None if there is nothing to compare.

    This is the baseline named by the command of the latest run, else eager PyTorch, else the first
    competitor. Runs with fixed counts have none, because one process each supports no verdict.
    """
    names = list(dict.fromkeys(case.competitor for case in cases if not case.result.absence))
    raced = any(len(case.metrics.processes or ()) > 1 for case in cases)
    if len(names) < 2 or not raced:
        return None
    recorded = [named_baseline(case.run.trigger.command) for case in cases[-1:] if case.run]
    for usual in (*recorded, DEFAULT_BASELINE):
        with contextlib.suppress(UsageError):
            return competitor_among(usual or "", names)
    return names[0]


def competitor_among(wanted: str, names: Sequence[str]) -> str:
    """Returns the competitor that `--baseline` names: itself, or the only one of a backend.

    Raises:
      UsageError: the name is contradictory, or refers to none of these competitors.
    """
    try:
        name = synonyms.competitor(wanted)
    except ValueError as error:
        raise UsageError(f"--baseline: {error}") from error
    of_backend = [other for other in names if other.partition(":")[0] == name]
    name = of_backend[0] if len(of_backend) == 1 else name
    if name not in names:
        choices = ", ".join(names)
        raise UsageError(f"--baseline {name!r} is not among the competitors: {choices}")
    return name


def named_baseline(command: Sequence[str]) -> str | None:
    """Returns the value of `--baseline` in a command line."""
    for word, following in itertools.pairwise([*command, ""]):
        if word == "--baseline":
            return following
        if word.startswith("--baseline="):
            return word.partition("=")[2]
    return None
