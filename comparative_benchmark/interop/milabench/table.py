"""milabench's table for results with rates: failures, speed, spread, memory and score."""

import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self

import attrs
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comparative_benchmark.interop.milabench.config import Bench
from comparative_benchmark.interop.milabench.measuring import together
from comparative_benchmark.interop.milabench.processes.observed import Observed
from comparative_benchmark.results.record import Result, Status, Throughput, ThroughputProcess
from comparative_benchmark.terminal.screen import Screen, ruled_table
from comparative_benchmark.terminal.tables import script_name, share_text, style_of
from openxla.benchmark.text import printable

# Each redraw takes 1 ms of the CPUs that are measured.
_INTERVAL_S = 0.5
_LOSSES = 8
_WIDTH = 140

MISSING = "missing"
# Share of processes that may fail, as in milabench.
ALLOWED_FAILURE_RATE = 0.01
# The background load of an idle system stays below this share.
FOREIGN_CPU_LIMIT = 0.05
_FINE = (Status.OK, Status.UNSTEADY)
_HEADINGS = ("fail", "n", "perf", "units", "sem%", "std%", "peak_memory", "score", "weight")
_WIDE = ("sem%", "std%", "weight")


class Dash:
    """A live table on a terminal; plain lines elsewhere."""

    def __init__(self, kind: str, name: str) -> None:
        self._long = kind == "long"
        self._shown = kind != "no"
        self._name = name
        self._console = Screen(stderr=True)
        if not self._console.is_terminal:
            self._console = Screen(stderr=True, width=_WIDTH)
        self._processes: dict[str, Observed] = {}
        self._drawn = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._shown and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._processes:
            self._draw()
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Shows a message from a benchmark."""
        print(printable(text), file=sys.stderr)

    def listen(self, tag: str, observed: Observed) -> None:
        """Handles new events of a process."""
        self._processes[tag] = observed
        if self._shown and time.monotonic() - self._drawn >= _INTERVAL_S:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        for tag, observed in self._processes.items():
            print(f"{tag}: {', '.join(_cells(observed, long=self._long))}", file=sys.stderr)

    def _table(self) -> Table:
        table = Table("process", "rate", "loss", "progress", "device", box=None)
        for tag, observed in self._processes.items():
            table.add_row(tag, *_cells(observed, long=self._long))
        return table


def _cells(observed: Observed, *, long: bool) -> list[str]:
    rates = observed.measured
    rate = f"{rates[-1]:.5g} {observed.measured_units}" if rates else "no rate yet"
    losses = observed.losses[-_LOSSES if long else -1 :]
    loss = " ".join(f"{value:.4g}" for value in losses) or "-"
    progress = "-"
    if observed.progress is not None:
        done, total = observed.progress
        progress = f"{done}/{total or '?'}"
    device = "-"
    if observed.device_memory_mb is not None:
        use = observed.device_use
        device = f"{observed.device_memory_mb:.0f} MB"
        device += "" if use is None else f" {use:.0%}"
    return [rate, f"loss {loss}", f"progress {progress}", f"device {device}"]


@attrs.frozen(kw_only=True)
class Row:
    """A benchmark in the table.

    Attributes:
      status: its status, or `missing`.
      reason: why the status is not `ok`.
      fail, n: numbers of failed and of all processes; a benchmark that failed although none of its
        processes did counts as one failed process.
      perf: mean over processes of their median rate without warm-up; None without rates.
      sem: standard error of `perf`, as a share of it: between processes if there are two or more,
        otherwise of the rates of the single process.
      std: standard deviation of the rates within a process, as a share of their mean, averaged over
        the processes.
      peak_memory_mb: of the devices, or of the host if no device was used.
      score: sum of the rates of simultaneous processes, mean over replicates; failed processes
        count as 0, and so does a benchmark that failed although none of its processes did.
    """

    name: str
    status: str
    reason: str
    fail: int
    n: int
    perf: float | None = None
    units: str = ""
    sem: float | None = None
    std: float | None = None
    peak_memory_mb: float | None = None
    score: float = 0.0
    weight: float


@attrs.frozen(kw_only=True)
class Totals:
    """Totals over all benchmarks.

    Attributes:
      score: weighted geometric mean of the scores plus one, so that 0 is a valid score:
        `exp(sum(w log(score + 1)) / sum(w))`, as in milabench.
    """

    failure_rate: float
    score: float

    @property
    def passed(self) -> bool:
        """Whether the failure rate is acceptable."""
        return self.failure_rate <= ALLOWED_FAILURE_RATE


def rows(benches: Sequence[Bench], results: Sequence[Result]) -> list[Row]:
    """Returns rows for each benchmark, from its last results; those without results have failed."""
    last = _last_by_name(results)
    rows = []
    for bench in benches:
        own = [result for result in last.values() if result.definition.model == bench.name]
        rows += [_row(result, bench.weight) for result in own] or [_missing(bench)]
    return rows


def rows_of(results: Sequence[Result]) -> list[Row]:
    """Returns a row for the last result of each benchmark."""
    return [_row(result, None) for result in _last_by_name(results).values()]


def _last_by_name(results: Sequence[Result]) -> dict[str, Result]:
    return {script_name(result): result for result in results if result.measured.throughput}


def totals(rows: Sequence[Row]) -> Totals:
    """Returns the failure rate and score of all benchmarks."""
    processes = sum(row.n for row in rows)
    weight = math.fsum(row.weight for row in rows)
    logs = math.fsum(row.weight * math.log1p(row.score) for row in rows)
    return Totals(
        failure_rate=sum(row.fail for row in rows) / processes if processes else 1.0,
        score=math.exp(logs / weight) if weight else 0.0,
    )


def table(rows: Sequence[Row], *, narrow: bool = False) -> Table:
    """Returns the table for a terminal; a narrow one omits spread and weight."""
    shown = Table(box=None, padding=(0, 1)) if narrow else ruled_table()
    shown.add_column("bench", no_wrap=True)
    shown.add_column("status", no_wrap=True)
    for heading in _HEADINGS:
        if not (narrow and heading in _WIDE):
            shown.add_column(
                heading, justify="left" if heading == "units" else "right", no_wrap=True
            )
    for row in rows:
        cells = {
            "fail": str(row.fail),
            "n": str(row.n),
            "perf": "-" if row.perf is None else _digits(row.perf),
            "units": row.units if row.perf is not None else "-",
            "sem%": _percent(row.sem),
            "std%": _percent(row.std),
            "peak_memory": "-" if row.peak_memory_mb is None else f"{row.peak_memory_mb:.0f} MB",
            "score": _digits(row.score),
            "weight": f"{row.weight:.2f}",
        }
        texts = [text for heading, text in cells.items() if not (narrow and heading in _WIDE)]
        shown.add_row(row.name, Text(row.status, style=style_of(row.status)), *texts)
    return shown


def reasons(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each benchmark without a speed."""
    return [f"{row.name}: {row.status}: {row.reason}" for row in rows if row.reason]


