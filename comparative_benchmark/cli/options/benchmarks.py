"""Options of `cbs bench` and `cbs userbenchmark`."""

import argparse
from pathlib import Path

from comparative_benchmark.cli.options.parsing import add_options
from comparative_benchmark.cli.options.studies import add_search_options
from comparative_benchmark.request import count


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs bench`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="create environments and install requirements")
    _add_bench_selection(install)
    install.add_argument("--force", action="store_true", help="rebuild existing environments")
    _add_variant(install)
    prepare = actions.add_parser("prepare", help="fetch data and weights (needs network access)")
    _add_bench_selection(prepare)
    _add_bench_run(actions.add_parser("run", help="measure benchmarks, without network access"))
    dev = actions.add_parser("dev", help="open a shell in a benchmark's environment")
    _add_bench_selection(dev)
    dev.add_argument(
        "-c", dest="shell_command", metavar="COMMAND", help="command to run instead of a shell"
    )
    _add_pin(actions.add_parser("pin", help="lock requirements for an architecture"))
    report = actions.add_parser("report", help="print a table of the latest results")
    _add_bench_selection(report)
    _add_results(report)
    report.add_argument(
        "--compare", "--baseline", type=Path, metavar="FILE", help="results file to compare with"
    )
    summary = actions.add_parser("summary", help="write the numbers from the table as JSON")
    _add_bench_selection(summary)
    _add_results(summary)
    summary.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: standard output)"
    )
    _add_bench_compare(actions.add_parser("compare", help="print scores relative to older results"))
    new = actions.add_parser("new", help="write the files of a new benchmark")
    new.add_argument("name", metavar="NAME", help="name of the benchmark, e.g. ornatebench")
    new.add_argument(
        "--directory",
        type=Path,
        default=Path("benchmarks"),
        help="parent directory of the benchmark (default: %(default)s/)",
    )
    copying = actions.add_parser(
        "cp-template", help="copy a template directory, and rename the benchmark in its files"
    )
    copying.add_argument("template", type=Path, metavar="TEMPLATE", help="directory to copy")
    copying.add_argument(
        "target", type=Path, metavar="DIR", help="new directory, e.g. benchmarks/ornatebench"
    )
    actions.add_parser(
        "shim",
        help="print the shell functions `milabench` and `cp-template`; define them with "
        'eval "$(cbs bench shim)"',
    )


def _add_bench_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML file that defines the benchmarks (default: $MILABENCH_CONFIG)",
    )
    add(
        *("--base", "--root"),
        dest="base",
        type=Path,
        metavar="DIR",
        help="directory for environments, data and runs (default: $MILABENCH_BASE, or milabench/ "
        "in the artifact root)",
    )
    add(
        "--use-current-env",
        action="store_true",
        help="run in the active environment, without installing anything",
    )
    add(
        "--override",
        action="append",
        default=[],
        metavar="NAME.KEY=VALUE",
        help="override a configuration value; may be repeated. NAME can be * for all benchmarks, "
        "and KEY can contain dots",
    )
    add(
        "--system",
        type=Path,
        metavar="FILE",
        help="milabench file describing the machine (default: $MILABENCH_SYSTEM or CONFIG.system)",
    )
    for name, what in (("select", "use only"), ("exclude", "skip")):
        add(
            f"--{name}",
            action="append",
            default=[],
            metavar="NAME[,NAME]",
            help=f"{what} benchmarks with this name, group, install group, tag or directory",
        )


def _add_variant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant",
        metavar="NAME",
        help="requirements variant, e.g. unpinned, cuda or rocm (default: as configured)",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="results file (default: results.json in --base)",
    )


def _add_bench_run(parser: argparse.ArgumentParser) -> None:
    _add_bench_selection(parser)
    text = "results file to write, or to add results to (default: results.json in --base)"
    add_options(parser, "output", metavar="FILE", help=text)
    add = parser.add_argument
    add("--run-name", metavar="NAME", help="name of the run's directory (default: the start time)")
    add(
        "--repeat",
        type=count(1),
        default=1,
        metavar="N",
        help="number of replicates of each benchmark (default: 1)",
    )
    add(
        "--dash",
        nargs="?",
        const="short",
        default="no",
        choices=("short", "long", "no"),
        help="show losses, rates and progress during the run (default: no)",
    )
    add(
        "--alone",
        action="store_true",
        help="if a benchmark runs several processes in parallel, also run one alone, to show how "
        "much they slow each other down",
    )
    add(
        "--auto-batch",
        action="store_true",
        help="for benchmarks with auto_batch(N), first try the batch sizes N, 2 N, 4 N ..., then "
        "use the fastest",
    )
    add(
        "--env",
        metavar="NAME=PATH,...",
        help="Python environments to run each benchmark in, e.g. old=venv-1,new=venv-2. Each "
        "replicate (--repeat) uses all of them; nothing is installed",
    )
    add("--fulltrace", action="store_true", help="show the scripts' output")
    add("--no-report", action="store_true", help="do not print the table")


def _add_pin(parser: argparse.ArgumentParser) -> None:
    _add_bench_selection(parser)
    _add_variant(parser)
    add = parser.add_argument
    text = "constraints file for pip-compile; may be repeated"
    add("--constraints", "-c", action="append", default=[], type=Path, metavar="FILE", help=text)
    add("--from-scratch", action="store_true", help="ignore the existing lock file")
    add(
        "--pip-compile",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="ARGS",
        help="pass all following arguments to pip-compile",
    )


def _add_bench_compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("old", type=Path, metavar="OLD", help="baseline results file")
    add("new", type=Path, metavar="NEW", help="results file to compare with the baseline")
    add_options(parser, "threshold", "json")


def add_userbenchmark_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs userbenchmark`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list all userbenchmarks")
    add_options(listing, "json")
    listing.add_argument(
        "--schedule",
        choices=("nightly", "weekly"),
        help="list only userbenchmarks with this CI schedule",
    )
    run = actions.add_parser("run", help="run a userbenchmark in a separate process")
    _add_name_and_arguments(run)
    add_options(
        run, "timeout", default=None, help="time limit in seconds for the run (default: no limit)"
    )
    _add_output_folder(run)
    _add_compare(actions.add_parser("compare", help="compare two metrics files"))
    _add_bisect(
        actions.add_parser("bisect", help="find the release or commit that changed a metric")
    )
    for action in actions.choices.values():
        action.add_argument(
            "--directory", type=Path, help="userbenchmarks directory (default: userbenchmark/)"
        )


