"""Options of `cbs bisect`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path
from typing import Any

from comparative_benchmark.terminal.options import add_selection, fraction, seconds, size, spellings
from openxla.benchmark import devices

METRICS = ("latency", "compile", "memory", "output", "failure")


def add_parser(commands: Any) -> None:
    """Adds `cbs bisect` to the commands."""
    parser = commands.add_parser(
        "bisect", help="find the release or commit where a workload became slower, bigger or wrong"
    )
    add_arguments(parser)
    parser.set_defaults(handler=_run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs bisect`."""
    add_selection(parser)
    add = parser.add_argument
    add("--good", required=True, help="the version, or commit, that is known to be good")
    add("--bad", required=True, help="a later one that is bad")
    add(
        "--package",
        help="bisect its releases; with --git, the package that the build installs, which the "
        "backend's requirements then leave out",
    )
    add("--git", type=Path, metavar="REPO", help="bisect the commits of this repository")
    add(
        "--build",
        metavar="CMD",
        help="shell command that installs a commit, e.g. 'pip install .'; it runs in a worktree, "
        "with python and pip of the commit's own environment",
    )
    add(
        "--backend",
        required=True,
        help="one backend, as in `cbs run`: jax_xla, or iree:llvm-cpu",
    )
    add(
        "--metric",
        choices=METRICS,
        default="latency",
        help="what became worse: latency (default), cold compile time, peak memory, the output "
        "(wrong), or the end of it (failure)",
    )
    add(
        *spellings("-device", "--target-device"),
        dest="device",
        default=devices.HOST_CPU.name,
        help="device to run on (default %(default)s)",
    )
    add(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        help="folder of the state, the results and the environments; the same command with the "
        "same folder goes on where it was interrupted (default results/bisect/WHAT-GOOD-BAD)",
    )
    _add_candidate_options(parser)
    _add_race_options(parser)


def _add_candidate_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--pre", action="store_true", help="take pre-releases between the ends, too")
    add(
        "--companion",
        action="append",
        metavar="NAME[==VERSION]",
        help="a package that goes along: with the same version unless one is given; may be "
        "repeated, and replaces what is known (jaxlib for jax, the runtime for IREE's compiler)",
    )
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="what environments hold besides (default: the locked requirements of the backend)",
    )
    add("--python", default=None, help="interpreter of the environments (default: this one)")
    add(
        "--keep",
        type=int,
        default=4,
        metavar="N",
        help="environments to keep on disk, those of the ends included (default 4)",
    )
    add(
        *spellings("--build-timeout"),
        dest="build_timeout",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="seconds for --build (default 3600)",
    )
    add(
        "--everything",
        action="store_true",
        help="judge every candidate, to see whether there is more than one step",
    )
    add(
        "--attempts",
        type=int,
        default=2,
        metavar="N",
        help="races of a candidate that is unclear, each with twice the processes (default 2)",
    )


def _add_race_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--processes", type=int, metavar="N", help="fresh processes of each side, as in `cbs run`")
    add(
        "--effect",
        type=fraction,
        default=0.03,
        help="relative difference that a race should find (default 0.03)",
    )
    add(
        "--threshold",
        type=fraction,
        help="a change below it is good (default: half of that between the ends)",
    )
    add(
        *spellings("--trial-budget"),
        dest="trial_budget",
        type=seconds,
        default=30.0,
        metavar="S",
        help="as in `cbs run` (default 30)",
    )
    add("--threads", type=int, help="threads for each backend (default: usable CPUs)")
    add("--timeout", type=seconds, default=3600.0, metavar="S", help="for a trial (default 3600)")
    add(
        *spellings("--memory-limit"),
        dest="memory_limit",
        type=size,
        metavar="SIZE",
        help="memory of a worker, e.g. 8G (default: what is available, less 1G)",
    )
    add(*spellings("--root-dir"), dest="root_dir", type=Path, help="as in `cbs run`")
    add("--seed", type=int, default=0, help="decides the order of starts and blocks")
    add("--json", action="store_true", help="print JSON")
    add("--verbose", action="store_true", help="print phases, log files and tracebacks")


def _run(options: argparse.Namespace) -> int:
    from comparative_benchmark.bisection import command

    return command.run(options)
