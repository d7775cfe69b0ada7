"""`cbs bench`: milabench's commands for its benchmarks."""

import argparse
import glob
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.engine.settings import UnusableEnvironmentError, interpreters
from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError, check_place
from comparative_benchmark.interop.milabench import config, inheritance, table, workspace
from comparative_benchmark.interop.milabench.config import ArgumentsError, Bench
from comparative_benchmark.results.record import EnvironmentName, Result
from comparative_benchmark.results.results_file import read_document, refuse_results
from comparative_benchmark.terminal.console import Console
from openxla.benchmark.text import printable

RESULTS = "results.json"
# Columns that the full table needs.
_WIDE_COLUMNS = 120


def run(options: argparse.Namespace) -> int:
    """Runs the selected action; returns the exit code.

    Raises:
      UsageError: an option or the configuration is invalid.
    """
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "install": _install,
        "prepare": _prepare,
        "run": _run,
        "dev": _dev,
        "pin": _pin,
        "report": _report,
        "summary": _summary,
        "compare": _compare,
        "cp-template": _copy_template,
        "new": _new,
        "shim": _shim,
    }
    return actions[options.action](options)


def benches(options: argparse.Namespace) -> list[Bench]:
    """Returns the benchmarks that the options select.

    Raises:
      UsageError: the configuration is missing or invalid, or a name selects nothing.
    """
    path = options.config or os.environ.get(workspace.CONFIG_VARIABLE)
    if not path:
        raise UsageError("no configuration; pass --config FILE or set MILABENCH_CONFIG")
    file = Path(path).expanduser()
    over = inheritance.of_command_line(options.override)
    if system := _system(options.system, file):
        over.insert(0, inheritance.of_system(system))
    chosen = config.read(file, over)
    chosen = config.select(chosen, _names(options.select), _names(options.exclude))
    if options.use_current_env:
        venv = workspace.current_venv()
        chosen = [attrs.evolve(bench, venv=venv) for bench in chosen]
    for bench in chosen:
        try:
            workspace.Placement(base=Path(), bench=bench, run_name="").config()
        except ArgumentsError as error:
            raise UsageError(f"{bench.place}: {error}") from error
    return chosen


def _system(given: Path | None, config_file: Path) -> Path | None:
    """Returns the path of the system description, found by the same rules as in milabench."""
    if given is not None:
        return given
    if configured := os.environ.get(workspace.SYSTEM_VARIABLE):
        return Path(configured).expanduser()
    # Reading the configuration reports a name that is too long for a file.
    return next(config_file.parent.glob(f"{glob.escape(config_file.name)}.system"), None)


def _names(given: Sequence[str]) -> list[str]:
    return [name.strip() for item in given for name in item.split(",") if name.strip()]


def results_path(options: argparse.Namespace) -> Path:
    """Returns the path of the results file: the given one, or one in the base folder."""
    given = getattr(options, "results", None) or getattr(options, "output", None)
    return Path(given) if given else workspace.base_dir(options.base) / RESULTS


def _install(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import phases

    return phases.install(
        benches(options),
        workspace.base_dir(options.base),
        variant=options.variant,
        force=options.force,
    )


def _prepare(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import phases

    return phases.prepare(benches(options), workspace.base_dir(options.base))


def _pin(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import phases

    return phases.pin(
        benches(options),
        workspace.base_dir(options.base),
        variant=options.variant,
        constraints=[path.absolute() for path in options.constraints],
        clear_previous=options.from_scratch,
        pip_compile=options.pip_compile,
    )


def _run(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import phases

    chosen = benches(options)
    base = workspace.base_dir(options.base)
    if options.env and options.use_current_env:
        raise UsageError("--env and --use-current-env cannot be combined; use one of them")
    try:
        named = interpreters(options.env) if options.env else {}
    except UnusableEnvironmentError as error:
        raise UsageError(f"--env {error}") from error
    code, results = phases.run(
        chosen,
        base,
        phases.How(
            results=results_path(options),
            run_name=options.run_name,
            repeat=options.repeat,
            dash=options.dash,
            echo=options.fulltrace,
            alone=options.alone,
            auto_batch=options.auto_batch,
            environments=[EnvironmentName(name=n, python=path) for n, path in named.items()],
        ),
    )
    if not options.no_report:
        from comparative_benchmark.interop.milabench import scores

        _print_table(table.rows(chosen, results))
        print("".join(f"{line}\n" for line in scores.race_lines(results)), end="")
        print("".join(f"{line}\n" for line in table.remarks(results)), end="")
    print(f"results: {results_path(options)}")
    return code


def _dev(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import template

    return template.shell(benches(options), workspace.base_dir(options.base), options.shell_command)


def _report(options: argparse.Namespace) -> int:
    rows = _rows(options)
    _print_table(rows)
    if options.compare:
        _print_comparison(options.compare, results_path(options), threshold=0.01, as_json=False)
    return EXIT_OK if table.totals(rows).passed else EXIT_FAILED


def _summary(options: argparse.Namespace) -> int:
    rows = _rows(options)
    text = json.dumps(table.as_document(rows), indent=2, allow_nan=False)
    if options.out:
        check_place(options.out, "--out")
        refuse_results([options.out], [results_path(options)])
        from openxla.benchmark.files import write_atomically

        write_atomically(options.out, text + "\n")
    else:
        print(text)
    return EXIT_OK if table.totals(rows).passed else EXIT_FAILED


def _rows(options: argparse.Namespace) -> list[table.Row]:
    """Returns the table's rows: for the configured benchmarks, or else for all results."""
    results: Sequence[Result] = read_document(results_path(options)).benchmarks
    if options.config or os.environ.get(workspace.CONFIG_VARIABLE):
        return table.rows(benches(options), results)
    rows = table.rows_of(results)
    if not rows:
        raise UsageError(f"{results_path(options)} contains no results from `cbs bench run`")
    return rows


def _print_table(rows: Sequence[table.Row]) -> None:
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE_COLUMNS
    Console().table(table.table(rows, narrow=narrow))
    print(printable("\n".join([*table.reasons(rows), *table.lines(table.totals(rows))])))


def _compare(options: argparse.Namespace) -> int:
    return _print_comparison(
        options.old, options.new, threshold=options.threshold, as_json=options.json
    )


def _print_comparison(old: Path, new: Path, *, threshold: float, as_json: bool) -> int:
    from comparative_benchmark.interop.milabench import scores

    comparison = scores.compare(read_document(old), read_document(new), threshold=threshold)
    if as_json:
        print(json.dumps(scores.as_document(comparison), indent=2, allow_nan=False))
    else:
        Console().table(scores.table(comparison))
        print(printable("\n".join(scores.lines(comparison))))
    return scores.exit_code(comparison)


def _new(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import template

    for line in template.write(options.name, options.directory):
        print(line)
    return EXIT_OK


def _copy_template(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import template

    for line in template.copy(options.template, options.target):
        print(line)
    return EXIT_OK


def _shim(_: argparse.Namespace) -> int:
    from comparative_benchmark.interop.milabench import template

    print(template.shim())
    return EXIT_OK
