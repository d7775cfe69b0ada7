"""What others took of CPUs and GPU while a trial was measured, over all of its blocks together.

A single block is too short for the ticks of the kernel: unless others took very much, they cannot
say. Blocks that are plainly disturbed are the only ones to be judged then, and counting those alone
would call each run disturbed; so a trial is judged by the sums over its blocks.
"""

from collections.abc import Iterator, Sequence

import attrs

from comparative_benchmark.machine import conditions, gpu_contention
from comparative_benchmark.results.record import Block, Contention, Metrics


def sound_and_void(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Returns the blocks of one process that count, and those that do not, with the reason."""
    every = [
        gpu_contention.Ends(found.gpus_at_start, found.gpus_at_end)
        if (found := block.conditions)
        else gpu_contention.Ends((), ())
        for block in blocks
    ]
    reasons = gpu_contention.why_void(every)
    judged = [attrs.evolve(block, void=why) for block, why in zip(blocks, reasons, strict=True)]
    return [b for b in judged if b.void is None], [b for b in judged if b.void is not None]


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


def disturbances(trials: Sequence[Metrics]) -> Iterator[str]:
    """Yields a sentence on blocks that do not count, and one on trials that others disturbed."""
    processes = [process for metrics in trials for process in metrics.processes or ()]
    if void := [block for process in processes for block in process.void_blocks]:
        yield f"{len(void)} blocks excluded: {void[-1].void}"
    if warning := contention_warning([found.contention or Contention() for found in trials]):
        yield warning


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
        f"{len(disturbed)} of {len(contentions)} trials were disturbed "
        f"({worst.reasons[0]}): run `cbs doctor`, then repeat the run on a quiet machine"
    )
