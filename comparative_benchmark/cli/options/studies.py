"""Options of `cbs parity`, `micro`, `bisect`, `repro` and `explain`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from comparative_benchmark.cli.options.parsing import add_options, spellings
from comparative_benchmark.cli.options.run import add_measuring_arguments, add_selection_arguments
from comparative_benchmark.request import count, fraction, seconds

if TYPE_CHECKING:  # help does not need the bisection modules
    from comparative_benchmark.studies.bisection.request import BisectRequest


def add_parity_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs parity`."""
    add = parser.add_argument
    add_options(
        parser,
        "name",
        help="regular expression that matches a whole case name, or plain text that is part of "
        "one. The case's workload runs in every framework that implements it",
    )
    add_options(parser, "tag", "framework", "suite")
    add(
        "--backend",
        help="backends, as in `cbs run` (default: the usual compilers of all installed backends, "
        "without compiler variants such as IREE's data tiling)",
    )
    add_options(parser, "device")
    add_options(parser, "output", help="JSON file to write the matrix to (default: not saved)")
    add(
        "--resume",
        action="store_true",
        help="skip cells that are `ok` or `unsupported` in the output file",
    )
    add(
        "--drift",
        action=argparse.BooleanOptionalAction,
        help="report the layer in which implementations start to diverge, for all workloads or for "
        "none (default: for workloads with a wrong output)",
    )
    add_options(parser, "expected_failures", "root_dir")
    add(
        "--jobs",
        type=count(1),
        metavar="N",
        help="number of cells to run in parallel, each with an equal share of CPUs and memory "
        "(default: one per CPU, with 4G of memory each; 1 on an accelerator). Failed cells run "
        "again at the end, one at a time",
    )
    add_options(
        parser,
        "threads",
        help="number of threads for each backend (default: physical cores). With parallel cells, "
        "at most the cell's share of the CPUs; for more, use --jobs 1",
    )
    add_options(
        parser, "timeout", default=900.0, help="time limit in seconds for a cell (default: 900)"
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit for a worker, e.g. 8G (default: an equal share of the available memory "
        "minus 1G)",
    )
    add_options(parser, "json", help="print the cells as JSON")
    add_options(parser, "verbose", help="print log paths and tracebacks")


DATA_TYPES = ("fp32", "bf16", "fp16")


def add_micro_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs micro`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list operators, shapes and recipes")
    add_options(listing, "json")
    run = actions.add_parser("run", help="race operators over shapes")
    _add_operator_selection(run)
    # A YAML file for --config may define the competitors and the device.
    add_measuring_arguments(run)
    run.set_defaults(backend=None, device=None)


def _add_operator_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML file to run, as in torchao's benchmarking guide; the CSV and JSON tables are "
        "written next to the results file (-o)",
    )
    what.add_argument(
        "--op",
        metavar="NAMES",
        help="operators, e.g. matmul,softmax, or `all`; `cbs micro list` prints their names",
    )
    add(
        "--backward",
        action="store_true",
        help="measure the forward and backward pass together, with gradients of inputs and weights",
    )
    add(
        *spellings("--from-model"),
        metavar="REGEX",
        help="race the matrix products in the case that matches this regular expression, and print "
        "their share of its latency. They run as matmul; with --op linear, as linear",
    )
    add("--shapes", help="shapes and shape sets, e.g. llama,64x128x256 (default: small_sweep)")
    add(
        *spellings("--min-power"),
        type=count(0),
        metavar="P",
        help="exponent of the smallest power of two in sweeps",
    )
    add(
        *spellings("--max-power"),
        type=count(0),
        metavar="P",
        help="exponent of the largest power of two in sweeps; larger shapes in other sets are "
        "skipped",
    )
    add("--dtype", help=f"data types, one or more of {','.join(DATA_TYPES)} (default: fp32)")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="chart to write, e.g. FILE.svg: speed-ups over the baseline by shape, and for recipes "
        "also by signal-to-noise ratio",
    )
    add(
        *spellings("--own-workers"),
        action="store_true",
        help="start fresh processes for each shape, as `cbs run` does (default: reuse each "
        "competitor's processes for all shapes)",
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
        help="a single backend, as in `cbs run`, e.g. jax_xla or iree:llvm-cpu",
    )
    add(
        "--metric",
        choices=METRICS,
        default="latency",
        help="metric that became worse: latency, compile (cold compile time), memory (peak), "
        "output (wrong output) or failure (no valid result) (default: %(default)s)",
    )
    add_options(parser, "device")
    add_options(
        parser,
        "output",
        help="directory for state, results and environments (default: "
        "results/bisect/WHAT-GOOD-BAD). To resume, run the same command again",
    )
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="requirements file for the environments (default: the backend's locked requirements)",
    )
    add(
        "--processes",
        type=count(1),
        metavar="N",
        help="number of fresh processes per version (default: 3 to 10, depending on the spread)",
    )
    add_options(
        parser, *("effect", "trial_budget", "threads", "timeout", "memory_limit", "root_dir")
    )
    add_options(parser, "seed", help="seed for the order of process starts and blocks (default: 0)")
    add_options(parser, "json", "verbose")


def bisect_request(options: argparse.Namespace) -> "BisectRequest":
    """Returns the bisection that `cbs bisect` or `cbs userbenchmark bisect` requests.

    Raises:
      UsageError: the package or the repository is not fully specified.
    """
    import attrs

    from comparative_benchmark.studies.bisection.request import BisectRequest

    names = [field.name for field in attrs.fields(BisectRequest)]
    return BisectRequest(**{name: getattr(options, name) for name in names})


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that are common to all bisections."""
    add = parser.add_argument
    add("--good", required=True, help="known good version or commit")
    add("--bad", required=True, help="known bad version or commit, later than --good")
    add(
        "--package",
        help="package to bisect by release; with --git, the package that --build installs (it is "
        "omitted from the other requirements)",
    )
    add("--git", type=Path, metavar="REPO", help="repository whose commits to bisect")
    add(
        "--build",
        metavar="CMD",
        help="shell command that installs a commit, e.g. 'pip install .'; runs in a worktree, with "
        "python and pip from the commit's environment",
    )
    add("--pre", action="store_true", help="include pre-releases between --good and --bad")
    add(
        "--companion",
        action="append",
        metavar="NAME[==VERSION]",
        help="package to upgrade in lockstep, by default to the same version; may be repeated. "
        "Replaces the built-in companions (jaxlib for jax, IREE's runtime for its compiler)",
    )
    add("--python", help="Python interpreter for the environments (default: the one running cbs)")
    add(
        "--keep",
        type=int,
        default=4,
        metavar="N",
        help="maximum number of environments on disk, including --good and --bad (default: 4)",
    )
    add(
        *spellings("--build-timeout"),
        dest="build_timeout_s",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="time limit in seconds for --build (default: 3600)",
    )
    add("--everything", action="store_true", help="test all candidates, to find all changes")
    add(
        "--attempts",
        type=count(1),
        default=2,
        metavar="N",
        help="maximum number of attempts if a result is unclear, each with twice the processes of "
        "the previous one (default: 2)",
    )
    add(
        "--threshold",
        type=fraction,
        help="relative change below which a candidate is good (default: half the change between "
        "--good and --bad)",
    )


def add_repro_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs repro`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "case",
        metavar="CASE",
        help="name of a case or model in the file, or a regular expression that matches only one",
    )
    add("--backend", help="competitor to reproduce, if several ran the case, e.g. iree:llvm-cpu")
    _add_recorded_device(parser)
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="new or empty directory to write to (default: repro-<model>-<competitor>)",
    )
    _add_recorded_python(parser)
    add(
        "--check",
        action="store_true",
        help="run the reproducer once on this machine, and add its output to the README",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="time limit in seconds for the export and for the check (default: 1800 each)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit for the export, e.g. 8G (default: available memory minus 1G)",
    )


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs explain`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "competitors",
        nargs="*",
        metavar="COMPETITOR",
        help="two competitors in the file, e.g. pt_inductor:eager jax_xla:xla, or one to compare "
        "with the fastest (default: the slowest and the fastest). If a competitor ran models from "
        "several frameworks, add the framework, as in iree:llvm-cpu/jax",
    )
    add(
        *spellings("--case", "--workload"),
        dest="case",
        metavar="REGEX",
        help="workload to explain, if the file contains several: regular expression to search for "
        "in the names of cases, models and workloads",
    )
    _add_recorded_device(parser)
    add("--again", action="store_true", help="profile again, even if profiles are stored")
    add(
        *spellings("--no-profiling"),
        action="store_true",
        help="use only stored profiles; do not record new ones",
    )
    _add_recorded_python(parser)
    add_options(parser, "json", "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="time limit in seconds for profiling one competitor (default: 1800)",
    )
    add_options(parser, "memory_limit")


def _add_recorded_device(parser: argparse.ArgumentParser) -> None:
    text = "device, if the file contains results from several devices"
    add_options(parser, "device", default=None, help=text)


def _add_recorded_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *spellings("--recorded-python"),
        action="store_true",
        help="for results from `cbs run --env`, run the interpreter named in the results file; use "
        "this only with files that you trust",
    )
