"""Options of `cbs bisect`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import (
    add_options,
    count,
    fraction,
    seconds,
    spellings,
)
from comparative_benchmark.terminal.run_options import add_selection_arguments

METRICS = ("latency", "compile", "memory", "output", "failure")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs bisect`."""
    add = parser.add_argument
    add_selection_arguments(parser)
    add_search_options(parser)
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
    add_options(parser, "device")
    add_options(
        parser,
        "output",
        help="folder of the state, the results and the environments; the same command with the "
        "same folder goes on where it was interrupted (default results/bisect/WHAT-GOOD-BAD)",
    )
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="what environments hold besides (default: the locked requirements of the backend)",
    )
    add(
        "--processes",
        type=count(1),
        metavar="N",
        help="fresh processes of each side, as in `cbs run`",
    )
    add_options(parser, "effect", help="relative difference that a race should find (default 0.03)")
    add_options(parser, "trial_budget", help="as in `cbs run` (default 30)")
    add_options(parser, "threads", "timeout", "memory_limit", "root_dir", "seed")
    add_options(parser, "json", "verbose")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds what every search for a first bad candidate takes, whatever tells good from bad."""
    add = parser.add_argument
    add("--good", required=True, help="the version, or commit, that is known to be good")
    add("--bad", required=True, help="a later one that is bad")
    add(
        "--package",
        help="bisect its releases; with --git, the package that the build installs, which the "
        "other requirements then leave out",
    )
    add("--git", type=Path, metavar="REPO", help="bisect the commits of this repository")
    add(
        "--build",
        metavar="CMD",
        help="shell command that installs a commit, e.g. 'pip install .'; it runs in a worktree, "
        "with python and pip of the commit's own environment",
    )
    add("--pre", action="store_true", help="take pre-releases between the ends, too")
    add(
        "--companion",
        action="append",
        metavar="NAME[==VERSION]",
        help="a package that goes along: with the same version unless one is given; may be "
        "repeated, and replaces what is known (jaxlib for jax, the runtime for IREE's compiler)",
    )
    add("--python", help="interpreter of the environments (default: this one)")
    add(
        "--keep",
        type=int,
        default=4,
        metavar="N",
        help="environments to keep on disk, those of the ends included (default 4)",
    )
    add(
        *spellings("--build-timeout"),
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
        type=count(1),
        default=2,
        metavar="N",
        help="tries of a candidate that is unclear, each with twice the processes (default 2)",
    )
    add(
        "--threshold",
        type=fraction,
        help="a change below it is good (default: half of that between the ends)",
    )
