"""What a person sees: progress while a run goes on, and tables of results."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console as RichConsole
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from comparative_benchmark.harness.trial import Trial
from comparative_benchmark.results.records import Record

_STYLES = {"ok": "green", "unsupported": "yellow", "unsteady": "yellow"}
_FAILED_STYLE = "red"


class Console:
    """Progress on stderr (one line a trial; a live line in a terminal), tables on stdout."""

    def __init__(self, *, verbose: bool = False, suites: Sequence[str] = ()) -> None:
        self._verbose = verbose
        self._suites = suites
        self._err = RichConsole(stderr=True, highlight=False)
        self._out = RichConsole(highlight=False)
        if not self._out.is_terminal:
            # A pipe has no width: never wrap what another program or a log will read.
            self._out = RichConsole(highlight=False, width=220)
        if not self._err.is_terminal:
            self._err = RichConsole(stderr=True, highlight=False, width=1000)
        self._live = False

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress."""
        self._err.print(Text(message, style=style))

    def preparing(self, what: str) -> None:
        """See `runner.Observer`."""
        self.say(f"preparing  {what}")

    def race_started(self, trials: Sequence[Trial], position: int, total: int) -> None:
        """See `runner.Observer`."""
        # A line that stands still: an animation would take time from the core that is measured.
        if self._err.is_terminal:
            what = str(trials[0])
            if len(trials) > 1:
                what = f"{trials[0].workload.label}, {len(trials)} competitors"
            self._err.print(f"[{position}/{total}] {what} ...", end="\r", markup=False)
            self._live = True

    def trial_finished(self, record: Record, position: int, total: int) -> None:
        """See `runner.Observer`."""
        self.close()
        definition, status = record["definition"], record["status"]
        line = Text(f"[{position:>{len(str(total))}}/{total}] ")
        line.append(f"{status:<13}", style=_STYLES.get(status, _FAILED_STYLE))
        line.append(f" {definition['model']}  {definition['backend']}:{definition['compiler']}")
        metrics = metrics_of(record)
        if status == "ok":
            line.append(f"  {digits(metrics['median_latency_ms'])} ms")
        else:
            line.append(f"  in {record['phase']}: {record['reason']}")
        self._err.print(line, soft_wrap=True)
        if self._verbose:
            self._print_details(record, metrics)

    def close(self) -> None:
        """Clears the live line."""
        if self._live:
            self._err.control(Control((ControlType.ERASE_IN_LINE, 2)))
            self._live = False

    def results(self, records: Sequence[Record]) -> None:
        """Prints results, workload x backend, and what is to be known of those that failed."""
        self._out.print(results_table(records))
        for record in records:
            if record["status"] != "ok":
                self._out.print(_problem(record, self._suites), soft_wrap=True)

    def _print_details(self, record: Record, metrics: Record) -> None:
        phases = {
            name: f"{phase['ms']:.1f}" if isinstance(phase, dict) else phase
            for name, phase in metrics["phases"].items()
        }
        self.say("    phases, ms: " + ", ".join(f"{k} {v}" for k, v in phases.items()))
        if log_file := record["log_file"]:
            self.say(f"    log: {log_file}")
        if trace := record.get("traceback"):
            self.say("".join(f"    {line}\n" for line in trace.splitlines()).rstrip())


def results_table(records: Iterable[Record]) -> Table:
    """Returns a table of results; a wrong or missing answer shows its reason instead of a time."""
    table = Table(title=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("from")
    table.add_column("backend", no_wrap=True)
    for heading in ("latency ms", "compile s", "peak MiB", "rel. error"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for record in records:
        definition, metrics = record["definition"], metrics_of(record)
        label = definition["workload"]["label"]
        if previous not in (None, label):
            table.add_section()
        status = record["status"]
        table.add_row(
            label if label != previous else "",
            definition["framework"].rpartition(".")[2].lower(),
            f"{definition['backend']}:{definition['compiler']}",
            _latency(metrics),
            _compile_time(definition, metrics),
            _scaled(metrics["host_memory_peak_mb"], 1e6 / 2**20, "{:.0f}"),
            _error(metrics),
            Text(status, style=_STYLES.get(status, _FAILED_STYLE)),
        )
        previous = label
    return table


def metrics_of(record: Record) -> Record:
    """Returns the metrics of a record, whatever their level."""
    metrics: Record = next(iter(record["metrics"].values()))
    return metrics


def digits(value: float, significant: int = 3) -> str:
    """Returns a number with so many significant digits, never in exponent form."""
    if value == 0:
        return "0"
    text = f"{value:.{significant}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def _problem(record: Record, suites: Sequence[str]) -> Text:
    """Says what happened to which trial, in which phase, and what to type next."""
    definition, status = record["definition"], record["status"]
    backend = f"{definition['backend']}:{definition['compiler']}"
    text = Text()
    text.append(status, style=_STYLES.get(status, _FAILED_STYLE))
    text.append(f"  {definition['model']}  {backend}  in {record['phase']}: {record['reason']}")
    if status == "unsupported":
        return text
    if record["log_file"]:
        text.append(f"\n    log:   {record['log_file']}")
    text.append(
        f"\n    again: cbs run --backend {backend} -name '{definition['benchmark_name']}' "
        f"-device {definition['device']} -o again.json --verbose"
        + "".join(f" --suite {suite}" for suite in suites)
    )
    return text


def _latency(metrics: Record) -> str:
    median = metrics.get("median_latency_ms")
    if median is None:
        return "-"
    spread = metrics.get("mad_latency_ms") or 0.0
    return f"{digits(median)} ± {digits(spread, 1)}"


def _compile_time(definition: Record, metrics: Record) -> str:
    if definition["compiler"] == "eager":
        return "none"
    return _scaled(metrics["compile_time_ms"], 1e-3, "{:.2f}")


def _error(metrics: Record) -> str:
    verification: dict[str, Any] | None = metrics["final_verification"] or metrics["verification"]
    error = verification["relative_rmse"] if verification else None
    return "-" if error is None else f"{error:.1e}"


def _scaled(value: float | None, factor: float, form: str) -> str:
    return "-" if value is None else form.format(value * factor)
