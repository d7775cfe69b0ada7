"""Disturbances of the GPU in use, in one block and in a series of blocks."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from comparative_benchmark.analysis.machine.gpu_clocks import GpuClocks, used

# As for CPUs: a median tolerates disturbances of few blocks.
BLOCKS_LIMIT = 0.05
# A clock under load varies by its steps of 15 MHz, which is less than 1 % of it.
CLOCK_FALL_LIMIT = 0.05
# Reasons that a program does not cause in normal operation. A power cap is the normal state of a
# program that works hard; if it comes and goes, the clock shows it.
THROTTLING = frozenset({"hardware slowdown", "heat (software)", "heat (hardware)", "power brake"})

# Whether there was a disturbance (None if unknown), and its description.
Finding = tuple[bool | None, str]


@attrs.frozen
class Ends:
    """GPUs at the start and at the end of a block; empty without GPUs."""

    start: Sequence[GpuClocks]
    end: Sequence[GpuClocks]


def of_block(ends: Ends) -> list[Finding]:
    """Returns disturbances of one block; empty for a block without a GPU."""
    if not ends.end:
        return []
    pids, known = _foreign(ends)
    slow = _held_back(ends)
    return [
        (
            True if pids else False if known else None,
            f"{_processes(pids)} the GPU"
            if pids
            else "unknown whether other processes use the GPU: the driver does not report them",
        ),
        (
            None if slow is None else bool(slow),
            f"the GPU's clocks were held back: {', '.join(slow)}"
            if slow
            else "unknown what holds the GPU's clocks back: the driver does not report it",
        ),
    ]


def of_blocks(blocks: Iterable[Ends]) -> list[Finding]:
    """Returns disturbances of a series of blocks, given in the order of measurement."""
    every = [ends for ends in blocks if ends.end]
    if not every:
        return []
    pids = sorted({pid for ends in every for pid in _foreign(ends)[0]})
    reasons = sorted({reason for ends in every for reason in _held_back(ends) or ()})
    return [
        _often(
            [bool(pids) if pids or known else None for pids, known in map(_foreign, every)],
            lambda often: f"{_processes(pids)} the GPU in {often}",
            "other processes use the GPU: the driver does not report them",
        ),
        _often(
            [None if found is None else bool(found) for found in map(_held_back, every)],
            lambda often: f"the GPU's clocks were held back in {often}: {', '.join(reasons)}",
            "the GPU's clocks are held back: the driver does not report it",
        ),
        _clock_fell(every),
    ]


def why_void(blocks: Iterable[Ends]) -> list[str | None]:
    """Returns for each block of one program why it is discarded; None if it counts.

    A block is discarded if heat or the hardware slowed the GPU down, or if its clock at the end of
    the block, right after the work, is below the clock of the program's fastest block.
    """
    every = list(blocks)
    clocks = [_mhz(ends) for ends in every]
    highest = _highest(clocks)
    reasons: list[str | None] = []
    for ends, mhz in zip(every, clocks, strict=True):
        throttled = sorted(THROTTLING.intersection(_held_back(ends) or ()))
        if throttled:
            reasons.append(f"the GPU was throttled: {', '.join(throttled)}")
        elif _fell(mhz, highest):
            reasons.append(f"the GPU's clock was {mhz} MHz, but {highest} MHz in other blocks")
        else:
            reasons.append(None)
    return reasons


def _clock_fell(every: Sequence[Ends]) -> Finding:
    """Compares clocks at the ends of blocks with the highest."""
    clocks = [_mhz(ends) for ends in every]
    highest = _highest(clocks)
    slowest = min((mhz for mhz in clocks if mhz is not None), default=0)
    return _often(
        [_fell(mhz, highest) for mhz in clocks],
        lambda often: f"the GPU's clock fell from {highest} to {slowest} MHz in {often}",
        "the GPU's clock fell: the driver does not report it",
    )


def _mhz(ends: Ends) -> int | None:
    gpu = used(ends.end)
    return gpu.sm_mhz if gpu else None


def _highest(clocks: Iterable[int | None]) -> int:
    return max((mhz for mhz in clocks if mhz is not None), default=0)


def _fell(mhz: int | None, highest: int) -> bool | None:
    return None if mhz is None else mhz < highest * (1 - CLOCK_FALL_LIMIT)


def _often(answers: Sequence[bool | None], says: Callable[[str], str], not_known: str) -> Finding:
    """Judges a series by the number of blocks that were, or may have been, disturbed."""
    yes, unknown = answers.count(True), answers.count(None)
    limit = BLOCKS_LIMIT * len(answers)
    if yes > limit:
        return True, says(f"{yes} of {len(answers)} blocks")
    return (None, f"unknown whether {not_known}") if yes + unknown > limit else (False, "")


def reports_users(ends: Ends) -> bool:
    """Returns whether the driver reports the processes on the GPU, at both ends of a block."""
    _, known = _foreign(ends)
    return known


def _foreign(ends: Ends) -> tuple[tuple[int, ...], bool]:
    """Returns foreign processes at either end, and whether they are known at both ends."""
    told = [gpu.foreign_pids if gpu else None for gpu in map(used, (ends.start, ends.end))]
    pids = sorted({pid for found in told for pid in found or ()})
    return tuple(pids), None not in told


def _held_back(ends: Ends) -> tuple[str, ...] | None:
    gpu = used(ends.end)
    return gpu.held_back_by if gpu else None


def _processes(pids: Sequence[int]) -> str:
    """Returns the subject of a sentence, with `uses` or `use`."""
    if len(pids) == 1:
        return f"another process (pid {pids[0]}) uses"
    return f"other processes (pids {', '.join(map(str, pids))}) use"
