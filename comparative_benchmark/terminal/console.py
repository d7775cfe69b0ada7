"""Terminal output: progress during a run, and tables of results."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.analysis.roofline.ceilings import Ceilings
from comparative_benchmark.analysis.stats.analysis import Interval
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing import compare_remarks
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    Summary,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.compare_remarks import mixture_remarks
from comparative_benchmark.results.journal import Entry
from comparative_benchmark.results.outcome import disturbances
from comparative_benchmark.results.record import (
    IntervalRecord,
    Phase,
    Result,
    ResultKey,
    Status,
    Training,
)
from comparative_benchmark.terminal import run_summary, tables
from comparative_benchmark.terminal.compare_views import latency_text, summary_line
from comparative_benchmark.terminal.screen import (
    NO_LIMIT,
    Column,
    FittedTable,
    fitted,
    output_screen,
)
from comparative_benchmark.terminal.status import LiveRace, StatusScreen
from comparative_benchmark.terminal.tables import digits, status_text

# Field, heading, and rank of its column.
_FIGURES = (
    ("prefill_ms", "prefill ms", 2),
    ("decode_ms_per_token", "ms per token", 1),
    ("tokens_per_s", "tokens/s", 0),
)

_BATCH = re.compile(r"_BATCH\d+$")


def generation_table(
    cases: Sequence[Case],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    *,
    width: int = NO_LIMIT,
) -> FittedTable | None:
    """Returns prefill, decode and throughput of generating cases; None without such cases.

    Only correct results have times; `generation_remarks` returns the reasons for the others.
    """
    generating = [case for case in cases if case.metrics.generation]
    if not generating:
        return None
    columns = [
        Column(heading="backend", cells=[case.competitor for case in generating]),
        Column(heading="from", cells=[case.framework for case in generating], rank=4),
        *(
            Column(
                heading=heading,
                cells=[_figure_of(case, name) for case in generating],
                rank=rank,
                right=True,
            )
            for name, heading, rank in _FIGURES
        ),
        Column(
            heading="status",
            cells=[status_text(case.result, expected) for case in generating],
            rank=3,
        ),
    ]
    labels = [case.label for case in generating]
    return fitted(columns, width, groups=labels, group_heading="generation")


def generation_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns the reasons why prefill and decode have no separate times, one per line."""
    competitors: dict[str, dict[str, None]] = {}
    for case in cases:
        generation = case.metrics.generation
        if case.status is Status.OK and generation and generation.not_measurable:
            competitors.setdefault(generation.not_measurable, {})[case.competitor] = None
    return [
        f"prefill and decode cannot be timed separately for {', '.join(names)}: {reason}"
        for reason, names in competitors.items()
    ]


def _figure_of(case: Case, name: str) -> str:
    generation = case.metrics.generation
    if not generation or case.status is not Status.OK:
        return "-"
    return _rate(getattr(generation, name), getattr(generation, f"{name}_interval"))


def training_table(
    cases: Sequence[Case],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    *,
    width: int = NO_LIMIT,
) -> FittedTable | None:
    """Returns the rates of training cases; None without such cases.

    If cases differ only in batch size, `scaling` is the rate relative to the smallest batch.
    """
    training = [case for case in cases if case.metrics.training]
    if not training:
        return None
    smallest = _smallest_batches(training)
    right = [case.metrics.training if case.status is Status.OK else None for case in training]

    def column(heading: str, text: Callable[[Case, Training], str], rank: int = 0) -> Column:
        cells = [
            text(case, value) if value else "-" for case, value in zip(training, right, strict=True)
        ]
        return Column(heading=heading, cells=cells, rank=rank, right=True)

    columns = [
        Column(heading="backend", cells=[case.competitor for case in training]),
        Column(heading="from", cells=[case.framework for case in training], rank=5),
        column("samples/s", lambda _, it: _rate(it.samples_per_s, it.samples_per_s_interval)),
        column("tokens/s", lambda _, it: _rate(it.tokens_per_s, it.tokens_per_s_interval), 3),
        column("optimizer", lambda _, it: _share(it), 4),
        Column(
            heading="status",
            cells=[status_text(case.result, expected) for case in training],
            rank=2,
        ),
    ]
    if len(smallest) < len(training):
        scaling = column(
            "scaling", lambda case, it: _scaling(it, smallest[_apart_from_batch(case)]), 1
        )
        columns.insert(3, scaling)
    labels = [case.label for case in training]
    return fitted(columns, width, groups=labels, group_heading="training step")


