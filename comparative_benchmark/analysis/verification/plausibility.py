"""Plausibility of reported times and of truths.

A worker runs foreign code: a replaced clock, or a backend that does not wait or returns cached
outputs, would be the fastest of all. The parent checks times by its own clocks and by physics. The
limits are far from honest programs; `benchmarks/plausible_times.py` simulates a loaded machine.

A truth is in dispute if the outputs of several runtimes agree with each other, but not with it.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.verification import limits_of, open_array

# More than any core achieves. Cycles: the fastest clocks sold are 6.2 GHz. Float32: two AVX-512
# units of 16 multiply-adds, times four because transforms (Winograd) multiply less than is counted.
# Fewer bits: AMX, four tiles at a time. Bytes: three 64-byte accesses to the L1 cache.
_CYCLES_PER_S = 6.5e9
_FLOPS_PER_CYCLE = {"f64": 128.0, "f32": 256.0}
_MOST_FLOPS_PER_CYCLE = 16384.0
_BYTES_PER_CYCLE = 192.0
# A worker reads the state of the machine before and after a block, and encodes its answer.
_OVERHEAD_CPU_MS = 100.0
_OVERHEAD_CPU_MS_PER_BLOCK = 15.0
_OVERHEAD_MS = 500.0
# CPU time and wall time are read one after the other.
_CLOCK_SLACK_MS = 5.0
# Between two samples, the loop reads clocks and counters, and frees outputs. A training run copies
# its first weights back now and then, which takes less time than a step.
_LOOP_MS = 0.02
# Maximum factor for a first run on another input: caches are cold, and memory is new.
_COLD_FACTOR = 20.0
_COLD_MS = 0.5


def agreeing(
    outputs: Mapping[str, Sequence[Path]],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, str] | None:
    """Returns the first two runtimes whose outputs agree within the limits of a right output.

    Args:
      outputs: files of each runtime, by its name; all of them differ from the truth.
      truth: float64 files.
      reference: files in the model's own type.
      parameters: see `verification.verify`.
    """
    for one, other in itertools.combinations(outputs, 2):
        files = zip(outputs[one], outputs[other], truth, reference, strict=False)
        if len(outputs[one]) == len(outputs[other]) == len(truth) and all(
            _agree(*paths, parameters) for paths in files
        ):
            return one, other
    return None


def _agree(
    one: Path, other: Path, truth: Path, reference: Path, parameters: Mapping[str, float]
) -> bool:
    first, second = open_array(one), open_array(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind not in "fc" and first.dtype.name != "bfloat16":
        return bool(np.array_equal(first, second))
    expected = open_array(truth)
    limits = limits_of(expected, open_array(reference), parameters)
    if isinstance(limits, str):
        return False
    # Each may be off by the limit, which applies to outputs as large as the truth.
    allowed = 2 * limits.rmse * max(1.0, _rms(first) / (_rms(expected) or 1.0))
    # NaN agrees with nothing.
    return _rms(_wide(first) - _wide(second)) <= allowed


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _rms(values: npt.NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.abs(_wide(values)) ** 2)))


@attrs.frozen(kw_only=True)
class TimedBlock:
    """A block as the worker reports it, and as the parent saw it.

    Attributes:
      samples_ms: sum of the samples; the block has `iterations` of them, and ran `extra` more.
      wall_ms, cpu_ms: times of the timed loop, by the worker's clocks.
      seen_ms: from the command to the answer, by the parent's clock.
      seen_cpu_ms: CPU time of the worker meanwhile, from the kernel; None if it cannot be read.
    """

    samples_ms: float
    iterations: int
    extra: int
    wall_ms: float
    cpu_ms: float
    seen_ms: float
    seen_cpu_ms: float | None


def clock_problem(blocks: Sequence[TimedBlock], cpus: int) -> str | None:
    """Returns why the times of a process cannot be true; None if they can.

    Args:
      blocks: blocks of one process.
      cpus: number of CPUs of the machine.
    """
    if not blocks:
        return None
    samples, wall = (sum(getattr(b, name) for b in blocks) for name in ("samples_ms", "wall_ms"))
    cpu, seen = (sum(getattr(b, name) for b in blocks) for name in ("cpu_ms", "seen_ms"))
    if samples > 1.01 * wall + _CLOCK_SLACK_MS:
        return f"its samples add up to {samples:.3g} ms, but its blocks took {wall:.3g} ms"
    between = [b.wall_ms - 2 * b.samples_ms - _LOOP_MS * b.iterations for b in blocks]
    # A busy machine delays single blocks.
    total_ms = sum(max(ms, 0.0) for ms in between)
    if statistics.median(between) > _CLOCK_SLACK_MS and total_ms > _OVERHEAD_MS:
        return (
            f"its samples add up to {samples:.3g} ms, but its blocks took {wall:.3g} ms: it works "
            "between samples"
        )
    if cpu > 1.1 * cpus * wall + _CLOCK_SLACK_MS:
        return (
            f"it reports {cpu:.3g} ms of CPU time in {wall:.3g} ms, more than {cpus} CPUs can "
            "provide: its clock is wrong"
        )
    if wall > seen + _CLOCK_SLACK_MS * len(blocks):
        return f"it reports {wall:.3g} ms for blocks that took {seen:.3g} ms: its clock is wrong"
    # The minimum, because a busy machine may delay the worker in one block, but not in each.
    left = min(b.seen_ms - (1 + b.extra / b.iterations) * b.wall_ms - b.wall_ms for b in blocks)
    if len(blocks) > 2 and left > _OVERHEAD_MS:
        return (
            f"it reports {wall / len(blocks):.3g} ms per block, but each took at least "
            f"{left:.3g} ms longer: its clock is wrong"
        )
    if all(block.seen_cpu_ms is not None for block in blocks):
        hidden = sum(
            (b.seen_cpu_ms or 0.0) - (1 + b.extra / b.iterations) * b.cpu_ms for b in blocks
        )
        allowed = _OVERHEAD_CPU_MS + _OVERHEAD_CPU_MS_PER_BLOCK * len(blocks) + 0.5 * cpu
        if hidden > allowed:
            return (
                f"it used {hidden:.3g} ms of CPU time in blocks for which it reports {cpu:.3g} ms: "
                "its clock is wrong"
            )
    return None


def latency_problem(
    latencies_ms: Sequence[float],
    *,
    flops: int | None,
    weight_bytes: int | None,
    element_type: str,
    cpus: int,
) -> str | None:
    """Returns why no program can be as fast on CPUs as these samples; None if one can.

    Args:
      latencies_ms: samples of one process.
      flops: flops of an iteration, as counted from the model.
      weight_bytes: weight bytes that an iteration reads.
      element_type: the type that it computes in, e.g. `f32`; fewer bits for a quantised program.
      cpus: number of CPUs of the machine.
    """
    if not latencies_ms:
        return None
    median_ms = statistics.median(latencies_ms)
    rate = _FLOPS_PER_CYCLE.get(element_type, _MOST_FLOPS_PER_CYCLE)
    for amount, per_cycle, unit, verb in (
        (flops, rate, "FLOP", "perform the arithmetic of"),
        (weight_bytes, _BYTES_PER_CYCLE, "bytes", "read the weights of"),
    ):
        least_ms = (amount or 0) / (per_cycle * cpus * _CYCLES_PER_S) * 1e3
        if median_ms < least_ms:
            return (
                f"{median_ms:.2g} ms is too short to {verb} an iteration ({amount:.3g} {unit}): "
                f"{cpus} CPUs need at least {least_ms:.2g} ms. The program does not wait for its "
                "outputs, or it returns cached ones"
            )
    return None


def enough_ms(median_ms: float) -> float:
    """Returns the maximum time of a run on other inputs, given the median of the timed ones."""
    return _COLD_FACTOR * median_ms + _COLD_MS


def is_machine_slow(runs_ms: Sequence[float], seen_ms: Sequence[float]) -> bool:
    """Returns whether runs on seen inputs were as slow as runs on new ones at the same time.

    On a busy machine the threads of a program wait for a CPU after each pause. Programs that cache
    outputs, or compute when these are fetched, are fast on seen inputs.
    """
    return bool(runs_ms and seen_ms) and min(runs_ms) <= enough_ms(statistics.median(seen_ms))


def fresh_run_problem(median_ms: float, runs_ms: Sequence[float]) -> str | None:
    """Returns why timed iterations did less work than runs on other inputs; None if unproven.

    Args:
      median_ms: median of the timed iterations.
      runs_ms: times of single runs on inputs that the program had not seen, including fetching the
        outputs, minus the time of fetching them again.
    """
    if not runs_ms or min(runs_ms) <= enough_ms(median_ms):
        return None
    return (
        f"its timed iterations took {median_ms:.3g} ms, but a run on new inputs takes "
        f"at least {min(runs_ms):.3g} ms ({len(runs_ms)} runs): it does not wait for its outputs, "
        "or it returns cached ones"
    )