def _add_name_and_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help="name of the userbenchmark, as printed by `cbs userbenchmark list`",
    )
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGS",
        help="arguments to pass to the userbenchmark's run(args) function",
    )


def _add_output_folder(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="directory to write to (default: .userbenchmark/ next to --directory; for bisect, a "
        "subdirectory of results/bisect/)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="two metrics files to compare (control and treatment), one NAME to compare its last "
        "two runs, or two directories to compare all their runs",
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="Markdown file to write, with a table of all metrics; requires two directories",
    )
    text = "regression file to write, in TorchBench's format"
    parser.add_argument("--yaml", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--issue",
        type=Path,
        metavar="FILE",
        help="file for the text of a GitHub issue; written only if anything changed",
    )
    parser.add_argument(
        "--owner",
        action="append",
        default=[],
        help="GitHub user to mention in the issue; may be repeated",
    )
    add_options(parser, "json")
    _add_output_folder(parser)


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    _add_name_and_arguments(parser)
    add_search_options(parser)
    add = parser.add_argument
    add("--metric", default=".", metavar="REGEX", help="metrics to test (default: all)")
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="requirements file to install in each environment, in addition to the package and "
        "the suite's requirements",
    )
    add("--runs", type=int, default=3, metavar="N", help="number of runs per version (default: 3)")
    text = "time limit in seconds for each run (default: no limit)"
    add_options(parser, "timeout", default=None, help=text)
    add_options(parser, "json")
    _add_output_folder(parser)
