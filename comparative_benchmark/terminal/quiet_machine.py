"""Checks the machine's load before a race, and offers to wait until it is quiet."""

import sys
from collections.abc import Callable

from comparative_benchmark.analysis.machine import other_processes

# Largest share of the CPU time that other processes may use.
_MOST = 0.1


def wait_for_quiet(
    say: Callable[[str], None],
    *,
    ask: Callable[[str], str] | None = None,
    observe: Callable[[], other_processes.Observed] = other_processes.observe,
) -> None:
    """Prints how much of the machine other processes use, if that is more than a tenth.

    Other processes slow programs down unequally, so a race on a busy machine may have no verdicts.
    The user can choose to wait.

    Args:
      say: prints a line.
      ask: puts a question to the user and returns the answer; None to ask no question.
      observe: measures the load of the machine for a second.
    """
    seen = observe()
    if not _is_busy(seen):
        return
    say(_load_text(seen))
    question = "wait until the machine is quiet? [Y/n] "
    if ask is None or ask(question).strip().lower() in ("n", "no"):
        return
    say("waiting; press Ctrl-C to stop, or use --busy to skip this check")
    while _is_busy(observe()):
        pass
    say("the machine is quiet")


def ask_in_terminal() -> Callable[[str], str] | None:
    """Returns a function that asks the user; None without a terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _ask


def _ask(question: str) -> str:
    # Standard output is for results.
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline() or "n"


def _is_busy(seen: other_processes.Observed) -> bool:
    return (seen.conditions.foreign_cpu_share or 0.0) > _MOST


def _load_text(seen: other_processes.Observed) -> str:
    used = f"other processes use {seen.conditions.foreign_cpu_share:.0%} of the CPU time"
    names = f": {', '.join(seen.rows)}" if seen.busiest else ""
    return f"{used}{names}; the race may end without verdicts (see `cbs doctor`)"
