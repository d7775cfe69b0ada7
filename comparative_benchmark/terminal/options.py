"""Options of the command line: their names, their values, and which cases they select."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from comparative_benchmark.worker.phase_names import PHASES, SESSION_PHASES
from openxla.benchmark import devices
from openxla.benchmark.artifacts import locked_cases
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec
from openxla.benchmark.root import ROOT_DIR_VARIABLE

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
# As a shell gives it for a program that SIGPIPE has ended.
EXIT_NO_READER = 141

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class UsageError(Exception):
    """Something that the user typed can not be; the message says what can."""


class Parser(argparse.ArgumentParser):
    """Exits with 1 where argparse would with 2: 2 says that an output was wrong."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and the message, and exits."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


def spellings(*names: str) -> list[str]:
    """Returns option names in both spellings, with dashes and with underscores."""
    found = []
    for name in names:
        bare = name.lstrip("-")
        dashes = name[: len(name) - len(bare)]
        found += [name, dashes + bare.replace("-", "_"), dashes + bare.replace("_", "-")]
    return list(dict.fromkeys(found))


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select cases."""
    parser.add_argument(
        *spellings("-name", "--benchmark-name"),
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


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs list`."""
    add_selection(parser)
    parser.add_argument("--workload", help="regular expression to be found in the workload's id")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that every way to run has; the seed's flags among them."""
    add_selection(parser)
    add = parser.add_argument
    add(
        *spellings("-device", "--target-device"),
        dest="device",
        required=True,
        help="device to run on: " + ", ".join(map(str, devices.ALL_DEVICES)),
    )
    add(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        required=True,
        help="results file; an existing one is added to",
    )
    add(
        *spellings("-w", "--warmup-iterations"),
        dest="warmup_iterations",
        type=count(0),
        help="fixed number of iterations before the measured ones (5 with -iter)",
    )
    add(
        *spellings("-iter", "--iterations"),
        dest="iterations",
        type=count(1),
        help="fixed number of measured iterations in one process (100 with -w)",
    )
    add(
        *spellings("--run-in-process"),
        dest="run_in_process",
        action="store_true",
        help="no worker processes: for debuggers, not for numbers",
    )
    add(
        *spellings("--root-dir"),
        dest="root_dir",
        type=Path,
        help=f"where checkpoints and artifacts are kept (default ${ROOT_DIR_VARIABLE}, or "
        "artifacts/root in the checkout)",
    )
    add(
        *spellings("--generate-artifacts"),
        dest="generate_artifacts",
        action="store_true",
        help="make inputs and expected outputs anew",
    )
    add(
        *spellings("--no-download"),
        dest="no_download",
        action="store_true",
        help="use only artifacts that are under the root directory",
    )
    add(
        *spellings("--exported-programs"),
        dest="exported_programs",
        action="store_true",
        help="start compiler-level backends from locked programs; their compile time then holds no "
        "tracing and lowering",
    )
    add(
        "--inputs",
        type=Path,
        metavar="DIR",
        help="run the selected models on input_0.npy, input_1.npy ... of this directory",
    )
    add(
        "--resume",
        action="store_true",
        help="skip trials that are ok in the results file, and go on from interrupted ones",
    )
    add("--threads", type=count(1), help="threads for each backend (default: usable CPUs)")
    add("--timeout", type=seconds, default=3600.0, metavar="S", help="for a trial (default 3600)")
    add(
        "--deadline",
        action="append",
        default=[],
        type=_phase_deadline,
        metavar="PHASE=S",
        help="seconds for a phase, e.g. compile=600; may be repeated",
    )
    add(
        *spellings("--memory-limit"),
        dest="memory_limit",
        type=size,
        metavar="SIZE",
        help="memory of a worker, e.g. 8G (default: what is available, less 1G)",
    )
    add(
        "--profile",
        action="store_true",
        help="when a trial has been measured, run its stack's profiler and keep the traces",
    )
    add(
        *spellings("--expected-failures"),
        dest="expected_failures",
        type=Path,
        metavar="FILE",
        help="another list of known failures than the one that is checked in",
    )
    add("--verbose", action="store_true", help="print phases, log files and tracebacks")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """What decides how long to sample when neither -w nor -iter is given."""
    parser.add_argument(
        "--baseline",
        help="competitor to take ratios against (default: pt_inductor:eager, or the first one)",
    )
    parser.add_argument(
        "--precision",
        type=fraction,
        default=0.01,
        help="relative half-width of the 95 %% interval to reach (default 0.01)",
    )
    parser.add_argument(
        "--effect",
        type=fraction,
        default=0.03,
        help="relative difference to be found with a probability of 90 %% (default 0.03)",
    )
    parser.add_argument(
        "--processes",
        type=count(1),
        help="fresh processes for each trial (default: 3, and up to 10 as their spread demands)",
    )
    parser.add_argument(
        *spellings("--trial-budget"),
        dest="trial_budget",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds after which a trial gets no more than 3 processes (default 30)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="the same for the whole run, shared evenly by its trials (default: none)",
    )
    parser.add_argument(
        *spellings("--compile-only"),
        dest="compile_only",
        action="store_true",
        help="compile and verify, cold and warm in turns, and measure no latency",
    )
    parser.add_argument(
        "--cpus", type=_cpu_list, metavar="LIST", help="pin workers to these CPUs, e.g. 0,2-3"
    )
    parser.add_argument(
        "--env",
        metavar="NAME=PATH,...",
        help="race environments: each competitor once in each, e.g. old=venv-1,new=venv-2",
    )
    parser.add_argument(
        "--seed", type=count(0), default=0, help="decides the order of starts and blocks"
    )


