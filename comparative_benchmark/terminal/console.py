"""What a person sees: progress while a run goes on, and tables of results."""

from collections.abc import Sequence

from rich.console import Console as RichConsole
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from comparative_benchmark.results.compare import (
    Comparison,
    Summary,
    compare_to_baseline,
    summarize_comparisons,
)
from comparative_benchmark.results.contention import contention_warning
from comparative_benchmark.results.records import Record, competitor_of, metrics_of
from comparative_benchmark.roofline.ceilings import Ceilings
from comparative_benchmark.run.trial import Trial
from comparative_benchmark.terminal import tables
from comparative_benchmark.terminal.compare_views import summary_line
from comparative_benchmark.terminal.generation_table import generation_remarks, generation_table


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
        line.append(f"{status:<13}", style=tables.style_of(status))
        line.append(f" {definition['model']}  {competitor_of(definition)}")
        metrics = metrics_of(record)
        if "median_latency_ms" in metrics:
            line.append(f"  {tables.digits(metrics['median_latency_ms'])} ms")
        elif status != "ok":
            line.append(f"  in {record['phase']}: {record['reason']}")
        self._err.print(line, soft_wrap=True)
        if error := (record.get("profile") or {}).get("error"):
            self._err.print(Text(f"    no profile: {error}", style="yellow"), soft_wrap=True)
        if self._verbose:
            self._print_details(record, metrics)

    def close(self) -> None:
        """Clears the live line."""
        if self._live:
            self._err.control(Control((ControlType.ERASE_IN_LINE, 2)))
            self._live = False

    def results(
        self,
        records: Sequence[Record],
        *,
        baseline: str | None = None,
        ceilings: Sequence[Ceilings] = (),
    ) -> None:
        """Prints results, workload x backend, and what is to be known of those that failed.

        Args:
          records: what to print.
          baseline: competitor to take ratios against; None for no ratios.
          ceilings: what the devices can do at best; none for no shares of the roof.
        """
        compiled = [metrics_of(r).get("stop_reason") == "compile_only" for r in records]
        if any(compiled):
            self._out.print(tables.compile_table(records))
        if not all(compiled):
            table = tables.results_table(records, baseline=baseline, ceilings=ceilings)
            self._out.print(table)
        if generation := generation_table(records):
            self._out.print(generation)
        for line in generation_remarks(records):
            self._out.print(Text(line), soft_wrap=True)
        for line in tables.package_differences(records):
            self._out.print(Text(line), soft_wrap=True)
        if baseline is not None:
            comparisons = compare_to_baseline(records, baseline)
            self._out.print(Text(summary_line(summarize_comparisons(comparisons))))
        contentions = [metrics_of(record).get("contention") or {} for record in records]
        if warning := contention_warning(contentions):
            self._out.print(Text(warning, style="yellow"), soft_wrap=True)
        for record in records:
            if record["status"] != "ok":
                self._out.print(tables.problem(record, self._suites), soft_wrap=True)

    def comparison(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        """Prints a comparison of two results files."""
        self._out.print(tables.comparison_table(comparisons))
        self._out.print(Text(summary_line(summary)))

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
