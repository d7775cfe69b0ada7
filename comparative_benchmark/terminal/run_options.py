"""Options of `cbs run`, `run_benchmarks.py` and `comparative_benchmark.run`."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.brought_options import add_model_arguments
from comparative_benchmark.terminal.options import (
    add_options,
    count,
    cpu_list,
    fraction,
    phase_deadline,
    seconds,
    spellings,
)
from openxla.benchmark.root import ROOT_DIR_VARIABLE


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs run`."""
    add_model_arguments(parser)
    add_options(parser, "name", "test", "tag", "framework", "suite")
    _add_folder_arguments(parser)
    add_measuring_arguments(parser)
    # Folders have usual ones; `api.foreign.complete` asks for them where cases are run.
    for action in parser._actions:  # noqa: SLF001  # argparse offers no other way
        if action.dest in ("backend", "device"):
            action.required = False


def _add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select folders of others in place of cases of the catalogue."""
    parser.add_argument(
        "--torchbench",
        action="append",
        type=Path,
        metavar="PATH",
        help="run model folders of TorchBench: a folder, or a directory of them; -name matches "
        "folders then; may be repeated",
    )
    parser.add_argument(
        *spellings("--batch-size"),
        type=count(1),
        help="make folders with this batch size (default: their own)",
    )
    parser.add_argument(
        *spellings("--auto-batch"),
        action="store_true",
        help="make each folder with the largest power of two that it runs with here, truth "
        "included, within --memory-limit",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="first run the folders' install.py, each in an environment of its own",
    )


def add_measuring_arguments(parser: argparse.ArgumentParser, device: str | None = None) -> None:
    """Adds the options of whatever races competitors, without those that select cases.

    Args:
      parser: to add to.
      device: where to run if the user does not say; None if they must.
    """
    parser.add_argument(
        "--backend",
        required=device is None,
        help="backends, e.g. jax_xla,pt_inductor:inductor+freezing,iree; `all` that are installed",
    )
    _add_common_run_arguments(parser, device)
    _add_sampling_arguments(parser)


def add_run_benchmarks_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the `run_benchmarks.py` of a backend."""
    parser.add_argument(
        *spellings("-c", "--compiler"),
        action="append",
        help="compiler, with options as in name+option; may be repeated (default: all usual ones)",
    )
    add_options(parser, "name", "test", "tag", "framework", "suite")
    _add_common_run_arguments(parser)
    # Counts are fixed here, each compiler runs in this environment, and on all its CPUs.
    parser.set_defaults(baseline=None, compile_only=False, cpus=None, env=None)


def _add_common_run_arguments(parser: argparse.ArgumentParser, device: str | None = None) -> None:
    """Adds the options that every way to run has; the OpenXLA suite's flags among them."""
    from openxla.benchmark import devices

    add = parser.add_argument
    add_options(
        parser,
        "device",
        default=device,
        required=device is None,
        help="device to run on: " + ", ".join(map(str, devices.ALL_DEVICES)),
    )
    add_options(parser, "output", required=True, help="results file; an existing one is added to")
    add(
        *spellings("-w", "--warmup-iterations"),
        type=count(0),
        help="fixed number of iterations before the measured ones (5 with -iter)",
    )
    add(
        *("-iter", "--iterations"),
        dest="iterations",
        type=count(1),
        help="fixed number of measured iterations in one process (100 with -w)",
    )
    add(
        *spellings("--run-in-process"),
        action="store_true",
        help="no worker processes: for debuggers, not for numbers",
    )
    add(
        *spellings("--inherit-environment"),
        action="store_true",
        help="give workers every variable of this environment (default: what programs need, and "
        "what changes speed or numbers, which is recorded)",
    )
    add(
        "--outputs",
        choices=("bound", "allocated"),
        help="where each run writes its outputs: to the same memory, or to new memory that it gets "
        "inside the timed region; who cannot is `unsupported` (default: as each stack's users have "
        "it, which the result tells)",
    )
    add_options(
        parser,
        "root_dir",
        help=f"where checkpoints and artifacts are kept (default ${ROOT_DIR_VARIABLE}, or "
        "artifacts/root in the checkout)",
    )
    add(
        *spellings("--generate-artifacts"),
        action="store_true",
        help="make inputs and expected outputs anew",
    )
    add(
        *spellings("--no-download"),
        action="store_true",
        help="use only artifacts that are under the root directory",
    )
    add(
        *spellings("--exported-programs"),
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
    add_options(parser, "threads", "timeout")
    add(
        "--deadline",
        action="append",
        default=[],
        type=phase_deadline,
        metavar="PHASE=S",
        help="seconds for a phase, e.g. compile=600; may be repeated",
    )
    add_options(parser, "memory_limit")
    add(
        "--profile",
        action="store_true",
        help="when a trial has been measured, run its stack's profiler and keep the traces",
    )
    add_options(parser, "expected_failures", "verbose")


def _add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what decides how long to sample when neither -w nor -iter is given."""
    add = parser.add_argument
    add(
        "--baseline",
        help="competitor to take ratios against (default: pt_inductor:eager, or the first one)",
    )
    add(
        "--precision",
        type=fraction,
        default=0.01,
        help="relative half-width of the 95 %% interval to reach (default 0.01)",
    )
    add_options(
        parser,
        "effect",
        help="relative difference to be found with a probability of 90 %% (default 0.03)",
    )
    add(
        "--processes",
        type=count(1),
        help="fresh processes for each trial (default: 3, and up to 10 as their spread demands)",
    )
    add_options(
        parser,
        "trial_budget",
        help="seconds after which a trial gets no more than 3 processes (default 30)",
    )
    add(
        "--budget",
        type=seconds,
        metavar="S",
        help="seconds for the whole run, shared evenly by its trials; workloads that do not fit "
        "are left out, the exit code is 4, and --resume goes on (default: none)",
    )
    add(
        *spellings("--compile-only"),
        action="store_true",
        help="compile and verify, cold and warm in turns, and measure no latency",
    )
    add("--cpus", type=cpu_list, metavar="LIST", help="pin workers to these CPUs, e.g. 0,2-3")
    add(
        "--env",
        metavar="NAME=PATH,...",
        help="race environments: each competitor once in each, e.g. old=venv-1,new=venv-2",
    )
    add_options(parser, "seed")
