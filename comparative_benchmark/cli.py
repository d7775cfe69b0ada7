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
from typing import TYPE_CHECKING, Any, NoReturn

from comparative_benchmark.doctor import options as doctor_options
from comparative_benchmark.phase_names import PHASES, SESSION_PHASES
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, DeviceSpec
from openxla.benchmark.root import ROOT_DIR_VARIABLE
from openxla.benchmark.workloads import workload_of

if TYPE_CHECKING:  # `cbs list` answers without them
    from comparative_benchmark.harness.trial import Competitor
    from comparative_benchmark.results.records import Record

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

_DISTRIBUTION = "common-benchmark-suite"
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class UsageError(Exception):
    """Something that the user typed can not be; the message says what can."""


class _Parser(argparse.ArgumentParser):
    """Exits with 1 where argparse would with 2: 2 says that an output was wrong."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `cbs`; returns the exit code."""
    parser = _Parser(
        prog="cbs",
        description="Compares machine-learning compilers on the same verified workloads.",
    )
    parser.add_argument("--version", action="version", version=f"cbs {version(_DISTRIBUTION)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run benchmark cases and write results")
    run.add_argument(
        *_spellings("--backend"),
        required=True,
        help="backends, e.g. jax_xla,pt_inductor:inductor+freezing,iree",
    )
    _add_run_options(run)
    _add_sampling_options(run)
    run.set_defaults(handler=_run_command)
    listing = commands.add_parser("list", help="list benchmark cases")
    _add_list_options(listing)
    listing.set_defaults(handler=_list_command)
    backends = commands.add_parser("backends", help="list backends, compilers and their options")
    backends.set_defaults(handler=_backends_command)
    doctor = commands.add_parser("doctor", help="what is wrong with this machine, for measuring")
    doctor_options.add_arguments(doctor)
    doctor.set_defaults(handler=_doctor_command)
    compare = commands.add_parser("compare", help="compare two results files, case by case")
    compare.add_argument("old", type=Path, help="the results to compare with")
    compare.add_argument("new", type=Path, help="the results in question")
    compare.add_argument(
        "--threshold", type=_fraction, default=0.01, help="the noise threshold (default 0.01)"
    )
    compare.add_argument("--json", action="store_true", help="print JSON")
    compare.add_argument("--markdown", action="store_true", help="print Markdown")
    compare.set_defaults(handler=_compare_command)
    show = commands.add_parser("show", help="print the table of a results file")
    show.add_argument("results", type=Path, help="a results file")
    show.add_argument("--baseline", help="competitor to take ratios against")
    show.set_defaults(handler=_show_command)
    return _guarded(parser.parse_args(arguments))


def run_backend_main(backend: str, arguments: Sequence[str] | None = None) -> int:
    """Runs the `run_benchmarks.py` of one backend; returns the exit code."""
    parser = _Parser(prog="run_benchmarks.py", description=f"Runs benchmarks with {backend}.")
    parser.add_argument(
        *_spellings("-c", "--compiler"),
        action="append",
        help="compiler, with options as in name+option; may be repeated (default: all usual ones)",
    )
    _add_run_options(parser)
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
        # `cbs list | head`: the reader has enough. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (UsageError, DefinitionError, catalog.NoMatchError) as error:
        print(f"cbs: {error}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _terminate(_: int, __: Any) -> NoReturn:
    # As Ctrl-C: the way out that ends the workers and keeps the results.
    raise KeyboardInterrupt


def _spellings(*names: str) -> list[str]:
    """Returns option names in both spellings, with dashes and with underscores."""
    found = []
    for name in names:
        bare = name.lstrip("-")
        dashes = name[: len(name) - len(bare)]
        found += [name, dashes + bare.replace("-", "_"), dashes + bare.replace("_", "-")]
    return list(dict.fromkeys(found))


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *_spellings("-name", "--benchmark-name"),
        dest="name",
        help="regular expression that must match the whole name of a case",
    )
    parser.add_argument("--tag", action="append", default=[], help="a tag that cases must have")
    parser.add_argument("--framework", help="framework of the model, e.g. jax")
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="MODULE",
        help="a further module with ALL_BENCHMARKS (PYTHONPATH=. finds one in this directory)",
    )


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser)
    parser.add_argument("--workload", help="regular expression to be found in the workload's id")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser)
    add = parser.add_argument
    add(
        *_spellings("-device", "--target-device"),
        dest="device",
        required=True,
        help="device to run on: " + ", ".join(map(str, devices.ALL_DEVICES)),
    )
    add(
        *_spellings("-o", "--output"),
        dest="output",
        type=Path,
        required=True,
        help="results file; an existing one is added to",
    )
    add(
        *_spellings("-w", "--warmup-iterations"),
        dest="warmup_iterations",
        type=_count(0),
        help="fixed number of iterations before the measured ones (5 with -iter)",
    )
    add(
        *_spellings("-iter", "--iterations"),
        dest="iterations",
        type=_count(1),
        help="fixed number of measured iterations in one process (100 with -w)",
    )
    add(
        *_spellings("--run-in-process"),
        dest="run_in_process",
        action="store_true",
        help="no worker processes: for debuggers, not for numbers",
    )
    add(
        *_spellings("--root-dir"),
        dest="root_dir",
        type=Path,
        help=f"where checkpoints and artifacts are kept (default ${ROOT_DIR_VARIABLE}, or "
        "artifacts/root in the checkout)",
    )
    add(
        *_spellings("--generate-artifacts"),
        dest="generate_artifacts",
        action="store_true",
        help="make inputs and expected outputs anew",
    )
    add(
        *_spellings("--no-download"),
        dest="no_download",
        action="store_true",
        help="use only artifacts that are under the root directory",
    )
    add("--resume", action="store_true", help="skip trials that are ok in the results file")
    add("--threads", type=_count(1), help="threads for each backend (default: usable CPUs)")
    add("--timeout", type=_seconds, default=3600.0, metavar="S", help="for a trial (default 3600)")
    add(
        "--deadline",
        action="append",
        default=[],
        type=_phase_deadline,
        metavar="PHASE=S",
        help="seconds for a phase, e.g. compile=600; may be repeated",
    )
    add(
        *_spellings("--memory-limit"),
        dest="memory_limit",
        type=_size,
        metavar="SIZE",
        help="memory of a worker, e.g. 8G (default: what is available, less 1G)",
    )
    add("--verbose", action="store_true", help="print phases, log files and tracebacks")


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """What decides how long to sample when neither -w nor -iter is given."""
    parser.add_argument(
        "--baseline",
        help="competitor to take ratios against (default: pt_inductor:eager, or the first one)",
    )
    parser.add_argument(
        "--precision",
        type=_fraction,
        default=0.01,
        help="relative half-width of the 95 %% interval to reach (default 0.01)",
    )
    parser.add_argument(
        "--processes", type=_count(1), help="fresh processes for each trial (default: 3 to 5)"
    )
    parser.add_argument(
        "--seed", type=_count(0), default=0, help="decides the order of starts and blocks"
    )


