"""What others took of CPUs and GPU while a trial was measured, over all of its blocks together.

A single block is too short for the ticks of the kernel: unless others took very much, they cannot
say. Blocks that are plainly disturbed are the only ones to be judged then, and counting those alone
would call each run disturbed; so a trial is judged by the sums over its blocks.
"""

from collections.abc import Sequence

from comparative_benchmark.machine import conditions
from comparative_benchmark.results.record import Block, Contention


def contention_of(blocks: Sequence[Block]) -> Contention:
    """Returns the verdicts on single blocks, and the one on all of them.

    `contended` is None where even together they are too short to tell, or where the system does not
    say what others did; `reasons` then say why.
    """
    verdicts = [block.conditions.contended if block.conditions else None for block in blocks]
    known = [block.conditions for block in blocks if block.conditions]
    # A source of another kind counts nothing.
    counted = len(known) == len(blocks) and all(found.totals for found in known)
    every = conditions.together(known) if counted else None
    return Contention(
        contended_blocks=sum(verdict is True for verdict in verdicts),
        clean_blocks=sum(verdict is False for verdict in verdicts),
        not_judged_blocks=sum(verdict is None for verdict in verdicts),
        contended=every.contended if every else None,
        reasons=every.reasons if every else (),
        foreign_cpu_share=every.foreign_cpu_share if every else None,
        steal_share=every.steal_share if every else None,
    )


def contention_warning(contentions: Sequence[Contention]) -> str | None:
    """Returns a warning if others disturbed trials of a run; None if not.

    Args:
      contentions: of each trial; those of older results have no verdict.
    """
    disturbed = [found for found in contentions if found.contended and found.reasons]
    if not disturbed:
        return None
    worst = max(disturbed, key=lambda found: found.foreign_cpu_share or 0.0)
    return (
        f"others disturbed {len(disturbed)} of {len(contentions)} trials "
        f"({worst.reasons[0]}): run `cbs doctor`, and again on a quiet machine"
    )
