"""The `cbs` command, and each backend's `run_benchmarks.py`."""

import argparse
import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO_READER, UsageError
from comparative_benchmark.terminal.streams import hold_standard_streams, without_secrets
from openxla.benchmark.installation import set_root
from openxla.benchmark.text import printable

# Signals that end a run like Ctrl-C. A lost connection sends SIGHUP, and schedulers send others.
_ENDING: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ENDING += (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
# Signals that have ended this process.
_signalled: list[int] = []
_DISTRIBUTION = "common-benchmark-suite"
# Disk, directory and file name errors that only the user can fix.
_OF_THE_WORLD = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE),
}
_FIRST_STEPS = """\
usage: cbs COMMAND ...

Compares machine-learning compilers on the same verified workloads. To get started:

  cbs doctor                     check whether this machine is suitable for benchmarking
  cbs backends                   list backends, and how to install the missing ones
  cbs run -name BERT_TINY_FP32_PT_32XI32_BATCH1 --backend eager,inductor --processes 3
                                 race two compilers on a small model, in about two minutes
  cbs run my_net.py              race your own model
  cbs list                       list all models
  cbs --help                     list all commands"""


class Command(NamedTuple):
    """A command whose modules are imported only when it is used.

    Attributes:
      name: the name that users type.
      help: one line of help.
      options: function that adds the options to a parser, as `module:function` in `cli.options`.
      handler: function in `cli.commands` that takes the parsed options and returns the exit code.
    """

    name: str
    help: str
    options: str | None
    handler: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's options to a parser."""
        if self.options is not None:
            resolve(self.options, "options")(parser)
        parser.set_defaults(handler=self.handler)


_RUN = Command(
    "run", "race benchmark cases and write a results file", "run:add_run_arguments", "run:run"
)
# In the order of the help text.
COMMANDS = (
    _RUN,
    Command("list", "list benchmark cases", "results:add_list_arguments", "catalog:selected_cases"),
    Command(
        "backends",
        "list backends, compilers and their options",
        "results:add_backends_arguments",
        "catalog:installed_backends",
    ),
    Command(
        "doctor",
        "check whether this machine is suitable for benchmarking",
        "maintenance:add_doctor_arguments",
        "doctor:run",
    ),
    Command(
        "parity",
        "check the outputs of every workload on every backend",
        "studies:add_parity_arguments",
        "parity:run",
    ),
    Command("micro", "race operators over shapes", "studies:add_micro_arguments", "micro:run"),
    Command(
        "bench",
        "install, prepare, run and compare milabench benchmarks",
        "benchmarks:add_bench_arguments",
        "bench:run",
    ),
    Command(
        "fleet",
        "run benchmarks on many machines, through Slurm, ssh or a local queue",
        "fleet:add_fleet_arguments",
        "fleet:run",
    ),
    Command(
        "new-model",
        "write the files of a new model",
        "maintenance:add_new_model_arguments",
        "catalog:new_model",
    ),
    Command(
        "new-backend",
        "write a package for a new backend",
        "maintenance:add_new_backend_arguments",
        "catalog:new_package",
    ),
    Command(
        "new-recipe",
        "write a package for a new recipe",
        "maintenance:add_new_recipe_arguments",
        "catalog:new_package",
    ),
    Command(
        "new-operator",
        "write a package for a new operator",
        "maintenance:add_new_operator_arguments",
        "catalog:new_package",
    ),
    Command(
        "ci-template",
        "write a GitHub workflow that races a model on every pull request",
        "maintenance:add_ci_template_arguments",
        "catalog:ci_template",
    ),
    Command(
        "check-model",
        "validate a model against the suite's contract",
        "maintenance:add_check_model_arguments",
        "catalog:check_model",
    ),
    Command(
        "export",
        "write results in the format of another tool",
        "results:add_export_arguments",
        "results:export",
    ),
    Command(
        "import",
        "import results from other tools into the history",
        "results:add_import_arguments",
        "results:import_",
    ),
    Command(
        "userbenchmark",
        "list, run, compare and bisect userbenchmarks",
        "benchmarks:add_userbenchmark_arguments",
        "userbenchmark:run",
    ),
    Command(
        "bisect",
        "find the release or commit that made a workload slower, larger or wrong",
        "studies:add_bisect_arguments",
        "studies:find_first_bad",
    ),
    Command(
        "history",
        "store results over time, query them and find regressions",
        "results:add_history_arguments",
        "history:run",
    ),
    Command(
        "repro",
        "write a standalone reproducer for one result",
        "studies:add_repro_arguments",
        "studies:repro",
    ),
    Command(
        "explain",
        "explain a latency difference by operators, fusions and fallbacks",
        "studies:add_explain_arguments",
        "studies:explain",
    ),
    Command(
        "artifacts",
        "generate, publish, lock and fetch artifacts",
        "maintenance:add_artifacts_arguments",
        "artifacts:run",
    ),
    Command(
        "compare",
        "compare two results files, case by case",
        "results:add_compare_arguments",
        "results:compare",
    ),
    Command(
        "show", "print the table for a results file", "results:add_show_arguments", "results:show"
    ),
    Command(
        "report",
        "write results as an HTML page, Markdown or a chart",
        "results:add_report_arguments",
        "results:report",
    ),
    Command(
        "completion",
        "print a shell script that completes `cbs` commands",
        ".completion:add_arguments",
        ".completion:run",
    ),
)


