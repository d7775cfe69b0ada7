"""Converts a benchmark's replicates to a result for the results file."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.machine import worker_settings
from comparative_benchmark.analysis.stats.analysis import (
    SampleError,
    latency_interval,
    unpaired_ratio,
)
from comparative_benchmark.analysis.stats.steadiness import FEWEST_SAMPLES, Steadiness, steadiness
from comparative_benchmark.interop.milabench.channel import PhaseOutcome
from comparative_benchmark.interop.milabench.config import Bench, definition
from comparative_benchmark.interop.milabench.processes.execution import Ended
from comparative_benchmark.results.outcome import contention_of, outlier_counts, summarize
from comparative_benchmark.results.record import (
    Block,
    IntervalRecord,
    Levels,
    Metrics,
    OneAlone,
    Process,
    Program,
    Result,
    Status,
    Throughput,
    ThroughputProcess,
)

# The test takes 0.1 ms; limit the number of warm-up lengths tried.
_MOST_TRIES = 64
TOO_FEW = f"fewer than {FEWEST_SAMPLES} rates: only the script's own warm-up is excluded"

_LARGEST_FACTOR = 256
# A smaller gain is noise, and not worth the memory.
_LEAST_GAIN = 1.02

_NO_NETWORK = ", but `run` has no network access; download the data in prepare.py"

# Most severe first.
_GRAVITY = (
    *(Status.UNSUPPORTED, Status.CRASHED, Status.TIMEOUT, Status.FAILED, Status.OUT_OF_MEMORY),
    *(Status.WRONG_OUTPUT, Status.UNSTEADY),
)


@attrs.frozen(kw_only=True)
class Steady:
    """The rates of one process after the warm-up.

    Attributes:
      warmup: number of rates before them.
      steadiness: result of the steadiness test; None if there were too few rates for it.
    """

    rates: tuple[float, ...]
    warmup: int
    steadiness: Steadiness | None

    @property
    def is_steady(self) -> bool:
        """Whether they are steady; too few to test are accepted."""
        return bool(self.rates) and (self.steadiness is None or self.steadiness.steady)

    @property
    def rate(self) -> float:
        """Their median, which is robust to interruptions."""
        return statistics.median(self.rates)


def without_warmup(rates: Sequence[float]) -> Steady:
    """Returns the rates after the warm-up: the longest steady suffix.

    At least half of the rates remain, and at least as many as the test needs. If no suffix is
    steady, all rates are returned, with the test's reason. If there are too few rates for the test,
    all are accepted, because the script chooses how many it reports and skips.
    """
    times_ms = [1000 / rate for rate in rates]
    most = min(len(rates) // 2, len(rates) - FEWEST_SAMPLES)
    if most < 0:
        return Steady(rates=tuple(rates), warmup=0, steadiness=None)
    step = max(1, most // _MOST_TRIES)
    first = steadiness(times_ms)
    rest, dropped = first, 0
    while not rest.steady and dropped + step <= most:
        dropped += step
        rest = steadiness(times_ms[dropped:])
    if not rest.steady:
        return Steady(rates=tuple(rates), warmup=0, steadiness=first)
    return Steady(rates=tuple(rates[dropped:]), warmup=dropped, steadiness=rest)


def together(processes: Sequence[Sequence[float]]) -> list[float]:
    """Adds up the n-th rates of processes that ran simultaneously.

    The processes ended together, so longer series are cut at their beginning.
    """
    shortest = min(map(len, processes), default=0)
    if not shortest:
        return []
    return [math.fsum(row) for row in zip(*(p[-shortest:] for p in processes), strict=True)]


def is_automatic(bench: Bench) -> bool:
    """Returns whether a benchmark's configuration contains `auto_batch(...)`."""
    return "auto_batch(" in json.dumps(bench.config, default=str)


def best_factor(rate: Callable[[int], float | None]) -> int:
    """Returns the best factor for the batch size: it is doubled while that gains 2 % or more.

    The search may stop early if the rate has a local maximum.

    Args:
      rate: runs the benchmark with a factor; returns None on failure, e.g. out of memory.
    """
    factor, best = 1, rate(1)
    if best is None:
        return 1
    while 2 * factor <= _LARGEST_FACTOR:
        faster = rate(2 * factor)
        if faster is None or faster < best * _LEAST_GAIN:
            break
        factor, best = 2 * factor, faster
    return factor


@attrs.frozen(kw_only=True)
class Replicate:
    """One run of a benchmark."""

    outcome: PhaseOutcome
    wall_s: float
    alone: PhaseOutcome | None = None
    foreign_cpu_share: float | None = None