def select(options: argparse.Namespace) -> list[BenchmarkCase]:
    """Returns the cases that the options select.

    Raises:
      UsageError: the expression is malformed.
      NoMatchError, DefinitionError: see `catalog` and `locked_cases`.
    """
    try:
        return catalog.select(
            locked_cases.with_urls(catalog.all_benchmarks(options.suite)),
            name=options.name,
            tags=options.tag,
            framework=options.framework,
        )
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is no regular expression: {error}") from error


def find_device(name: str) -> DeviceSpec:
    """Returns the device of that name.

    Raises:
      UsageError: there is none.
    """
    for device in devices.ALL_DEVICES:
        if device.name == name:
            return device
    known = ", ".join(map(str, devices.ALL_DEVICES))
    raise UsageError(f"no device {name!r}; choices are {known}")


def count(minimum: int) -> Any:
    """Returns a parser of whole numbers from that one on."""

    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}")
        return value

    parse.__name__ = "number"
    return parse


def seconds(text: str) -> float:
    """Returns a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def fraction(text: str) -> float:
    """Returns a number between 0 and 1, exclusive."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number between 0 and 1")
    return value


def _cpu_list(text: str) -> tuple[int, ...]:
    """Returns CPUs as the kernel and taskset write them: `0,2-3`."""
    cpus: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of CPUs such as 0,2-3")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def _phase_deadline(text: str) -> tuple[str, float]:
    phase, separator, limit = text.partition("=")
    if not separator or not phase:
        raise argparse.ArgumentTypeError(f"{text!r} is not PHASE=SECONDS")
    if phase not in (*PHASES, *SESSION_PHASES):
        known = ", ".join((*PHASES, *SESSION_PHASES))
        raise argparse.ArgumentTypeError(f"no phase {phase!r}; choices are {known}")
    return phase, seconds(limit)


def size(text: str) -> int:
    """Returns bytes, of a size such as `8G`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 8G")
    size_bytes = int(float(match[1]) * _SIZES[match[2].upper()])
    if not size_bytes:
        raise argparse.ArgumentTypeError(f"{text!r} leaves no memory")
    return size_bytes
