"""Before a race: do other processes use the machine, and shall it wait until they do not?"""

import sys
from collections.abc import Callable

from comparative_benchmark.machine import others

# Of the time that our CPUs have.
_MOST = 0.1


def wait_for_quiet(
    say: Callable[[str], None],
    *,
    ask: Callable[[str], str] | None = None,
    observe: Callable[[], others.Observed] = others.observe,
) -> None:
    """Says what others use of the machine if that is more than a tenth; waits if a person wishes.

    Others slow programs down unequally, so that a race beside them may have no verdicts.

    Args:
      say: prints a line.
      ask: asks a person a question and returns the answer; None where nobody is to be asked.
      observe: watches the machine for a second.
    """
    seen = observe()
    if not _is_busy(seen):
        return
    say(_told(seen))
    if ask is None:
        return
    if ask("wait until the machine is quiet? [Y/n] ").strip().lower() in ("n", "no"):
        return
    say("waiting; Ctrl-C ends, --busy does not ask")
    while _is_busy(observe()):
        pass
    say("the machine is quiet")


def ask_in_terminal() -> Callable[[str], str] | None:
    """Returns how to ask a person; None where none sits at a terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _ask


def _ask(question: str) -> str:
    # Standard output is for results.
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline() or "n"


def _is_busy(seen: others.Observed) -> bool:
    return (seen.conditions.foreign_cpu_share or 0.0) > _MOST


def _told(seen: others.Observed) -> str:
    used = f"others use {seen.conditions.foreign_cpu_share:.0%} of the time of our CPUs"
    names = f": {', '.join(seen.rows)}" if seen.busiest else ""
    return f"{used}{names}; a race beside them may have no verdicts (`cbs doctor`)"
