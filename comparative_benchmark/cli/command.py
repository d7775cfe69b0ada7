"""The `cbs` command, and the `run_benchmarks.py` of each backend."""

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from comparative_benchmark.artifacts import options as artifacts_options
from comparative_benchmark.bisection import options as bisection_options
from comparative_benchmark.doctor import options as doctor_options
from comparative_benchmark.formats import options as formats_options
from comparative_benchmark.history import options as history_options
from comparative_benchmark.onboarding import options as onboarding_options
from comparative_benchmark.parity import options as parity_options
from comparative_benchmark.report import options as report_options
from comparative_benchmark.repro import options as repro_options
from comparative_benchmark.terminal.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_READER,
    EXIT_OK,
    Parser,
    UsageError,
    add_list_options,
    add_run_options,
    add_sampling_options,
    fraction,
    select,
    spellings,
)
from comparative_benchmark.terminal.streams import hold_standard_streams, without_secrets
from comparative_benchmark.userbenchmarks import options as userbenchmark_options
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError
from openxla.benchmark.workloads import workload_of

_DISTRIBUTION = "common-benchmark-suite"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `cbs`; returns the exit code."""
    hold_standard_streams()
    parser = Parser(
        prog="cbs",
        description="Compares machine-learning compilers on the same verified workloads.",
    )
    parser.add_argument("--version", action="version", version=f"cbs {version(_DISTRIBUTION)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run benchmark cases and write results")
    run.add_argument(
        *spellings("--backend"),
        required=True,
        help="backends, e.g. jax_xla,pt_inductor:inductor+freezing,iree; `all` that are installed",
    )
    add_run_options(run)
    add_sampling_options(run)
    run.set_defaults(handler=_run_command)
    listing = commands.add_parser("list", help="list benchmark cases")
    add_list_options(listing)
    listing.set_defaults(handler=_list_command)
    backends = commands.add_parser("backends", help="list backends, compilers and their options")
    backends.set_defaults(handler=_backends_command)
    doctor = commands.add_parser("doctor", help="what is wrong with this machine, for measuring")
    doctor_options.add_arguments(doctor)
    doctor.set_defaults(handler=_doctor_command)
    parity = commands.add_parser("parity", help="is every workload right through every backend?")
    parity_options.add_arguments(parity)
    parity.set_defaults(handler=_parity_command)
    new_model = commands.add_parser("new-model", help="write the files of a new model")
    onboarding_options.add_new_model_arguments(new_model)
    new_model.set_defaults(handler=_new_model_command)
    check_model = commands.add_parser("check-model", help="does a model keep to the contract?")
    onboarding_options.add_check_model_arguments(check_model)
    check_model.set_defaults(handler=_check_model_command)
    for module in (formats_options, userbenchmark_options, bisection_options, history_options):
        module.add_parser(commands)
    repro = commands.add_parser("repro", help="make a directory that reproduces one result alone")
    repro_options.add_arguments(repro)
    repro.set_defaults(handler=_repro_command)
    artifacts = commands.add_parser("artifacts", help="make, publish, lock and fetch artifacts")
    artifacts_options.add_arguments(artifacts)
    artifacts.set_defaults(handler=artifacts_options.run)
    compare = commands.add_parser("compare", help="compare two results files, case by case")
    compare.add_argument("old", type=Path, help="the results to compare with")
    compare.add_argument("new", type=Path, help="the results in question")
    compare.add_argument(
        "--threshold", type=fraction, default=0.01, help="the noise threshold (default 0.01)"
    )
    compare.add_argument(
        *spellings("--count-unchanged"),
        dest="count_unchanged",
        action="store_true",
        help="let programs be faster or slower that are the same in both files",
    )
    compare.add_argument("--json", action="store_true", help="print JSON")
    compare.add_argument("--markdown", action="store_true", help="print Markdown")
    compare.set_defaults(handler=_compare_command)
    show = commands.add_parser("show", help="print the table of a results file")
    show.add_argument("results", type=Path, help="a results file")
    show.add_argument("--baseline", help="competitor to take ratios against")
    show.set_defaults(handler=_show_command)
    report = commands.add_parser("report", help="write results as a page, Markdown or a chart")
    report_options.add_arguments(report)
    report.set_defaults(handler=_report_command)
    return _guarded(parser.parse_args(arguments))


def run_backend_main(backend: str, arguments: Sequence[str] | None = None) -> int:
    """Runs the `run_benchmarks.py` of one backend; returns the exit code."""
    hold_standard_streams()
    parser = Parser(prog="run_benchmarks.py", description=f"Runs benchmarks with {backend}.")
    parser.add_argument(
        *spellings("-c", "--compiler"),
        action="append",
        help="compiler, with options as in name+option; may be repeated (default: all usual ones)",
    )
    add_run_options(parser)
    parser.set_defaults(handler=_run_command, backend=backend)
    return _guarded(parser.parse_args(arguments))


def _guarded(options: argparse.Namespace) -> int:
    """Calls the handler; a user's mistake becomes one sentence, Ctrl-C becomes 130."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code: int = options.handler(options)
    except KeyboardInterrupt:
        print("interrupted; finished results are kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `cbs list | head`: the reader has enough. Python would complain again at its exit. A gate
        # whose reader died has not passed: the code is that of a program that the pipe ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO_READER
    except (UsageError, DefinitionError, catalog.NoMatchError) as error:
        print(f"cbs: {without_secrets(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _terminate(_: int, __: Any) -> NoReturn:
    # As Ctrl-C: the way out that ends the workers and keeps the results.
    raise KeyboardInterrupt


def _run_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.cli import run_command

    return run_command.run(options)


def _list_command(options: argparse.Namespace) -> int:
    cases = select(options)
    rows = [(case, workload_of(case)) for case in cases]
    if options.workload:
        try:
            pattern = re.compile(options.workload)
        except re.error as error:
            raise UsageError(
                f"--workload {options.workload!r} is no regular expression: {error}"
            ) from error
        rows = [row for row in rows if pattern.search(row[1].id)]
    if options.json:
        print(json.dumps([_case_as_json(case, workload) for case, workload in rows], indent=2))
        return EXIT_OK
    width = max((len(case.name) for case, _ in rows), default=0)
    for case, workload in rows:
        print(f"{case.name:<{width}}  {workload.id}")
    return EXIT_OK


def _case_as_json(case: BenchmarkCase, workload: Any) -> Mapping[str, Any]:
    return {
        "benchmark_name": case.name,
        "framework": case.model.model_impl.framework_type.value,
        "model": case.model.name,
        "model_parameters": dict(case.model.model_parameters),
        "tags": list(case.tags),
        "verify_parameters": dict(case.verify_parameters),
        "artifacts_dir_url": case.model.artifacts_dir_url,
        "exported_model_types": [kind.value for kind in case.model.exported_model_types],
        "workload": workload.id,
        "inputs": [str(spec) for spec in workload.inputs],
    }


def _backends_command(_: argparse.Namespace) -> int:
    from comparative_benchmark.backends.api import backends

    for backend in backends().values():
        missing = sorted({m for f in backend.modules for m in backend.missing_modules(f)})
        state = f"needs {', '.join(missing)}: run {backend.install}" if missing else "installed"
        print(f"{backend.name} ({', '.join(f.value for f in backend.modules)} models; {state})")
        for compiler in backend.compilers:
            options = "".join(f" [+{option}]" for option in compiler.options)
            print(f"  {backend.name}:{compiler.name}{options}  {compiler.description}")
    return EXIT_OK


def _compare_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.results import compare
    from comparative_benchmark.results.codec import ResultsFileError, read_document
    from comparative_benchmark.results.compare_remarks import remarks
    from comparative_benchmark.terminal import compare_views
    from comparative_benchmark.terminal.console import Console

    try:
        old, new = read_document(options.old), read_document(options.new)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    comparisons = compare.compare_documents(
        old, new, threshold=options.threshold, count_unchanged=options.count_unchanged
    )
    summary = compare.summarize_comparisons(comparisons)
    beside = remarks(old, new, comparisons)
    if options.json:
        print(compare_views.as_json(comparisons, summary, beside))
    elif options.markdown:
        print(compare_views.as_markdown(comparisons, summary, beside), end="")
    else:
        Console().comparison(comparisons, summary)
        print("".join(f"{line}\n" for line in beside.lines), end="")
    return compare.exit_code(summary)


def _doctor_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.doctor import command

    return command.run(options)


def _parity_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.parity import command

    return command.run(options)


def _new_model_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.onboarding import new_model

    return new_model.run(options)


def _check_model_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.onboarding import check_command

    return check_command.run(options)


def _repro_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.repro import command

    return command.run(options)


def _report_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.report import command

    return command.run(options)


def _show_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.results.case import cases_of
    from comparative_benchmark.results.codec import ResultsFileError, read_document
    from comparative_benchmark.results.roofs import known_ceilings
    from comparative_benchmark.terminal.console import Console

    try:
        document = read_document(options.results)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    # Those of the machine that measured, if it has been this one.
    ceilings = known_ceilings(document.benchmarks, document.execution_environment.host)
    Console().results(cases_of(document), baseline=options.baseline, ceilings=ceilings)
    return EXIT_OK