def _run_command(options: argparse.Namespace) -> int:
    from comparative_benchmark import runner
    from comparative_benchmark.backend_api import UnknownBackendError
    from comparative_benchmark.console import Console
    from comparative_benchmark.results.store import ResultsFile, ResultsFileError

    if options.root_dir:
        os.environ[ROOT_DIR_VARIABLE] = str(options.root_dir.absolute())
    if options.output.is_dir():
        raise UsageError(f"-o {options.output} can not be written: it is a directory")
    device = _device(options.device)
    try:
        competitors = _competitors(options, device)
    except UnknownBackendError as error:
        raise UsageError(str(error)) from error
    asked = getattr(options, "baseline", None)
    if asked and asked not in map(str, competitors):
        known = ", ".join(map(str, competitors))
        raise UsageError(f"--baseline {asked!r} is not among the competitors: {known}")
    plan = runner.plan(_select(options), competitors, device)
    console = Console(verbose=options.verbose, suites=options.suite)
    for competitor in plan.idle:
        console.say(f"{competitor} takes none of the selected cases", style="yellow")
    if not plan.trials:
        raise UsageError("nothing to run: no selected backend takes a selected case")
    try:
        records = runner.execute(
            plan.trials,
            _settings(options, device),
            ResultsFile(options.output),
            console,
            command=sys.argv,
            resume=options.resume,
        )
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    finally:
        console.close()
    console.results(records, baseline=_baseline(options, competitors))
    console.say(f"results: {options.output}")
    return _exit_code(records)


def _baseline(options: argparse.Namespace, competitors: "list[Competitor]") -> str | None:
    """Returns what ratios are taken against: what was asked for, or eager, or the first one.

    Fixed counts give one process each, which supports no verdict: no ratio without being asked.
    """
    names = [str(competitor) for competitor in competitors]
    asked: str | None = getattr(options, "baseline", None)
    fixed = (options.warmup_iterations, options.iterations) != (None, None)
    if asked or len(names) == 1 or fixed or hasattr(options, "compiler"):
        return asked
    return "pt_inductor:eager" if "pt_inductor:eager" in names else names[0]


def _exit_code(records: Sequence["Record"]) -> int:
    statuses = {record["status"] for record in records}
    if "wrong_output" in statuses:
        return EXIT_WRONG
    if statuses - {"ok", "unsupported"}:
        return EXIT_FAILED
    return EXIT_OK if "ok" in statuses else EXIT_MISSING


def _list_command(options: argparse.Namespace) -> int:
    cases = _select(options)
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
        "workload": workload.id,
        "inputs": [str(spec) for spec in workload.inputs],
    }


