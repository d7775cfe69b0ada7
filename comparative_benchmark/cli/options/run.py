"""Options of `cbs run`, `run_benchmarks.py`, and commands that select or measure cases."""

import argparse
from typing import Any

from comparative_benchmark.cli.options.parsing import HelpWithExamples, add_run_options, spellings
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

_EXAMPLES = """\
examples:
  cbs run -name 'models/BERT_TINY.+FP32.+'           race all installed backends on this CPU
  cbs run my_net.py --backend pt_inductor,openvino   race your own model
  cbs run -name 'models/.+TINY.+' --backend jax_xla -iter 20 -o quick.json
  cbs show quick.json                                print the table again
"""
_RACERS = ("backends", "device")
# Options missing from `run_benchmarks.py`: counts are fixed, and each compiler runs in this
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
    """Adds the options that select catalogue cases, your own models or TorchBench folders."""
    names = _of_groups(SELECTION, OWN_MODEL, FOLDERS)
    _add(parser, [name for name in names if name not in (*_RACERS, "save_as")])


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options for racing competitors, without the ones that select cases."""
    _add(parser, [*_RACERS, *_of_groups(MEASUREMENT, FILES, LIMITS)])


def add_run_benchmarks_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a backend's `run_benchmarks.py`."""
    names = _of_groups(SELECTION, MEASUREMENT, FILES, LIMITS)
    groups = _add(parser, [name for name in names if name not in _RACES_ONLY])
    groups[SELECTION].add_argument(
        *spellings("-c", "--compiler"),
        action="append",
        help="compiler, optionally as NAME+OPTION; may be repeated (default: the backend's usual "
        "compilers)",
    )


def request_from(parsed: argparse.Namespace) -> RunRequest:
    """Converts a parsed command line to a request; missing options have their defaults.

    In `run_benchmarks.py`, each `--compiler` is a competitor, and the counts are fixed.
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