def to_result(
    bench: Bench,
    replicates: Sequence[Replicate],
    *,
    run_id: str,
    device: str,
    versions: Mapping[str, str],
    config: Mapping[str, Any],
) -> Result:
    """Returns the result of a benchmark that ran once or more.

    Args:
      bench: the benchmark.
      replicates: its runs, in order.
      run_id: identifier of the run.
      device: as given with `-device`.
      versions: package versions of its environment.
      config: configuration that its processes received.
    """
    processes: list[ThroughputProcess] = []
    sums: list[list[float]] = []
    warmups: list[list[float]] = []
    for number, replicate in enumerate(replicates):
        measured = [_process(number, ended, replicate) for ended in replicate.outcome.ended]
        processes += [process for process, _ in measured]
        sums.append(together([steady.rates for _, steady in measured]))
        early = [steady.warmup for _, steady in measured]
        warmups.append(list(measured[0][0].rates[: early[0]]) if len(measured) == 1 else [])
    status, reason, traceback = _status(replicates, processes)
    units = _units(replicates)
    metrics: dict[str, Any] = {}
    rate = interval = None
    if status is Status.OK:
        samples_ms = [[1000 / value for value in replicate] for replicate in sums]
        rate = statistics.fmean(statistics.median(values) for values in sums)
        interval = _rate_interval(samples_ms)
        metrics = _measured(samples_ms, warmups, processes)
    else:
        metrics["error"] = f"{status.value} in run: {reason}"
    log = replicates[-1].outcome.ended
    return Result(
        run_id=run_id,
        definition=definition(bench, device, config, units),
        status=status,
        metrics=Levels(
            framework_level=Metrics(
                **metrics,
                compile_time_ms=None,
                input_data_transfer_ms=None,
                output_data_transfer_ms=None,
                autotuning_enabled=None,
                device_memory_peak_mb=_largest(p.device_memory_peak_mb for p in processes),
                host_memory_peak_mb=_largest(p.host_memory_peak_mb for p in processes),
                phases={},
                verification=None,
                final_verification=None,
                program=Program(),
                artifact_digests={},
                stop_reason="the script ended",
                throughput=Throughput(
                    units=units,
                    rate=rate,
                    rate_interval=interval,
                    weight=bench.weight,
                    processes=tuple(processes),
                    alone=_alone_of(replicates, sums) if status is Status.OK else None,
                ),
            )
        ),
        wall_s=round(sum(replicate.wall_s for replicate in replicates), 3),
        log_file=str(log[-1].log_file) if log else None,
        versions=dict(versions),
        phase="run" if status is not Status.OK else UNSET,
        reason=reason if status is not Status.OK else UNSET,
        traceback=traceback or UNSET,
    )


def _process(number: int, ended: Ended, replicate: Replicate) -> tuple[ThroughputProcess, Steady]:
    observed = ended.observed
    steady = without_warmup(observed.measured)
    status, reason = _status_of(ended, steady)
    notes = [f"{oddity}: {count}" for oddity, count in sorted(observed.oddities.items())]
    if steady.steadiness is None and steady.rates:
        notes.append(TOO_FEW)
    if network := _network(ended):
        notes.append(network)
    if not ended.isolated:
        notes.append("the network could not be disabled, only blocked through proxy variables")
    if ended.left:
        notes.append(f"leftover processes that were killed: {ended.left}")
    process = ThroughputProcess(
        replicate=number,
        tag=ended.tag,
        status=status,
        reason=reason,
        devices=ended.devices,
        cpus=ended.cpus,
        rates=tuple(observed.measured),
        warmup=steady.warmup,
        steadiness=steady.steadiness,
        losses=(observed.losses[0], observed.losses[-1]) if observed.losses else (),
        wall_s=ended.wall_s,
        cpu_s=ended.cpu_s,
        involuntary_switches=ended.involuntary_switches,
        foreign_cpu_share=replicate.foreign_cpu_share,
        host_memory_peak_mb=ended.peak_memory_bytes / 1e6 or None,
        device_memory_peak_mb=observed.device_memory_mb,
        device_use=observed.device_use,
        notes=tuple(notes),
    )
    return process, steady


def _network(ended: Ended) -> str:
    """Returns a note if the script tried to use the network, otherwise an empty string."""
    if ended.network_tries:
        return f"the script tried to reach the network (tries: {ended.network_tries}){_NO_NETWORK}"
    if ended.code and worker_settings.is_offline_error(ended.last_words):
        return f"the script needed the network{_NO_NETWORK}"
    return ""