def _backends_command(_: argparse.Namespace) -> int:
    from comparative_benchmark.backend_api import backends

    for backend in backends().values():
        missing = sorted({m for f in backend.modules for m in backend.missing_modules(f)})
        state = f"needs {', '.join(missing)}: run {backend.install}" if missing else "installed"
        print(f"{backend.name} ({', '.join(f.value for f in backend.modules)} models; {state})")
        for compiler in backend.compilers:
            options = "".join(f" [+{option}]" for option in compiler.options)
            print(f"  {backend.name}:{compiler.name}{options}  {compiler.description}")
    return EXIT_OK


def _compare_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.console import Console
    from comparative_benchmark.results import compare, compare_views
    from comparative_benchmark.results.store import ResultsFileError

    try:
        old, new = compare.read_document(options.old), compare.read_document(options.new)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    comparisons = compare.compare_documents(old, new, threshold=options.threshold)
    summary = compare.summarize_comparisons(comparisons)
    if options.json:
        print(compare_views.as_json(comparisons, summary))
    elif options.markdown:
        print(compare_views.as_markdown(comparisons, summary), end="")
    else:
        Console().comparison(comparisons, summary)
    return compare.exit_code(summary)


def _doctor_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.doctor import command

    return command.run(options)


def _show_command(options: argparse.Namespace) -> int:
    from comparative_benchmark.console import Console
    from comparative_benchmark.results.store import ResultsFile, ResultsFileError

    try:
        if not options.results.exists():
            raise UsageError(f"{options.results} does not exist")
        records = ResultsFile(options.results).records()
        Console().results(records, baseline=options.baseline)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    return EXIT_OK


def _select(options: argparse.Namespace) -> list[BenchmarkCase]:
    try:
        return catalog.select(
            catalog.all_benchmarks(options.suite),
            name=options.name,
            tags=options.tag,
            framework=options.framework,
        )
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is no regular expression: {error}") from error


def _device(name: str) -> DeviceSpec:
    for device in devices.ALL_DEVICES:
        if device.name == name:
            return device
    known = ", ".join(map(str, devices.ALL_DEVICES))
    raise UsageError(f"no device {name!r}; choices are {known}")


def _competitors(options: argparse.Namespace, device: DeviceSpec) -> "list[Competitor]":
    from comparative_benchmark.backend_api import get_backend
    from comparative_benchmark.harness.trial import competitors_of, parse_competitors

    accelerator = device.accelerator_type
    if hasattr(options, "compiler"):
        return competitors_of(get_backend(options.backend), options.compiler or [], accelerator)
    return parse_competitors(options.backend, accelerator)


def _settings(options: argparse.Namespace, device: DeviceSpec) -> Any:
    from comparative_benchmark.harness.host import usable_cpus
    from comparative_benchmark.harness.memory import default_limit_bytes
    from comparative_benchmark.harness.session import Limits
    from comparative_benchmark.harness.settings import RunSettings

    return RunSettings(
        device=device,
        sampling=_sampling(options),
        threads=options.threads or usable_cpus(),
        limits=Limits(
            deadline_s=options.timeout,
            phase_deadlines_s=dict(options.deadline),
            memory_bytes=options.memory_limit or default_limit_bytes(),
        ),
        log_dir=options.output.absolute().with_suffix(".logs"),
        generate_artifacts=options.generate_artifacts,
        use_only_local=options.no_download and not options.generate_artifacts,
        in_process=options.run_in_process,
    )


def _sampling(options: argparse.Namespace) -> Any:
    """Fixed counts if any were given (always in `run_benchmarks.py`), else the sampling rule."""
    from comparative_benchmark.harness.sampling_rule import FixedCounts, SamplingRule

    counts = (options.warmup_iterations, options.iterations)
    if counts != (None, None) or hasattr(options, "compiler"):
        warmup, iterations = (
            given if given is not None else usual for given, usual in zip(counts, (5, 100))
        )
        return FixedCounts(warmup_iterations=warmup, iterations=iterations)
    processes = options.processes
    return SamplingRule(
        goal=options.precision,
        min_processes=processes or 3,
        max_processes=processes or 5,
        seed=options.seed,
    )


def _count(minimum: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}")
        return value

    parse.__name__ = "number"
    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number between 0 and 1")
    return value


def _phase_deadline(text: str) -> tuple[str, float]:
    phase, separator, seconds = text.partition("=")
    if not separator or not phase:
        raise argparse.ArgumentTypeError(f"{text!r} is not PHASE=SECONDS")
    if phase not in (*PHASES, *SESSION_PHASES):
        known = ", ".join((*PHASES, *SESSION_PHASES))
        raise argparse.ArgumentTypeError(f"no phase {phase!r}; choices are {known}")
    return phase, _seconds(seconds)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 8G")
    size = int(float(match[1]) * _SIZES[match[2].upper()])
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} leaves no memory")
    return size


if __name__ == "__main__":
    sys.exit(main())
