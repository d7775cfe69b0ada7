"""Options of `cbs run`, `run_benchmarks.py` and `comparative_benchmark.run`."""

import argparse
import datetime
from pathlib import Path
from typing import Any

from comparative_benchmark.terminal.brought_options import add_model_arguments
from comparative_benchmark.terminal.options import (
    HelpWithExamples,
    add_options,
    count,
    cpu_list,
    fraction,
    phase_deadline,
    seconds,
    spellings,
)
from openxla.benchmark.root import ROOT_DIR_VARIABLE

_WHAT, _HOW, _WHERE, _LIMITS = "selection", "measurement", "files", "limits"
_EXAMPLES = """\
examples:
  cbs run -name 'models/BERT_TINY.+FP32.+'           race every installed backend on this CPU
  cbs run my_net.py --backend pt_inductor,openvino   race your own model
  cbs run -name 'models/.+TINY.+' --backend jax_xla -iter 20 -o quick.json
  cbs show quick.json                                print the table again
"""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs run`."""
    parser.usage = "cbs run [-name REGEX | MODEL | --torchbench PATH] [options]"
    parser.epilog, parser.formatter_class = _EXAMPLES, HelpWithExamples
    groups = _Groups(parser)
    _add_cases(groups.get(_WHAT))
    _add_inputs(groups.get(_WHAT))
    add_model_arguments(parser, saving=True)
    _add_folder_arguments(parser)
    _add_measuring_arguments(groups)


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select what runs: of the catalogue, of the user, of others."""
    what = parser.add_argument_group(_WHAT)
    _add_cases(what)
    _add_inputs(what)
    add_model_arguments(parser)
    _add_folder_arguments(parser)


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of whatever races competitors, without those that select cases."""
    _add_measuring_arguments(_Groups(parser))


def add_run_benchmarks_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the `run_benchmarks.py` of a backend."""
    groups = _Groups(parser)
    what = groups.get(_WHAT)
    _add_cases(what)
    _add_inputs(what)
    what.add_argument(
        *spellings("-c", "--compiler"),
        action="append",
        help="compiler, with options as in name+option; may be repeated (default: all usual "
        "compilers)",
    )
    _add_common_arguments(groups)
    # Counts are fixed here, each compiler runs in this environment, and on all its CPUs.
    parser.set_defaults(baseline=None, compile_only=False, cpus=None, env=None)


class _Groups:
    """The groups of options in a parser's help, by title, each made when first asked for."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._made: dict[str, Any] = {}

    def get(self, title: str) -> Any:
        if title not in self._made:
            self._made[title] = self._parser.add_argument_group(title)
        return self._made[title]


def usual_output() -> Path:
    """Returns where results go that nobody gave a file for: a new one for each start."""
    return Path("results", f"{datetime.datetime.now().astimezone():%Y-%m-%d-%H%M%S}.json")


def _add_cases(what: Any) -> None:
    add_options(what, "name", "test", "tag", "framework", "suite")


def _add_inputs(what: Any) -> None:
    what.add_argument(
        "--inputs",
        type=Path,
        metavar="DIR",
        help="run the selected models on input_0.npy, input_1.npy ... in this directory",
    )


def _add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select folders of others in place of cases of the catalogue."""
    group = parser.add_argument_group("TorchBench folders")
    group.add_argument(
        "--torchbench",
        action="append",
        type=Path,
        metavar="PATH",
        help="run TorchBench model folders: a folder, or a directory of folders; may be repeated. "
        "-name then matches folders",
    )
    group.add_argument(
        *spellings("--batch-size"),
        type=count(1),
        help="batch size of the folders (default: each folder's own)",
    )
    group.add_argument(
        *spellings("--auto-batch"),
        action="store_true",
        help="use the largest power of two as the batch size at which the folder and its truth run "
        "within --memory-limit and --timeout",
    )
    group.add_argument(
        "--install",
        action="store_true",
        help="first run each folder's install.py in a separate environment",
    )


def _add_measuring_arguments(groups: _Groups) -> None:
    groups.get(_WHAT).add_argument(
        "--backend",
        help="backends, e.g. jax_xla,pt_inductor:inductor+freezing,iree (default: `all` installed "
        "backends; pt_inductor:eager for --torchbench)",
    )
    _add_common_arguments(groups)
    _add_sampling_arguments(groups)


def _add_common_arguments(groups: _Groups) -> None:
    """Adds the options that every way to run has; the OpenXLA suite's flags among them."""
    from openxla.benchmark import devices

    what, how = groups.get(_WHAT), groups.get(_HOW)
    add_options(
        what,
        "device",
        default=None,
        help="device to run on: "
        + ", ".join(map(str, devices.ALL_DEVICES))
        + f" (default: {devices.HOST_CPU})",
    )
    how.add_argument(
        *spellings("-w", "--warmup-iterations"),
        type=count(0),
        help="fixed number of warm-up iterations (default with -iter: 5)",
    )
    how.add_argument(
        *("-iter", "--iterations"),
        dest="iterations",
        type=count(1),
        help="fixed number of measured iterations in one process (default with -w: 100)",
    )
    how.add_argument(
        *spellings("--run-in-process"),
        action="store_true",
        help="run models in this process, for a debugger; do not use it for measurements",
    )
    how.add_argument(
        *spellings("--share-workers"),
        action="store_true",
        help="run all cases of a competitor in the same processes: quicker than new processes for "
        "each case, but cases can influence each other",
    )
    how.add_argument(
        *spellings("--inherit-environment"),
        action="store_true",
        help="pass all environment variables to workers (default: variables that programs need, "
        "and variables that change speed or numbers, which are recorded)",
    )
    how.add_argument(
        "--outputs",
        choices=("bound", "allocated"),
        help="memory for the outputs of each run: the same memory (bound), or new memory inside "
        "the timed region (allocated); stacks that cannot do this are `unsupported` (default: each "
        "stack's usual way, which is recorded)",
    )
    how.add_argument(
        *spellings("--exported-programs"),
        action="store_true",
        help="start compiler-level backends from locked programs; their compile time then excludes "
        "tracing and lowering",
    )
    add_options(how, "threads")
    how.add_argument(
        "--profile",
        action="store_true",
        help="run the stack's profiler after each trial, and keep the traces",
    )
    _add_places(groups.get(_WHERE))
    limits = groups.get(_LIMITS)
    add_options(limits, "timeout")
    limits.add_argument(
        "--deadline",
        action="append",
        default=[],
        type=phase_deadline,
        metavar="PHASE=S",
        help="time limit of a phase in seconds, e.g. compile=600; may be repeated",
    )
    add_options(limits, "memory_limit")


def _add_places(where: Any) -> None:
    add_options(
        where,
        "output",
        default=usual_output(),
        help="results file; new results are added to an existing one (default: "
        "results/DATE-TIME.json)",
    )
    where.add_argument(
        "--resume",
        action="store_true",
        help="skip trials that are ok in the results file, and continue interrupted ones",
    )
    add_options(
        where,
        "root_dir",
        help=f"directory of checkpoints and artifacts (default: ${ROOT_DIR_VARIABLE}, or "
        "artifacts/root in the checkout)",
    )
    where.add_argument(
        *spellings("--generate-artifacts"),
        action="store_true",
        help="regenerate inputs and expected outputs",
    )
    where.add_argument(
        *spellings("--no-download"),
        action="store_true",
        help="use only artifacts that exist in the root directory",
    )
    add_options(where, "expected_failures", "verbose")


def _add_sampling_arguments(groups: _Groups) -> None:
    """Adds what decides how long to sample when neither -w nor -iter is given."""
    how, limits = groups.get(_HOW), groups.get(_LIMITS)
    add = how.add_argument
    add(
        *spellings("--dry-run"),
        action="store_true",
        help="check all options, print the trials that would run, and exit",
    )
    add_options(how, "json", help="print results, verdicts and the recommendation as JSON")
    add(
        "--quick",
        action="store_true",
        help="run each competitor once, with 20 iterations: a first look without verdicts",
    )
    add(
        "--baseline",
        help="competitor to compute ratios against (default: pt_inductor:eager, or else the first)",
    )
    add(
        "--precision",
        type=fraction,
        default=0.01,
        help="relative half-width of the 95 %% interval to reach (default: 0.01)",
    )
    add_options(
        how,
        "effect",
        help="relative difference to detect with a probability of 90 %% (default: 0.03)",
    )
    add(
        "--processes",
        type=count(1),
        help="fresh processes for each trial (default: 3, and up to 10 if the spread requires "
        "more; 6 pairs with --compile-only)",
    )
    add_options(
        limits,
        "trial_budget",
        help="seconds after which a trial gets no more than 3 processes (default: 30)",
    )
    limits.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="seconds for the whole run, shared evenly by its trials (default: no limit). "
        "Workloads that do not fit are left out, the exit code is 4, and --resume continues",
    )
    add(
        *spellings("--compile-only"),
        action="store_true",
        help="compile cold and warm alternately, verify outputs, and measure no latency",
    )
    add(
        "--busy",
        action="store_true",
        help="race at once even if other processes use the machine, without offering to wait",
    )
    add("--cpus", type=cpu_list, metavar="LIST", help="pin workers to these CPUs, e.g. 0,2-3")
    add(
        "--env",
        metavar="NAME=PATH,...",
        help="run each competitor in each Python environment, e.g. old=venv-1,new=venv-2",
    )
    add_options(how, "seed")