def _status_of(ended: Ended, steady: Steady) -> tuple[Status, str | None]:
    observed = ended.observed
    network = f"; {tries}" if (tries := _network(ended)) else ""
    if ended.reason:
        status = Status.TIMEOUT if ended.timed_out else Status.FAILED
        return status, ended.reason + network
    if ended.code != 0 and not ended.stopped:
        words = f"; last output: {ended.last_words}" if ended.last_words else ""
        by_itself = ended.code is not None and ended.code > 0
        return Status.FAILED if by_itself else Status.CRASHED, ended.ending + words + network
    if observed.nan_loss is not None:
        return Status.WRONG_OUTPUT, f"loss number {observed.nan_loss} was NaN or infinite"
    if not steady.rates:
        error = f": the voirfile failed: {ended.instrument_error}" if ended.instrument_error else ""
        return Status.FAILED, f"the script reported no rates{error}{network}"
    if not steady.is_steady:
        assert steady.steadiness is not None
        reason = f"the rates never became steady: {steady.steadiness.reason}"
        if (count := len(steady.rates)) < 2 * FEWEST_SAMPLES:
            reason += (
                f"; at most {count - FEWEST_SAMPLES} of {count} rates can be warm-up, so report "
                f"at least {2 * FEWEST_SAMPLES} rates (with voir: --override "
                f"NAME.voir.options.stop={2 * FEWEST_SAMPLES})"
            )
        return Status.UNSTEADY, reason
    return Status.OK, None


def _status(
    replicates: Sequence[Replicate], processes: Sequence[ThroughputProcess]
) -> tuple[Status, str | None, str | None]:
    for outcome in (replicate.outcome for replicate in replicates):
        if outcome.status is not Status.OK:
            return outcome.status, outcome.reason, outcome.traceback
    worst = min(
        (p for p in processes if p.status is not Status.OK),
        key=lambda process: _GRAVITY.index(process.status),
        default=None,
    )
    if worst is not None:
        where = f"{worst.tag}: " if len(processes) > 1 else ""
        return worst.status, f"{where}{worst.reason}", None
    if not all(replicate.outcome.ended for replicate in replicates):
        return Status.FAILED, "the benchfile ran no commands", None
    return Status.OK, None, None


def _units(replicates: Sequence[Replicate]) -> str:
    ended = [ended for replicate in replicates for ended in replicate.outcome.ended]
    return ended[0].observed.measured_units if ended else "items/s"


def _rate_interval(samples_ms: Sequence[Sequence[float]]) -> IntervalRecord | None:
    if len(samples_ms) < 2:
        return None
    ms = latency_interval(samples_ms)
    return IntervalRecord(
        low=1000 / ms.high, high=1000 / ms.low, level=ms.level, processes=ms.processes
    )


def _alone_of(replicates: Sequence[Replicate], sums: Sequence[Sequence[float]]) -> OneAlone | None:
    """Returns the measurements of one process alone; None if it did not run, or failed."""
    if any(replicate.alone is None for replicate in replicates):
        return None
    alone, together_ms, processes = [], [], []
    for number, (replicate, sum_of_all) in enumerate(zip(replicates, sums, strict=True)):
        assert replicate.alone is not None
        measured = [_process(number, ended, replicate) for ended in replicate.alone.ended]
        if len(measured) != 1 or measured[0][0].status is not Status.OK:
            return None
        [(process, steady)] = measured
        processes.append(process)
        alone.append(list(steady.rates))
        count = len(replicate.outcome.ended)
        together_ms.append([1000 * count / rate for rate in sum_of_all])
    alone_ms = [[1000 / rate for rate in rates] for rates in alone]
    try:
        share = unpaired_ratio(alone_ms, together_ms).interval()
    except SampleError:
        return None
    return OneAlone(
        rate=statistics.fmean(statistics.median(rates) for rates in alone),
        share=share.estimate,
        share_interval=IntervalRecord(
            low=share.low, high=share.high, level=share.level, processes=share.processes
        )
        if share.processes > 1
        else None,
        processes=tuple(processes),
    )


def _measured(
    samples_ms: Sequence[Sequence[float]],
    warmups: Sequence[Sequence[float]],
    processes: Sequence[ThroughputProcess],
) -> dict[str, Any]:
    blocks = [Block(latencies_ms=tuple(samples)) for samples in samples_ms]
    samples = [value for replicate in samples_ms for value in replicate]
    warmup_ms = [1000 / rate for replicate in warmups for rate in replicate]
    wall_s = sum(process.wall_s for process in processes)
    return {
        **summarize(samples, "latency_ms"),
        **summarize(warmup_ms, "warmup_latency_ms"),
        "warmup_iterations": len(warmup_ms),
        "benchmark_iterations": len(samples),
        "latencies_ms": tuple(samples),
        "warmup_latencies_ms": tuple(warmup_ms),
        "dispatch_ms": (),
        "device_latencies_ms": (),
        "contention": contention_of(blocks),
        "outliers": outlier_counts(samples_ms),
        "cpu_wall_ratio": sum(p.cpu_s for p in processes) / wall_s if wall_s else None,
        "processes": tuple(
            Process(
                blocks=(block,),
                warmup_iterations=len(warmup),
                stop_reason="the script ended",
                steadiness=processes[0].steadiness if len(processes) == 1 else None,
            )
            for block, warmup in zip(blocks, warmups, strict=True)
        ),
    }


def _largest(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)
