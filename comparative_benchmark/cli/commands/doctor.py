"""`cbs doctor`: checks this machine for benchmarking, and suggests fixes."""

import argparse
import json
import sys
from collections.abc import Sequence

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.analysis.machine.host import default_threads, usable_cpus
from comparative_benchmark.analysis.roofline import ceilings as roofs
from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.maintenance.doctor.checks import examine
from comparative_benchmark.maintenance.doctor.system import Finding, System
from comparative_benchmark.results.comparing import noise_floor as noise
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from comparative_benchmark.terminal.screen import Screen, output_screen
from comparative_benchmark.terminal.tables import digits
from openxla.benchmark.installation import root_dir

_STYLES = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "dim"}
_UNFIT = ("warning", "problem")
# Width of tables in a pipe.
_WIDTH = 160
_NOTHING_UNCHANGED = (
    "--noise-floor: no unchanged program was measured twice. Run a competitor twice, on one "
    "machine with the same packages; do not use eager, because it has no program to compare"
)


def run(options: argparse.Namespace) -> int:
    """Prints findings, and ceilings and noise floor if requested.

    Returns:
      0; 1 if ceilings could not be measured or results could not be read; 3 if the results
      contain no unchanged program; with `strict`, 2 on a warning or problem.

    Raises:
      UsageError: the number of threads or the device is invalid.
    """
    errors = Screen(stderr=True, highlight=False, soft_wrap=True)
    threads = default_threads().number if options.threads is None else options.threads
    if not 1 <= threads <= usable_cpus():
        raise UsageError(f"--threads {threads}: expected 1 to {usable_cpus()} (usable CPUs)")
    if options.device not in roofs.ACCELERATORS:
        known = ", ".join(roofs.ACCELERATORS)
        raise UsageError(
            f"no ceilings available for -device {options.device!r}; choices are {known}"
        )
    findings = examine(System(artifact_root=root_dir()))
    if not options.json:
        _print_findings(findings)
    on_cpu = roofs.ACCELERATORS[options.device] == "cpu"
    measured = roofs.load_ceilings(threads) if on_cpu else None
    if options.ceilings:
        measured = _measure(options, threads, errors)
        if measured is None:
            return EXIT_FAILED
    floor = None
    if options.noise_floor:
        try:
            floor = noise.noise_floor(map(read_document, options.noise_floor))
            if floor.pooled is None:
                print(f"cbs: {_NOTHING_UNCHANGED}", file=sys.stderr)
                return EXIT_MISSING
            path = noise.save_noise_floor(floor)
        except (ResultsFileError, noise.NoiseFloorError, OSError) as error:
            print(f"cbs: --noise-floor: {error}", file=sys.stderr)
            return EXIT_FAILED
        errors.print(Text(f"noise floor: {path}"))
    if options.json:
        print(json.dumps(as_json(findings, measured, floor), indent=2))
    if options.ceilings and measured and not options.json:
        output_screen(_WIDTH).print(ceilings_table(measured))
    if floor and not options.json:
        output_screen(_WIDTH).print(noise_table(floor))
        if floor.pooled and (outlook := floor.pooled.outlook(SamplingRule())):
            output_screen(_WIDTH).print(Text(str(outlook)))
    unfit = any(finding.status in _UNFIT for finding in findings)
    return EXIT_WRONG if options.strict and unfit else EXIT_OK


def _measure(options: argparse.Namespace, threads: int, errors: Screen) -> roofs.Ceilings | None:
    """Measures and saves ceilings; prints an error and returns None on failure."""
    try:
        measured = roofs.measure_ceilings(
            threads,
            say=lambda line: errors.print(Text(line)),
            device=options.device,
            budget_s=options.budget,
        )
        path = roofs.save_ceilings(measured)
    except roofs.CeilingsError as error:
        print("\n    ".join([f"cbs: {error.summary}", *error.reasons]), file=sys.stderr)
        return None
    except OSError as error:
        print(f"cbs: {error}", file=sys.stderr)
        return None
    errors.print(Text(f"ceilings: {path}"))
    return measured


