"""Options of `cbs bisect`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.request import count, fraction, seconds
from comparative_benchmark.terminal.arguments import add_options, spellings
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
        help="one backend, as in `cbs run`, e.g. jax_xla or iree:llvm-cpu",
    )
    add(
        "--metric",
        choices=METRICS,
        default="latency",
        help="metric that became worse: latency (default), compile (cold compile time), memory "
        "(peak), output (wrong) or failure (no valid result)",
    )
    add_options(parser, "device")
    add_options(
        parser,
        "output",
        help="folder for state, results and environments (default: results/bisect/WHAT-GOOD-BAD). "
        "To resume, run the same command with the same folder",
    )
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="requirements file for the environments (default: the locked requirements of the "
        "backend)",
    )
    add(
        "--processes",
        type=count(1),
        metavar="N",
        help="fresh processes for each side, as in `cbs run`",
    )
    add_options(
        parser, "effect", help="relative difference that each race should detect (default: 0.03)"
    )
    add_options(parser, "trial_budget", help="seconds per trial, as in `cbs run` (default: 30)")
    add_options(parser, "threads", "timeout", "memory_limit", "root_dir")
    add_options(parser, "seed", help="seed for the order of starts and blocks (default: 0)")
    add_options(parser, "json", "verbose")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all kinds of bisections share."""
    add = parser.add_argument
    add("--good", required=True, help="version or commit that is known to be good")
    add("--bad", required=True, help="later version or commit that is known to be bad")
    add(
        "--package",
        help="package whose releases to bisect. With --git: package that --build installs, which "
        "is then left out of the other requirements",
    )
    add("--git", type=Path, metavar="REPO", help="bisect the commits of this repository")
    add(
        "--build",
        metavar="CMD",
        help="shell command that installs a commit, e.g. 'pip install .'. It runs in a worktree, "
        "with python and pip of the commit's environment",
    )
    add("--pre", action="store_true", help="include pre-releases between the ends")
    add(
        "--companion",
        action="append",
        metavar="NAME[==VERSION]",
        help="package to upgrade in lockstep, with the same version unless you give one; may be "
        "repeated. Replaces the built-in companions (jaxlib for jax, the runtime for IREE's "
        "compiler)",
    )
    add("--python", help="interpreter for the environments (default: this one)")
    add(
        "--keep",
        type=int,
        default=4,
        metavar="N",
        help="maximum number of environments on disk, including the ends (default: 4)",
    )
    add(
        *spellings("--build-timeout"),
        type=seconds,
        default=3600.0,
        metavar="S",
        help="time limit of --build in seconds (default: 3600)",
    )
    add(
        "--everything",
        action="store_true",
        help="judge every candidate, to find more than one step",
    )
    add(
        "--attempts",
        type=count(1),
        default=2,
        metavar="N",
        help="attempts for an unclear candidate, each with twice the processes (default: 2)",
    )
    add(
        "--threshold",
        type=fraction,
        help="relative change below which a candidate is good (default: half of the change between "
        "the ends)",
    )