# Headings of `cbs --help`, with the commands below each.
_GROUPS = {
    "measure": ("run", "micro", "bench", "fleet", "doctor"),
    "look at results": ("show", "report", "list", "backends"),
    "compare": ("compare", "explain", "parity", "history", "bisect"),
    "share": ("export", "import", "repro", "artifacts", "ci-template"),
    "extend": (
        *("new-model", "check-model", "new-backend", "new-recipe", "new-operator"),
        *("userbenchmark", "completion"),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `cbs`; returns the exit code."""
    hold_standard_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(_FIRST_STEPS, file=sys.stderr)
        return EXIT_FAILED
    if words[0] == "help":
        words = [*words[1:], "--help"]
    return _guarded(parse(words))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options of a `cbs` command line; exits with a message if it is invalid."""
    parser = _MainParser(
        prog="cbs",
        description="Compares machine-learning compilers on the same verified workloads.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_CommandParser
    )
    for command in COMMANDS:
        commands.add_parser(command.name, help=command.help, command=command)
    return parser.parse_args(arguments)


def run_backend_main(backend: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a backend's `run_benchmarks.py`; returns the exit code."""
    hold_standard_streams()
    parser = Parser(prog="run_benchmarks.py", description=f"Runs benchmarks with {backend}.")
    _RUN._replace(options="run:add_run_benchmarks_arguments").add_options(parser)
    parser.set_defaults(backend=(backend,))
    return _guarded(parser.parse_args(arguments))


class _MainParser(Parser):
    """The parser for `cbs`; its help groups commands by purpose."""

    def format_help(self) -> str:
        """Returns the help text."""
        by_name = {command.name: command for command in COMMANDS}
        width = max(map(len, by_name))
        lines = ["usage: cbs COMMAND ...", "", str(self.description)]
        for title, names in _GROUPS.items():
            lines += ["", f"{title}:", *(f"  {n:<{width}}  {by_name[n].help}" for n in names)]
        lines += ["", "To list the options of a command, run: cbs help COMMAND"]
        return "\n".join(lines) + "\n"


class _CommandParser(Parser):
    """The parser for a command, which adds its options when it first parses arguments."""

    def __init__(self, *, command: Command | None = None, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._command = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        command, self._command = self._command, None
        if command is not None:
            command.add_options(self)
        parsed, unknown = super().parse_known_args(args, namespace)
        # Only this parser, not its parent, has the options of the command.
        self.refuse_unknown(unknown)
        return parsed, unknown


class _Version(argparse.Action):
    """`--version`, which looks up the version only if it is used."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(nargs=0, **keywords)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"cbs {version(_DISTRIBUTION)}")
        parser.exit()


def _guarded(options: argparse.Namespace) -> int:
    """Calls the handler; returns its exit code, 1 after a user's mistake, or 130 after Ctrl-C."""
    for number in _ENDING:
        # `nohup` starts commands with SIGHUP ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminate)
    others = sys.unraisablehook
    sys.unraisablehook = partial(_ended_in_a_callback, others)
    try:
        set_root(getattr(options, "root_dir", None))
        with other_processes.adopting():
            code: int = resolve(options.handler, "commands")(options)
        # Report write errors here, instead of in a traceback at exit.
        sys.stdout.flush()
    except KeyboardInterrupt:
        _print_last(_interrupted(options), options)
        return EXIT_INTERRUPTED
    except OSError as error:
        if _signalled:
            # A signal has ended the run; the reader of the output may be gone, too.
            _print_last(_interrupted(options), options)
            return EXIT_INTERRUPTED
        if not isinstance(error, BrokenPipeError) and error.errno not in _OF_THE_WORLD:
            raise
        # Standard output may still buffer unwritable text: do not write it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # In `cbs list | head`, `head` exits early. A check whose reader has exited has not
            # passed, so the exit code reports a broken pipe.
            return EXIT_NO_READER
        named = f"{error.filename}: " if error.filename else ""
        print(f"cbs: {_shown(named)}{error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    except _mistakes() as error:
        print(f"cbs: {_shown(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        sys.unraisablehook = others
    return code


def _interrupted(options: argparse.Namespace) -> str:
    """Returns how to continue an interrupted command."""
    output = getattr(options, "output", None)
    if not hasattr(options, "resume") or output is None:
        return "interrupted; finished results are kept"
    from comparative_benchmark.engine import resume_command

    return _shown(f"interrupted; to continue, run\n  {resume_command(sys.argv, output)}")


def _print_last(text: str, options: argparse.Namespace) -> None:
    """Prints a text, or writes it to a file next to the results if the terminal is gone."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # Later attempts to flush would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if (output := getattr(options, "output", None)) is not None:
            with contextlib.suppress(OSError):
                Path(f"{output}.interrupted.txt").write_text(f"{text}\n", encoding="utf-8")


def _shown(message: str) -> str:
    return printable(without_secrets(message))


def _mistakes() -> tuple[type[Exception], ...]:
    """Returns the exceptions for user mistakes, imported only after an exception."""
    from openxla.benchmark.comparative_suite.catalog import NoMatchError
    from openxla.benchmark.def_types import DefinitionError

    return UsageError, DefinitionError, NoMatchError


def resolve(reference: str, folder: str) -> Any:
    """Returns a function of a command, from `cli.options` or `cli.commands`."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f".{module}", f"{__package__}.{folder}"), name)


def _terminate(number: int, _: Any) -> NoReturn:
    # Raise KeyboardInterrupt, which ends the workers and keeps the results.
    if number in _ENDING:
        _signalled.append(number)
    raise KeyboardInterrupt


def _ended_in_a_callback(
    others: Callable[["sys.UnraisableHookArgs"], object], lost: "sys.UnraisableHookArgs"
) -> None:
    """Re-raises an interrupt that Python would otherwise print and ignore.

    Python ignores exceptions in `__del__` and in weak-reference callbacks, which every import uses.
    """
    if lost.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGALRM, _terminate)  # only now: other code may use the timer
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        others(lost)
