"""Options of the command line: their names, their values, and which cases they select."""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.nearest import did_you_mean
from openxla.benchmark.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    # A command that runs no case starts without the vocabulary of cases.
    from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
# What was measured is well, and the budget was too short for the rest: `--resume` goes on.
EXIT_UNFINISHED = 4
# As a shell gives it for a program that SIGPIPE has ended.
EXIT_NO_READER = 141
# In words, for people.
EXIT_CODES = {
    EXIT_OK: "success",
    EXIT_FAILED: "something failed, or the command line is invalid",
    EXIT_WRONG: "an output is wrong, a comparison found a regression, or a check found a fault",
    EXIT_MISSING: "nothing could be measured, or data is missing",
    EXIT_UNFINISHED: "no failures, but the budget ran out: `--resume` continues",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; finished results are kept",
    EXIT_NO_READER: "the reader closed the output, as in `cbs list | head`",
}

# What models do, as TorchBench calls it.
EVAL, TRAIN = "eval", "train"

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class UsageError(Exception):
    """Something that the user typed cannot be; the message says what can."""


class _Help(argparse.HelpFormatter):
    """Shows one spelling of each option: `--trial-budget`, and not also `--trial_budget`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        given = action.option_strings
        dashed = [name for name in given if name.replace("_", "-") == name]
        shown = [name for name in given if name in dashed or name.replace("_", "-") not in dashed]
        action.option_strings = shown
        try:
            return super()._format_action_invocation(action)
        finally:
            action.option_strings = given


class HelpWithExamples(_Help, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of a text of examples."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with the nearest correct word and the command that helps.

    Exits with 1 if argparse would exit with 2, which means that an output was wrong.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **keywords})

    def error(self, message: str) -> NoReturn:
        """Prints the message, and exits."""
        said = printable(without_secrets(" ".join(message.split("\n"))))
        self.exit(EXIT_FAILED, f"{self.prog}: {said}\nusage: {self.prog} --help\n")

    def refuse_unknown(self, words: "Sequence[str]") -> None:
        """Exits if these words, which no option took, are any."""
        if words:
            option = words[0].partition("=")[0]
            what = "unknown option" if option.startswith("-") else "unexpected argument"
            near = did_you_mean(option, self._option_string_actions)
            self.error(f"{what} {option}{near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = did_you_mean(str(value), choices) or f"; choices are {', '.join(choices)}"
            name = str(action.metavar or action.dest).lower()
            said = "/".join(action.option_strings) or name
            raise argparse.ArgumentError(None, f"unknown {said} {value!r}{what}")


def spellings(*names: str) -> list[str]:
    """Returns option names in both spellings, with dashes and with underscores."""
    found = []
    for name in names:
        bare = name.lstrip("-")
        dashes = name[: len(name) - len(bare)]
        found += [name, dashes + bare.replace("-", "_"), dashes + bare.replace("_", "-")]
    return list(dict.fromkeys(found))


def add_options(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds options that several commands share, with what is special to this command."""
    for name in names:
        if name == "suite":
            add_options(parser, "suite_dir")
        flags, keywords = _SHARED[name]
        parser.add_argument(*spellings(*flags), **{**keywords, **changes})


def check_place(path: Path, what: str) -> None:
    """Makes the folder of a file that is to be written, and proves that one can be in it.

    Raises:
      UsageError: none can, or a directory is in its place; better told before hours are measured.
    """
    import tempfile

    if path.is_dir():
        raise UsageError(f"{what} {path} cannot be written: it is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be written: {error}") from error


def set_root(options: argparse.Namespace) -> None:
    """Makes `--root-dir`, where it was given, the root of this process and of its workers."""
    from openxla.benchmark.root import ROOT_DIR_VARIABLE

    if root := getattr(options, "root_dir", None):
        os.environ[ROOT_DIR_VARIABLE] = str(root.absolute())


def select(options: argparse.Namespace) -> "list[BenchmarkCase]":
    """Returns the cases that the options select.

    Raises:
      UsageError: the expression is malformed.
      NoMatchError, DefinitionError: see `catalog` and `locked_cases`.
    """
    from openxla.benchmark.artifacts import locked_cases
    from openxla.benchmark.comparative_suite import catalog

    if getattr(options, "test", EVAL) == TRAIN:
        cases = _training_cases(options.suite)
    else:
        cases = locked_cases.with_urls(catalog.all_benchmarks(options.suite))
    try:
        return catalog.select(
            cases,
            name=options.name,
            tags=options.tag,
            framework=options.framework,
        )
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is not a regular expression: {error}") from error


def _training_cases(suites: "Sequence[str]") -> "list[BenchmarkCase]":
    """Returns the suite's own, and those of further modules."""
    from openxla.benchmark.comparative_suite import catalog, training_cases
    from openxla.benchmark.workloads import training_of

    others = [case for case in catalog.further_benchmarks(suites) if training_of(case)]
    return [*training_cases.all_cases(), *others]


def find_device(name: str) -> "DeviceSpec":
    """Returns the device of that name.

    Raises:
      UsageError: there is none.
    """
    from openxla.benchmark import devices, synonyms

    name = synonyms.device(name)
    for device in devices.ALL_DEVICES:
        if device.name == name:
            return device
    known = ", ".join(map(str, devices.ALL_DEVICES))
    near = did_you_mean(name, map(str, devices.ALL_DEVICES))
    raise UsageError(f"unknown device {name!r}; choices are {known}{near}")


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
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return value


