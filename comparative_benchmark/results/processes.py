"""Work for all CPUs, in processes where there is much of it."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

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