def training_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns how the optimizer's share is measured, and why some cases have none."""
    correct = [case for case in cases if case.status is Status.OK and case.metrics.training]
    remarks = []
    apart = sorted({case.competitor for case in correct if _is_of_programs(case.metrics.training)})
    if apart:
        remarks.append(
            f"~ optimizer: a step is a single program in {', '.join(apart)}; the share is measured "
            "on separately compiled programs"
        )
    reasons: dict[str, dict[str, None]] = {}
    for case in correct:
        training = case.metrics.training
        if training and training.parts_not_measurable:
            reasons.setdefault(training.parts_not_measurable, {})[case.competitor] = None
    remarks += [
        f"the parts of a step cannot be timed separately for {', '.join(names)}: {reason}"
        for reason, names in reasons.items()
    ]
    return remarks


def _apart_from_batch(case: Case) -> tuple[str, ...]:
    return _BATCH.sub("", case.result.definition.model), *case.runner, case.machine


def _smallest_batches(cases: Sequence[Case]) -> dict[tuple[str, ...], Training]:
    """Returns the smallest batches, to compute scaling; from correct cases if possible."""
    smallest: dict[tuple[str, ...], Training] = {}
    for case in cases:
        training = case.metrics.training
        assert training
        key = _apart_from_batch(case)
        known = smallest.setdefault(key, training)
        if case.status is not Status.OK:
            continue
        if known.samples_per_s is None or training.batch_size < known.batch_size:
            smallest[key] = training
    return smallest


def _scaling(training: Training, smallest: Training) -> str:
    if training.samples_per_s is None or smallest.samples_per_s is None:
        return "-"
    return f"{training.samples_per_s / smallest.samples_per_s:.2f}x"


def _is_of_programs(training: Any) -> bool:
    return bool(training) and any(times.how == "programs" for times in training.processes)


def _share(training: Training) -> str:
    if training.optimizer_share is None:
        return "-"
    return f"{'~' * _is_of_programs(training)}{100 * training.optimizer_share:.0f} %"


def _rate(value: float | None, limits: IntervalRecord | None) -> str:
    if value is None:
        return "-"
    return (
        latency_text(Interval(estimate=value, **attrs.asdict(limits))) if limits else digits(value)
    )