def as_json(
    findings: Sequence[Finding],
    measured: roofs.Ceilings | None,
    floor: noise.NoiseFloor | None = None,
) -> dict[str, object]:
    """Returns findings, ceilings and noise floor as JSON.

    Ceilings are null if they were never measured. GPU ceilings are null unless measured now.
    """
    return {
        "findings": [attrs.asdict(finding) for finding in findings],
        "ceilings": attrs.asdict(measured) if measured else None,
        "noise_floor": attrs.asdict(floor) if floor else None,
    }


def findings_table(findings: Sequence[Finding]) -> Table:
    """Returns a table with a row for each finding."""
    table = Table()
    table.add_column("check", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("value", overflow="fold")
    for finding in findings:
        status = Text(finding.status, style=_STYLES[finding.status])
        table.add_row(finding.name, status, Text(finding.value))
    return table


def ceilings_table(measured: roofs.Ceilings) -> Table:
    """Returns a table of the ceilings, with the best of each data type marked."""
    title = (
        f"{measured.gpu or f'{measured.cpu_model}, threads: {measured.threads}'}, {measured.date}"
    )
    if measured.contended:
        title += " (other processes were busy: the true values are higher)"
    table = Table(title=title, title_justify="left")
    for heading in ("operation", "library", "size"):
        table.add_column(heading)
    table.add_column("best", justify="right")
    if measured.gpu:
        table.add_column("clock")
    for gemm in measured.gemms:
        mark = " *" if gemm is measured.best_gemm(gemm.data_type) else ""
        table.add_row(
            f"product {gemm.data_type}",
            f"{gemm.library} {gemm.version}",
            str(gemm.size),
            f"{_product_rate(gemm.gflops)}{mark or '  '}",
            *([_clock(gemm)] if measured.gpu else ()),
        )
    for copy in measured.copies:
        table.add_row(
            f"copy, {copy.threads} thread{'s' * (copy.threads > 1)}" if copy.threads else "copy",
            f"{copy.library} {copy.version}",
            f"{copy.buffer_bytes / 2**20:.0f} MiB",
            f"{digits(copy.gb_per_s)} GB/s  ",
            *([_clock(copy)] if measured.gpu else ()),
        )
    return table


def _product_rate(gflops: float) -> str:
    return f"{digits(gflops)} GFLOP/s" if gflops < 1e4 else f"{digits(gflops / 1e3)} TFLOP/s"


def _clock(rate: roofs.Gemm | roofs.Copy) -> str:
    """Returns a GPU's clock, with the reasons that limited it."""
    clock = "unknown clock" if rate.sm_mhz is None else f"{rate.sm_mhz} MHz"
    return f"{clock}, held back by {', '.join(rate.held_back_by)}" if rate.held_back_by else clock


def noise_table(floor: noise.NoiseFloor) -> Table:
    """Returns a table of differences between runs of unchanged programs, in percent."""
    table = Table(title=f"noise floor, {floor.machine}", title_justify="left")
    table.add_column("competitor", no_wrap=True)
    for heading in ("programs", "pairs of runs", "median %", "95 %", "max %"):
        table.add_column(heading, justify="right")
    rows = list(floor.competitors.items())
    if floor.pooled and len(rows) > 1:
        rows.append(("all", floor.pooled))
    for name, item in rows:
        few = item.pairs < noise.FEWEST_FOR_95
        table.add_row(
            name,
            str(item.programs),
            str(item.pairs),
            f"{item.median_percent:.2g}",
            "-" if few else f"{item.p95_percent:.2g}",
            f"{item.largest_percent:.2g}",
        )
    return table


def _print_findings(findings: Sequence[Finding]) -> None:
    out = output_screen(_WIDTH)
    out.print(findings_table(findings))
    for finding in findings:
        if finding.status in _UNFIT:
            out.print(Text(f"\n{finding.name}: {finding.value}", style=_STYLES[finding.status]))
            out.print(Text(f"    effect: {finding.cost}"), soft_wrap=True)
            if finding.fix:
                out.print(Text(f"    fix:    {finding.fix}"), soft_wrap=True)
    out.print("\ncommands to check each value:")
    for finding in findings:
        out.print(Text(f"    {finding.name + ':':<17} {finding.verify}"), soft_wrap=True)
