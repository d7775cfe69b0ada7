"""Compares results: two files case by case, or the competitors of one file with a baseline.

A case is a workload by one competitor on one device. What cannot be compared says why; only
verified, finished trials have a ratio, and nothing that goes wrong here becomes a verdict.
"""

import itertools
import math
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import CLOSE, NOISE_THRESHOLD
from comparative_benchmark.results.case import LATENCY, Case, cases_of, latest, matched
from comparative_benchmark.results.comparing.compare_pair import compared, without_ratio
from comparative_benchmark.results.comparing.comparison import (
    Comparison,
    Fate,
    Summary,
    exit_code,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.family import Family
from comparative_benchmark.results.comparing.noise_floor import (
    FEWEST_FOR_95,
    common_move,
    contended_side,
    is_of_move,
    program_digest,
    same_program,
    surroundings,
)
from comparative_benchmark.results.record import Document, Status

Job = TypeVar("Job")
Answer = TypeVar("Answer")


def map_jobs(
    function: Callable[[Job], Answer], jobs: Sequence[Job], *, processes: int
) -> list[Answer]:
    """Returns what a function answers to each job, in their order.

    Args:
      function: of a module, as processes find it.
      jobs: what travels to a process.
      processes: that share the work; with 1 it is done in this one.
    """
    if processes <= 1:
        return list(map(function, jobs))
    # Not by fork: the program may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        return list(pool.map(function, jobs, chunksize=max(1, len(jobs) // 64)))


def process_count(count: int, *, least: int) -> int:
    """Returns how many processes to take: one for each CPU, or 1 for few of something."""
    return len(os.sched_getaffinity(0)) if count >= least else 1


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
# Starting processes takes about as long as comparing so many pairs.
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
    """Returns every case of either document, the candidate's against the baseline's.

    A case is known by workload digest, competitor, device, framework and what was measured; where
    that finds none, by benchmark name or by architecture and batch size, to say what differs. Of a
    case that a file holds more than once, the latest counts. Ratios are unpaired, unless both are
    of one race: the machine may have changed between the files, which no statistics can tell.

    Args:
      baseline: the document to compare with.
      candidate: the document in question.
      threshold: differences of latencies below it are noise.
      count_unchanged: let a latency that differs be `faster` or `slower` even where the compiled
        program and the packages are the same, or where programs that are the same differ by as much
        between these files (docs/design/0005-unchanged-programs.md), as everything moved together,
        or as others disturbed one of the sides.
      changed_models: compare what has one name although it is another workload, and say so.
      usual_change: relative difference that a case shows from run to run, by its history.
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
        for item in both.values()
        if item.log_ratio and not item.paired and item.quantity == LATENCY
    )
    found: list[Comparison] = []
    for position, (old, new) in enumerate(pairs):
        if old is None or new is None:
            side = "baseline" if old is None else "candidate"
            found.append(without_ratio(new or old, Fate.MISSING, f"not in the {side}"))
        elif count_unchanged:
            found.append(both[position])
        else:
            item = _judged_by_program(both[position], old, new)
            found.append(_judged_by_machine(item, (old, new), floor, move, usual_change))
    return found


def _compared(job: tuple[Case, Case, float, bool]) -> Comparison:
    old, new, threshold, changed_models = job
    return compared(old, new, threshold=threshold, changed_models=changed_models)


def compare_to_baseline(
    cases: Iterable[Case],
    baseline: str = DEFAULT_BASELINE,
    *,
    threshold: float = NOISE_THRESHOLD,
) -> list[Comparison]:
    """Returns each competitor of a workload against the baseline competitor of that workload.

    Paired by process and round where both are of one race, else unpaired. Verdicts hold among all
    pairs of a workload's competitors, see `Family`. A workload that the baseline ran in several
    frameworks is compared within the same framework; where that has no baseline, with the only
    other one.
    """
    found: list[Comparison] = []
    groups: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in latest(cases):
        groups[case.workload, case.device, case.quantity].append(case)
    for group in groups.values():
        bases = [case for case in group if case.competitor == baseline]
        wrong = (base for base in bases if base.status is Status.WRONG_OUTPUT)
        found += [without_ratio(base, Fate.WRONG, base.why) for base in wrong]
        items = against_baseline(group, baseline, threshold=threshold)
        found += [item for item in items if item is not None]
    return found


def against_baseline(
    group: Sequence[Case], baseline: str, *, threshold: float = NOISE_THRESHOLD
) -> list[Comparison | None]:
    """Returns each case of a workload against its baseline, see `compare_to_baseline`.

    None stands for the baseline's own cases.
    """
    bases = [case for case in group if case.competitor == baseline]
    family = Family(group, threshold=threshold)
    found: list[Comparison | None] = []
    for case in group:
        same = [base for base in bases if base.framework == case.framework] or bases
        if case.competitor == baseline:
            found.append(None)
        elif len(same) == 1:
            found.append(family.comparison(same[0], case))
        elif case.status is Status.OK:
            reason = f"no result for {baseline}" if not same else f"several results for {baseline}"
            found.append(without_ratio(case, Fate.MISSING, reason))
        else:
            # What is wrong or unsupported is so without a baseline, too.
            fate = _FATES.get(case.status, Fate.MISSING)
            found.append(without_ratio(case, fate, case.why))
    return found


def _judged_by_program(item: Comparison, old: Case, new: Case) -> Comparison:
    """Withholds the verdict on a program that is the same on both sides.

    Such a program cannot be faster or slower through the compiler. Where its packages or settings
    differ the verdict stays, with a hint to them. Rounds of one race stay, too: drift cancels out
    there, so a difference is none of the machine's.
    """
    if not _is_of_two_times(item) or not same_program(old, new):
        return item
    if differ := surroundings(old, new):
        if program_digest(new.metrics) is None:  # then the packages are the program
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
    """Withholds a verdict on a difference that the machine may have made.

    An interval is of what happened within the files; what the machine does between them is not in
    it.

    Args:
      item: the comparison of the two sides.
      sides: baseline and candidate.
      floor: relative difference that unchanged programs show between the files.
      move: log ratio by which everything moved, see `common_move`.
      usual_change: see `compare_documents`.
    """
    if not _is_of_two_times(item) or item.log_ratio is None:
        return item
    reason = _machines_reason(item.log_ratio.estimate, sides, floor, move, usual_change)
    return item.withhold(reason) if reason else item


def _is_of_two_times(item: Comparison) -> bool:
    """Tells whether a verdict is on latencies that were measured at different times."""
    return item.is_decided and not item.paired and item.quantity == LATENCY


def _machines_reason(
    log: float,
    sides: tuple[Case, Case],
    floor: float,
    move: float,
    usual_change: Callable[[Case], float],
) -> str:
    """Says why a difference may be the machine's; empty if nothing speaks for it."""
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
    """Returns by how much unchanged programs differ between two files, as a share; 0 if none.

    Only what these two files show: what the machine did at another time does not measure them.
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
    """Returns the baseline of a table of results; None if there is nothing to compare.

    The baseline that the command of the latest run named comes first, then eager PyTorch, then the
    first competitor. Fixed counts give one process each, which supports no verdict.
    """
    names = list(dict.fromkeys(case.competitor for case in cases))
    raced = any(len(case.metrics.processes or ()) > 1 for case in cases)
    if len(names) < 2 or not raced:
        return None
    recorded = [named_baseline(case.run.trigger.command) for case in cases[-1:] if case.run]
    usual = [*recorded, DEFAULT_BASELINE]
    return next((name for name in usual if name in names), names[0])


def named_baseline(command: Sequence[str]) -> str | None:
    """Returns the value of `--baseline` in a command line."""
    for word, following in itertools.pairwise([*command, ""]):
        if word == "--baseline":
            return following
        if word.startswith("--baseline="):
            return word.partition("=")[2]
    return None