class Console:
    """Progress on stderr (one line per trial; a live line in a terminal), tables on stdout."""

    def __init__(self, *, verbose: bool = False, suites: Sequence[str] = ()) -> None:
        self._verbose = verbose
        self._suites = suites
        self._err = StatusScreen()
        self._race = LiveRace((), 1)
        self._out = output_screen()
        if not self._err.is_terminal:
            self._err = StatusScreen(width=NO_LIMIT)

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress."""
        self._err.print(Text(message, style=style))

    def plan(self, trials: Sequence[Trial]) -> None:
        """Prints the trials that a run would make, one per line."""
        for trial in trials:
            line = f"{trial.case.name}  {trial.competitor}"
            if trial.refused is not None:
                line += f"  {Status.UNSUPPORTED.value}: {trial.refused}"
            self._out.print(Text(line), soft_wrap=True)
        workloads = {trial.workload.digest for trial in trials}
        competitors = {str(trial.competitor) for trial in trials}
        self.say(
            f"trials: {len(trials)}, workloads: {len(workloads)}, competitors: {len(competitors)}; "
            "nothing was run"
        )

    def preparing(self, what: str) -> None:
        """See `runner.Observer`."""
        self.say(f"preparing  {what}")

    def race_started(
        self, trials: Sequence[Trial], position: int, total: int, processes: int
    ) -> None:
        """See `runner.Observer`."""
        subject = trials[0].workload.label
        if len(trials) > 1:
            subject += f", {len(trials)} competitors"
        self._err.at(subject, position - 1, total)
        self._race = LiveRace(trials, processes)
        self._err.show_table(self._race)

    def process_finished(self, entry: Entry) -> None:
        """See `runner.Observer`."""
        self._race.add(entry)
        self._err.advance(self._race.share * len(self._race.names))

    def trial_finished(self, result: Result, position: int, total: int) -> None:
        """See `runner.Observer`."""
        definition = result.definition
        line = Text(f"[{position:>{len(str(total))}}/{total}] ")
        line.append(f"{result.word:<13}", style=tables.style_of(result.word))
        line.append(f" {definition.model}  {definition.competitor}")
        median_ms = result.measured.median_ms
        if median_ms is not None:
            line.append(f"  {tables.digits(median_ms)} ms")
        elif result.status is not Status.OK:
            line.append(f"  in {result.phase}: {result.reason}")
        self._err.show_table(None)
        self._err.print(line, soft_wrap=True)
        if result.profile and result.profile.error:
            error = f"    no profile: {result.profile.error}"
            self._err.print(Text(error, style="yellow"), soft_wrap=True)
        if self._verbose:
            self._print_details(result)

    def following(self) -> AbstractContextManager[None]:
        """Shows the workers' activity during the block."""
        return self._err.following()

    def results(
        self,
        cases: Sequence[Case],
        *,
        baseline: str | None = None,
        ceilings: Sequence[Ceilings] = (),
        expected: Mapping[ResultKey, str] = MappingProxyType({}),
        with_absent: bool = True,
    ) -> None:
        """Prints tables of results, remarks on them, and the failures with their reasons.

        Backends that are not installed share one line instead of rows. If many trials are
        unsupported, they are listed by reason instead of in rows.

        Args:
          cases: the results.
          baseline: competitor to compute ratios against; None for no ratios.
          ceilings: limits of the devices; empty for no shares of the roof.
          expected: the reason for each expected failure.
          with_absent: whether to list backends that are not installed.
        """
        cases, absent = run_summary.split(cases)
        unsupported = tables.many_unsupported(cases, expected)
        # Comparing cases by value takes quadratic time.
        left_out = set(map(id, unsupported))
        rows = [case for case in cases if id(case) not in left_out]
        self._tables(rows, baseline, ceilings, expected)
        differences = tables.package_differences(case.result for case in cases)
        self.lines(
            *generation_remarks(cases),
            *training_remarks(cases),
            *compare_remarks.remarks_on(cases),
            *differences,
            *mixture_remarks(cases),
            *([absent] if absent and with_absent else []),
        )
        if baseline is not None and cases:
            comparisons = tables.comparisons(cases, baseline)
            for text in tables.unclear_lines(comparisons):
                self._out.print(text, soft_wrap=True)
            self._out.print(Text(summary_line(summarize_comparisons(comparisons))))
        for warning in disturbances([case.metrics for case in cases]):
            self._out.print(Text(warning, style="yellow"), soft_wrap=True)
        failed = [case.result for case in rows if case.status is not Status.OK]
        problems = tables.problems(failed, self._suites, expected)
        for text in (*tables.unsupported_lines(unsupported), *problems):
            self._out.print(text, soft_wrap=True)

    def _tables(
        self,
        cases: Sequence[Case],
        baseline: str | None,
        ceilings: Sequence[Ceilings],
        expected: Mapping[ResultKey, str],
    ) -> None:
        width = self._out.width
        compiled = [case.metrics.compile_only for case in cases]
        if any(compiled):
            self.fitted(tables.compile_table(cases, expected, width=width))
        if not all(compiled):
            self.fitted(
                tables.results_table(
                    cases, baseline=baseline, ceilings=ceilings, expected=expected, width=width
                )
            )
        if baseline is not None:
            self.lines(
                *(
                    f"{case.label}: compared with {case.competitor} as {baseline} is not ranked"
                    for case in tables.replacements(cases, baseline).values()
                )
            )
        for made in (generation_table, training_table):
            if table := made(cases, expected, width=width):
                self.fitted(table)

    def lines(self, *lines: str) -> None:
        """Prints lines below the tables."""
        for line in lines:
            self._out.print(Text(line), soft_wrap=True)

    def comparison(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        """Prints a comparison of two results files."""
        self.fitted(tables.comparison_table(comparisons, width=self._out.width))
        self._out.print(Text(summary_line(summary)))

    def fitted(self, table: FittedTable) -> None:
        """Prints a table, and the names of columns that do not fit."""
        self._out.print(table.table)
        if table.dropped:
            line = f"not shown: {', '.join(table.dropped)}; all columns need a width of "
            self._out.print(Text(f"{line}{table.needed}", style="dim"), soft_wrap=True)

    def table(self, table: Table) -> None:
        """Prints a table."""
        self._out.print(table)

    def _print_details(self, result: Result) -> None:
        phases = (
            f"{name} {phase.ms:.1f}" if isinstance(phase, Phase) else f"{name} {phase}"
            for name, phase in result.measured.phases.items()
        )
        self.say(f"    phases, ms: {', '.join(phases)}")
        if result.log_file:
            self.say(f"    log: {result.log_file}")
        if result.traceback:
            self.say("".join(f"    {line}\n" for line in result.traceback.splitlines()).rstrip())