def lines(total: Totals) -> list[str]:
    """Returns the lines below the table."""
    verdict = "PASS" if total.passed else "FAIL"
    return [
        "Scores",
        "------",
        f"Failure rate: {total.failure_rate:12.2%} ({verdict})",
        f"Score:        {total.score:12.2f}",
    ]


def remarks(results: Sequence[Result]) -> list[str]:
    """Returns notes on processes, and on CPU time used by other programs."""
    remarks = []
    for result in results:
        throughput = result.measured.throughput
        for process in throughput.processes if throughput else ():
            remarks += [f"{process.tag}: {note}" for note in process.notes]
            if (process.foreign_cpu_share or 0.0) > FOREIGN_CPU_LIMIT:
                remarks.append(
                    f"{process.tag}: other programs used {process.foreign_cpu_share:.0%} of the "
                    "CPUs"
                )
        remarks += _shared_cpus(throughput.processes if throughput else ())
        if throughput and throughput.alone:
            count = sum(process.replicate == 0 for process in throughput.processes)
            remarks.append(
                f"{result.definition.model}: each of {count} concurrent processes "
                f"reaches {share_text(throughput)} of the solo rate"
            )
    return list(dict.fromkeys(remarks))


def _shared_cpus(processes: Sequence[ThroughputProcess]) -> list[str]:
    """Returns a note if simultaneous processes shared CPUs."""
    at_once = [process for process in processes if process.replicate == 0]
    if len(at_once) < 2 or all(process.cpus for process in at_once):
        return []
    switches = sum(process.involuntary_switches for process in at_once)
    count = len(at_once)
    return [f"{at_once[0].tag}: {count} processes shared CPUs (preemptions: {switches})"]


def as_document(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the rows by name, and the totals, as JSON values."""
    total = totals(rows)
    return {
        "benchmarks": {row.name: attrs.asdict(row) for row in rows},
        "failure_rate": total.failure_rate,
        "passed": total.passed,
        "score": total.score,
    }


def _missing(bench: Bench) -> Row:
    return Row(
        name=bench.name, status=MISSING, reason="no result", fail=1, n=1, weight=bench.weight
    )


def _row(result: Result, weight: float | None) -> Row:
    throughput = result.measured.throughput
    assert isinstance(throughput, Throughput)
    processes = throughput.processes
    good = [_counted(process) for process in processes if process.status is Status.OK]
    failed = sum(p.status not in _FINE for p in processes)
    failed_without_process = not failed and result.status not in (*_FINE, Status.UNSUPPORTED)
    medians = [statistics.median(rates) for rates in good]
    return Row(
        name=script_name(result),
        status=result.status.value,
        reason=str(result.reason or ""),
        fail=failed + failed_without_process,
        n=max(len(processes), failed_without_process),
        perf=statistics.fmean(medians) if medians else None,
        units=throughput.units,
        sem=_sem(medians, good),
        std=_std(good),
        peak_memory_mb=result.measured.device_memory_peak_mb or result.measured.host_memory_peak_mb,
        score=0.0 if failed_without_process else _score(processes),
        weight=throughput.weight if weight is None else weight,
    )


def _counted(process: ThroughputProcess) -> Sequence[float]:
    return process.rates[process.warmup :]


def _sem(medians: Sequence[float], processes: Sequence[Sequence[float]]) -> float | None:
    if len(medians) > 1:
        error = statistics.stdev(medians) / math.sqrt(len(medians))
        return error / statistics.fmean(medians)
    if not processes or len(processes[0]) < 2:
        return None
    [rates] = processes
    return statistics.stdev(rates) / math.sqrt(len(rates)) / statistics.fmean(rates)


def _std(processes: Sequence[Sequence[float]]) -> float | None:
    spreads = [statistics.stdev(p) / statistics.fmean(p) for p in processes if len(p) > 1]
    return statistics.fmean(spreads) if spreads else None


def _score(processes: Sequence[ThroughputProcess]) -> float:
    replicates: defaultdict[int, list[Sequence[float]]] = defaultdict(list)
    for process in processes:
        good = process.status is Status.OK
        replicates[process.replicate] += [_counted(process)] if good else []
    sums = [statistics.median(together(rates) or [0.0]) for rates in replicates.values()]
    return statistics.fmean(sums) if sums else 0.0


def _digits(value: float) -> str:
    # Large matrices reach few Tflops on a CPU; avoid rounding them to 0.00.
    return f"{value:.2f}" if 0.1 <= value < 1e5 or not value else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
