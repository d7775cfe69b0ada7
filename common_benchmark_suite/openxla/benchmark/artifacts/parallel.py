"""Runs a list of tasks in a few threads, without waiting beyond a deadline."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from openxla.benchmark.artifacts.stores import Deadline

T = TypeVar("T")

# Tasks check the deadline themselves and give better messages. This extra time is for tasks that
# hang where no timeout applies: name resolution, a dead network file system.
_GRACE_S = 1.0


def run_all(
    tasks: Mapping[str, Callable[[], T]], *, parallel: int, deadline: Deadline
) -> tuple[dict[str, T], dict[str, Exception]]:
    """Runs tasks in threads; a failed task does not stop the others.

    The interpreter waits for threads of the standard library's pools at exit, so a hanging task
    would keep the program alive. It does not wait for these threads.

    Returns:
      results and exceptions, by task name; a task still running shortly after the deadline has a
      DeadlineError.
    """
    waiting = iter(list(tasks.items()))  # `next` on it is atomic
    done: queue.SimpleQueue[tuple[str, T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        for name, task in waiting:
            try:
                deadline.check(name)
                done.put((name, task(), None))
            except BaseException as error:
                done.put((name, None, error))

    for _ in range(min(parallel, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[str, T] = {}
    errors: dict[str, Exception] = {}
    for _ in tasks:
        try:
            name, result, error = done.get(timeout=deadline.remaining_s() + _GRACE_S)
        except queue.Empty:
            break
        if error is None:
            results[name] = result  # type: ignore[assignment]
        elif isinstance(error, Exception):
            errors[name] = error
        else:
            raise error
    late = {name: deadline.error(name) for name in tasks if name not in {**results, **errors}}
    return results, {**errors, **late}
