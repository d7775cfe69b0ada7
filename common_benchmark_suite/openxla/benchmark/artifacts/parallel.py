"""A few threads that work off a list of tasks, and a caller who never waits beyond a deadline."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from openxla.benchmark.artifacts.stores import Deadline

T = TypeVar("T")

# Tasks keep to the deadline themselves and know better what they were doing; this is for those
# that hang where no timeout reaches: name resolution, a dead network file system.
_GRACE_S = 1.0


def run_all(
    tasks: Mapping[str, Callable[[], T]], *, parallel: int, deadline: Deadline
) -> tuple[dict[str, T], dict[str, Exception]]:
    """Runs tasks in threads; the failure of one does not stop another.

    Threads of the standard library's pools are waited for when the interpreter ends, so that one
    that hangs would make the program hang; these are not.

    Returns:
      what tasks returned, and what others raised, by their names; a task that is not over shortly
      after the deadline has a DeadlineError.
    """
    waiting = iter(list(tasks.items()))  # `next` of it is atomic
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