def fraction(text: str) -> float:
    """Returns a number between 0 and 1, exclusive."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}")
    return value


def cpu_list(text: str) -> tuple[int, ...]:
    """Returns CPUs as the kernel and taskset write them: `0,2-3`."""
    cpus: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise argparse.ArgumentTypeError(f"expected a list of CPUs such as 0,2-3, got {text!r}")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def phase_deadline(text: str) -> tuple[str, float]:
    """Returns phase and seconds of a deadline such as `compile=600`."""
    from comparative_benchmark.worker.phase_names import PHASES, SESSION_PHASES

    phase, separator, limit = text.partition("=")
    if not separator or not phase:
        raise argparse.ArgumentTypeError(f"expected PHASE=SECONDS, got {text!r}")
    if phase not in (*PHASES, *SESSION_PHASES):
        known = ", ".join((*PHASES, *SESSION_PHASES))
        raise argparse.ArgumentTypeError(f"unknown phase {phase!r}; choices are {known}")
    return phase, seconds(limit)


def size(text: str) -> int:
    """Returns bytes, of a size such as `8G`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"expected a size such as 8G, got {text!r}")
    size_bytes = int(float(match[1]) * _SIZES[match[2].upper()])
    if not size_bytes:
        raise argparse.ArgumentTypeError(f"expected a size above 0, got {text!r}")
    return size_bytes


def frameworks(text: str) -> str:
    """Returns the frameworks that `pt,jax` or `pytorch,jax` names, separated by commas."""
    from openxla.benchmark import synonyms
    from openxla.benchmark.def_types import ModelFrameworkType

    names = [synonyms.framework(name.strip()) for name in text.split(",") if name.strip()]
    known = [item.value for item in ModelFrameworkType]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(
            f"unknown framework {', '.join(unknown)}; choices are pytorch, jax, tensorflow, "
            "tflite, onnx and stablehlo"
        )
    return ",".join(names)


def _folder(text: str) -> str:
    """Returns a folder by its absolute path, which no dotted path of a module can be."""
    return str(Path(text).expanduser().absolute())


# How options that several commands have are spelt, and what they take where a command changes
# nothing. Values that are the same everywhere are the same option.
_SHARED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "name": (
        ("-name", "--benchmark-name"),
        {
            "dest": "name",
            "help": "regular expression for the whole name of a case, or part of a name",
        },
    ),
    "tag": (
        ("--tag",),
        {"action": "append", "default": [], "help": "tag that cases must have; may be repeated"},
    ),
    "test": (
        ("-t", "--test"),
        {
            "dest": "test",
            "choices": (EVAL, TRAIN),
            "default": EVAL,
            "help": "mode: eval computes outputs, train takes training steps (default: "
            "%(default)s)",
        },
    ),
    "framework": (
        ("--framework",),
        {"type": frameworks, "help": "framework of the model: pytorch (pt), jax, tensorflow (tf)"},
    ),
    "suite": (
        ("--suite",),
        {
            "action": "append",
            "default": [],
            "metavar": "MODULE",
            "help": "additional module with ALL_BENCHMARKS (set PYTHONPATH=. for one in this "
            "directory)",
        },
    ),
    "suite_dir": (
        ("--suite-dir",),
        {
            "dest": "suite",
            "action": "append",
            "default": [],
            "type": _folder,
            "metavar": "DIR",
            "help": "folder with *_definitions.py, used instead of the suite's own cases; "
            "`cbs run MODEL --save-as DIR` writes one",
        },
    ),
    "device": (
        ("-device", "--target-device"),
        {
            "dest": "device",
            "default": "host-cpu",
            "help": "device to run on (default: %(default)s)",
        },
    ),
    "output": (("-o", "--output"), {"type": Path}),
    "root_dir": (
        ("--root-dir",),
        {"type": Path, "help": "directory of checkpoints and artifacts, as in `cbs run`"},
    ),
    "expected_failures": (
        ("--expected-failures",),
        {
            "type": Path,
            "metavar": "FILE",
            "help": "list of known failures to use instead of the checked-in one",
        },
    ),
    "threads": (
        ("--threads",),
        {"type": count(1), "help": "threads for each backend (default: physical cores)"},
    ),
    "timeout": (
        ("--timeout",),
        {
            "type": seconds,
            "default": 3600.0,
            "metavar": "S",
            "help": "time limit of a worker, in seconds (default: 3600)",
        },
    ),
    "memory_limit": (
        ("--memory-limit",),
        {
            "type": size,
            "metavar": "SIZE",
            "help": "memory limit of a worker, e.g. 8G (default: available memory minus 1G)",
        },
    ),
    "trial_budget": (("--trial-budget",), {"type": seconds, "default": 30.0, "metavar": "S"}),
    "effect": (("--effect",), {"type": fraction, "default": 0.03}),
    "seed": (
        ("--seed",),
        {"type": count(0), "help": "seed for the order of starts and blocks (default: random)"},
    ),
    "dry_run": (
        ("--dry-run",),
        {"action": "store_true", "help": "print what would be done, without doing it"},
    ),
    "count_unchanged": (("--count-unchanged",), {"action": "store_true"}),
    "threshold": (
        ("--threshold",),
        {
            "type": fraction,
            "default": 0.01,
            "help": "relative difference below which a change is noise (default: 0.01)",
        },
    ),
    "json": (("--json",), {"action": "store_true", "help": "print JSON"}),
    "with_host": (
        ("--with-host",),
        {"action": "store_true", "help": "keep host names and full paths"},
    ),
    "verbose": (
        ("--verbose",),
        {"action": "store_true", "help": "print phases, log files and tracebacks"},
    ),
}
