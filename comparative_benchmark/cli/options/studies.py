"""Options of `cbs parity`, `micro`, `bisect`, `repro` and `explain`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from comparative_benchmark.cli.options.parsing import add_options, spellings
from comparative_benchmark.cli.options.run import add_measuring_arguments, add_selection_arguments
from comparative_benchmark.request import count, fraction, seconds

if TYPE_CHECKING:  # help is printed without the machinery of bisections
    from comparative_benchmark.studies.bisection.request import BisectRequest


def add_parity_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs parity`."""
    add = parser.add_argument
    add_options(
        parser,
        "name",
        help="regular expression that must match the whole name of a case. Its workload runs in "
        "every framework that implements it",
    )
    add_options(parser, "tag")
    add_options(
        parser, "framework", help="frameworks of the models, e.g. pytorch,jax (default: all)"
    )
    add_options(parser, "suite")
    add(
        "--backend",
        help="backends, as in `cbs run` (default: the usual compilers of all installed backends, "
        "without variants of a compiler such as IREE's data tiling)",
    )
    add_options(parser, "device")
    add_options(parser, "output", help="JSON file for the matrix (default: not saved)")
    add(
        "--resume",
        action="store_true",
        help="skip cells that are ok or unsupported in the output file",
    )
    add(
        "--drift",
        action=argparse.BooleanOptionalAction,
        help="report the layer in which implementations drift apart, for every workload or for "
        "none (default: for workloads with a wrong output)",
    )
    add_options(parser, "expected_failures", "root_dir")
    add(
        "--jobs",
        type=count(1),
        metavar="N",
        help="cells to run in parallel, each with its share of CPUs and memory (default: one for "
        "each CPU with 4G of memory, 1 on an accelerator). Cells that fail run again alone",
    )
    add_options(
        parser,
        "threads",
        help="threads for each backend. With parallel cells, the default and the maximum are a "
        "cell's share of the CPUs; for more, use --jobs 1",
    )
    add_options(parser, "timeout", default=900.0, help="seconds for a cell (default: 900)")
    add_options(
        parser,
        "memory_limit",
        help="memory limit of a worker, e.g. 8G (default: its share of the available memory minus "
        "1G)",
    )
    add_options(parser, "json", help="print the cells as JSON")
    add_options(parser, "verbose", help="print log files and tracebacks of failures")


DATA_TYPES = ("fp32", "bf16", "fp16")


def add_micro_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs micro`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list operators, shapes and recipes")
    add_options(listing, "json")
    run = actions.add_parser("run", help="race operators over shapes")
    _add_operator_selection(run)
    # A guide's file may define competitors and device.
    add_measuring_arguments(run)
    run.set_defaults(backend=None, device=None)


def _add_operator_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="run a YAML file of torchao's benchmarking guide, and write its CSV and JSON tables "
        "next to -o",
    )
    what.add_argument(
        "--op",
        metavar="NAMES",
        help="operators, e.g. matmul,softmax, or `all`; `cbs micro list` lists them",
    )
    add(
        "--backward",
        action="store_true",
        help="measure forward and backward together: outputs, and gradients of inputs and weights",
    )
    add(
        *spellings("--from-model"),
        metavar="REGEX",
        help="race the matrix products that this case runs, as matmul or --op linear, and print "
        "how much of its time they explain",
    )
    add(
        "--shapes",
        help="shapes or names of shape sets, e.g. llama,64x128x256 (default: small_sweep)",
    )
    add(
        *spellings("--min-power"),
        type=count(0),
        metavar="P",
        help="smallest power of two in sweeps",
    )
    add(
        *spellings("--max-power"),
        type=count(0),
        metavar="P",
        help="largest power of two in sweeps; larger shapes of other sets are skipped",
    )
    add(
        "--dtype",
        help=f"data types, any of {', '.join(DATA_TYPES)} (default: fp32)",
    )
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw speed-ups over the baseline by shape, and speed-ups of recipes by "
        "signal-to-noise ratio, e.g. FILE.svg",
    )
    add(
        *spellings("--own-workers"),
        action="store_true",
        help="start fresh processes for each shape, as `cbs run` does (default: the processes of a "
        "competitor run all shapes)",
    )


METRICS = ("latency", "compile", "memory", "output", "failure")


def add_bisect_arguments(parser: argparse.ArgumentParser) -> None:
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


def bisect_request(options: argparse.Namespace) -> "BisectRequest":
    """Returns what `cbs bisect` or `cbs userbenchmark bisect` is asked to bisect.

    Raises:
      UsageError: the package or the repository is not fully specified.
    """
    import attrs

    from comparative_benchmark.studies.bisection.request import BisectRequest

    names = [field.name for field in attrs.fields(BisectRequest)]
    return BisectRequest(**{name: getattr(options, name) for name in names})


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
        dest="build_timeout_s",
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


def add_repro_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs repro`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "case",
        metavar="CASE",
        help="name of a case or model in the file, or a regular expression that matches only one "
        "case",
    )
    add("--backend", help="competitor, e.g. iree:llvm-cpu, if several ran the case")
    add_options(parser, "device", default=None, help="device, if the case ran on several")
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="directory to create (default: repro-<model>-<competitor>); it must be new or empty",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="for a result of `cbs run --env`, run the interpreter named in the results file. Use "
        "this only with a file that you trust",
    )
    add(
        "--check",
        action="store_true",
        help="run the reproducer once here, and add its output to the README",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="seconds for the export and for the check, each (default: 1800)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit of the export, e.g. 8G (default: available memory minus 1G)",
    )


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs explain`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "competitors",
        nargs="*",
        metavar="COMPETITOR",
        help="two competitors of the file, e.g. pt_inductor:eager jax_xla:xla, or one to compare "
        "with the fastest (default: the slowest and the fastest). If one ran models of several "
        "frameworks, add /FRAMEWORK (iree:llvm-cpu/jax)",
    )
    add(
        *spellings("--case", "--workload"),
        dest="case",
        metavar="REGEX",
        help="workload to explain, if the file contains several: a regular expression to search "
        "for in names of cases, models and workloads",
    )
    add_options(
        parser, "device", default=None, help="device, if the file contains results of several"
    )
    add("--again", action="store_true", help="profile again, even if profiles are stored")
    add(
        *spellings("--no-profiling"),
        action="store_true",
        help="use stored profiles, and take no new ones",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="run the interpreter recorded in the results file, for results of `cbs run --env`. "
        "Use this only for files that you trust",
    )
    add_options(parser, "json", help="print JSON")
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="seconds to profile one competitor (default: 1800)",
    )
    add_options(parser, "memory_limit")
