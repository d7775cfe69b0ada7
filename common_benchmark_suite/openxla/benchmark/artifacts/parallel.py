"""A few threads that work off a list of tasks, and a caller who never waits beyond a deadline."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import attrs

from openxla.benchmark.artifacts.stores.interface import Deadline

T = TypeVar("T")

# Tasks keep to the deadline themselves and know better what they were doing; this is for those
# that hang where no timeout reaches: name resolution, a dead network file system.
_GRACE_S = 1.0


@attrs.frozen
class Outcomes(Generic[T]):
    """What tasks returned, and what others raised, by their names."""

    results: dict[str, T]
    errors: dict[str, Exception]


def run_all(
    tasks: Mapping[str, Callable[[], T]], *, parallel: int, deadline: Deadline
) -> Outcomes[T]:
    """Runs tasks in threads; the failure of one costs no other.

    Threads of the standard library's pools are waited for when the interpreter ends, so that one
    that hangs would make the program hang; these are not.

    Returns:
      results and errors; a task that is not over shortly after the deadline has a DeadlineError.
    """
    waiting: queue.SimpleQueue[tuple[str, Callable[[], T]]] = queue.SimpleQueue()
    for item in tasks.items():
        waiting.put(item)
    done: queue.SimpleQueue[tuple[str, T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                name, task = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                deadline.check(name)
                done.put((name, task(), None))
            except BaseException as error:
                done.put((name, None, error))

    for _ in range(min(parallel, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    outcomes: Outcomes[T] = Outcomes({}, {})
    for _ in tasks:
        try:
            name, result, error = done.get(timeout=deadline.remaining_s() + _GRACE_S)
        except queue.Empty:
            break
        if error is None:
            outcomes.results[name] = result  # type: ignore[assignment]
        elif isinstance(error, Exception):
            outcomes.errors[name] = error
        else:
            raise error
    for name in tasks:
        if name not in outcomes.results and name not in outcomes.errors:
            outcomes.errors[name] = deadline.error(name)
    return outcomes
