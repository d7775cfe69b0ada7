"""Options of `cbs run`, `run_benchmarks.py`, and commands that select or measure cases."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from comparative_benchmark.analysis.machine.host import ASKED, Threads, default_threads
from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.engine.session import Limits
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.request import (
    FILES,
    FOLDERS,
    ITERATIONS,
    LIMITS,
    MEASUREMENT,
    OWN_MODEL,
    SELECTION,
    WARMUP_ITERATIONS,
    RunRequest,
    options,
)
from comparative_benchmark.terminal.arguments import add_run_options, spellings
from comparative_benchmark.terminal.options import HelpWithExamples, UsageError
from openxla.benchmark.def_types import DeviceSpec

if TYPE_CHECKING:  # help is printed without the vocabulary of cases
    from openxla.benchmark.user_models import Definitions, Found, Wanted


def brought_model(request: RunRequest) -> "Found | None":
    """Returns the cases of the user's model; None if the request names none.

    Raises:
      UsageError: the model cannot be measured.
    """
    from openxla.benchmark.user_models import BroughtError, found_bounded

    if request.model is None:
        return None
    try:
        return found_bounded(request.model, _wanted(request))
    except BroughtError as error:
        raise UsageError(str(error)) from error


def definitions_to_save(request: RunRequest, found: "Found") -> "Definitions | None":
    """Returns the definitions that `--save-as` writes; None without that option.

    Raises:
      UsageError: other files have its names.
    """
    from openxla.benchmark.user_models import BroughtError, definitions

    if request.save_as is None:
        return None
    try:
        model = str(request.model)
        return definitions(model, _wanted(request), found.cases, request.save_as)
    except BroughtError as error:
        raise UsageError(str(error)) from error


def _wanted(request: RunRequest) -> "Wanted":
    from openxla.benchmark.user_models import Wanted

    return Wanted(
        inputs=request.input,
        inputs_dir=request.inputs,
        text=request.text,
        image=request.image,
        data_types=request.dtype,
        batch_sizes=request.batch,
        seq_lens=request.seq_len,
        framework=request.framework,
        task=request.task,
        base=request.base,
        allow_code=request.allow_code,
        test=request.test,
    )


def settings_of(
    device: DeviceSpec,
    *,
    timeout_s: float,
    memory_bytes: int | None,
    threads: int | None = None,
    phase_deadlines_s: Iterable[tuple[str, float]] = (),
    processes: int = 1,
    **others: Any,
) -> RunSettings:
    """Returns settings with these limits.

    Args:
      device: where to run.
      timeout_s: time limit of a worker.
      memory_bytes: memory limit of a worker; None for the memory that is available.
      threads: threads of each backend; None for the default.
      phase_deadlines_s: time limits of phases.
      processes: number of concurrent processes, which share the memory if no limit is given.
      others: further fields of `RunSettings`.
    """
    limits = Limits(
        deadline_s=timeout_s,
        phase_deadlines_s=dict(phase_deadlines_s),
        memory_bytes=memory_bytes or default_limit_bytes() // processes,
    )
    chosen = Threads(threads, ASKED) if threads else default_threads(others.get("cpus", ()))
    return RunSettings(
        device=device,
        threads=chosen.number,
        threads_from=chosen.rule,
        limits=limits,
        **others,
    )


_EXAMPLES = """\
examples:
  cbs run -name 'models/BERT_TINY.+FP32.+'           race every installed backend on this CPU
  cbs run my_net.py --backend pt_inductor,openvino   race your own model
  cbs run -name 'models/.+TINY.+' --backend jax_xla -iter 20 -o quick.json
  cbs show quick.json                                print the table again
"""
_RACERS = ("backends", "device")
# Options that `run_benchmarks.py` lacks: its counts are fixed, and each compiler runs in this
# environment on all its CPUs.
_RACES_ONLY = (
    *("backends", "dry_run", "json", "quick", "baseline", "precision", "effect", "processes"),
    *("compile_only", "busy", "cpus", "env", "seed", "trial_budget", "budget"),
)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs run`."""
    parser.usage = "cbs run [-name REGEX | MODEL | --torchbench PATH] [options]"
    parser.epilog, parser.formatter_class = _EXAMPLES, HelpWithExamples
    _add(parser, list(options()))


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select cases: of the catalogue, of the user, or in TorchBench."""
    names = _of_groups(SELECTION, OWN_MODEL, FOLDERS)
    _add(parser, [name for name in names if name not in (*_RACERS, "save_as")])


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command that races competitors, without those that select cases."""
    _add(parser, [*_RACERS, *_of_groups(MEASUREMENT, FILES, LIMITS)])


def add_run_benchmarks_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the `run_benchmarks.py` of a backend."""
    names = _of_groups(SELECTION, MEASUREMENT, FILES, LIMITS)
    groups = _add(parser, [name for name in names if name not in _RACES_ONLY])
    groups[SELECTION].add_argument(
        *spellings("-c", "--compiler"),
        action="append",
        help="compiler, with options as in name+option; may be repeated (default: all usual "
        "compilers)",
    )


def request_from(parsed: argparse.Namespace) -> RunRequest:
    """Returns the request of a parsed command line; missing options have their defaults.

    Each `--compiler` of `run_benchmarks.py` is a competitor, and its counts are fixed.
    """
    fields = options()
    values: dict[str, Any] = {
        name: getattr(parsed, option.dest or name, None)
        for name, (_, option) in fields.items()
        if option.dest not in fields  # --suite-dir and --suite share a list
    }
    if hasattr(parsed, "compiler"):
        [backend] = parsed.backend
        values["backends"] = [f"{backend}:{item}" for item in parsed.compiler or ()] or [backend]
        if (parsed.warmup_iterations, parsed.iterations) == (None, None):
            values |= {"warmup_iterations": WARMUP_ITERATIONS, "iterations": ITERATIONS}
    return RunRequest(**values)


def _of_groups(*groups: str) -> list[str]:
    return [name for name, (_, option) in options().items() if option.group in groups]


def _add(parser: argparse.ArgumentParser, names: list[str]) -> dict[str, Any]:
    from openxla.benchmark import devices

    known = ", ".join(map(str, devices.ALL_DEVICES))
    text = f"device to run on: {known} (default: {devices.HOST_CPU})"
    return add_run_options(parser, names, device={"help": text})
