"""`cbs userbenchmark`: list, run, compare and bisect userbenchmarks."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from comparative_benchmark.cli.options.studies import bisect_request
from comparative_benchmark.errors import EXIT_MISSING, EXIT_OK, EXIT_WRONG
from comparative_benchmark.interop.userbenchmarks import changes, runner
from comparative_benchmark.interop.userbenchmarks.changes import Signals
from comparative_benchmark.interop.userbenchmarks.runner import (
    Ci,
    CiError,
    Document,
    Userbenchmark,
    UserbenchmarkError,
    metrics_files,
    read_metrics,
    run_benchmark,
)
from comparative_benchmark.reporting.writers import as_yaml
from comparative_benchmark.results.results_file import refuse_results
from comparative_benchmark.terminal.screen import escaped
from openxla.benchmark.files import write_atomically
from openxla.benchmark.text import printable


def run(options: argparse.Namespace) -> int:
    """Runs the selected action.

    Returns:
      0 on success; 1 if a userbenchmark or its files are damaged; 2 if a metric became worse or an
      output was wrong; 3 if metrics are missing, a CI file is invalid or a bisection is inexact.

    Raises:
      UsageError: an option is invalid, or a userbenchmark fails.
    """
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "run": _run,
        "compare": _compare,
        "bisect": _bisect,
    }
    return actions[options.action](options)


def _list(options: argparse.Namespace) -> int:
    benchmarks = runner.find_all(runner.find_folder(options.directory))
    code = EXIT_OK
    rows: list[tuple[Userbenchmark, Ci | None]] = []
    for benchmark in benchmarks:
        try:
            rows.append((benchmark, benchmark.ci))
        except CiError as error:
            # Still list the others.
            print(printable(f"cbs: {error}"), file=sys.stderr)
            code = EXIT_MISSING
    for _, ci in rows:
        if ci is not None and ci.note:
            print(printable(f"note: {ci.note}"), file=sys.stderr)
    if options.schedule:
        rows = [(item, ci) for item, ci in rows if ci and ci.schedule == options.schedule]
    if options.json:
        print(json.dumps([_as_json(item, ci) for item, ci in rows], indent=2))
        return code
    width = max((len(item.name) for item, _ in rows), default=0)
    for item, ci in rows:
        runs = f"{ci.schedule} on {ci.platform}" if ci else "no CI"
        detector = "own detector" if item.has_detector else "7 % threshold"
        print(f"{item.name:<{width}}  {runs}; {detector}; {item.summary}")
    return code


def _as_json(benchmark: Userbenchmark, ci: Ci | None) -> dict[str, Any]:
    return {
        "name": benchmark.name,
        "folder": str(benchmark.folder),
        "summary": benchmark.summary,
        "platform": ci.platform if ci else None,
        "schedule": ci.schedule if ci else None,
        "has_detector": benchmark.has_detector,
    }


def _run(options: argparse.Namespace) -> int:
    folder = runner.find_folder(options.directory)
    benchmark = runner.find(options.name, folder)
    output = options.output or runner.output_base(folder)
    left = run_benchmark(benchmark, options.arguments, output, timeout_s=options.timeout)
    for path in left.files:
        print(printable(f"metrics: {path}"))
    return left.code


def _compare(options: argparse.Namespace) -> int:
    refuse_results((options.yaml, options.issue, options.markdown), options.files)
    if len(options.files) == 2 and all(Path(name).is_dir() for name in options.files):
        sides = [changes.read_runs(Path(name)) for name in options.files]
        signals, rows = changes.compare_runs(*sides)
        if options.markdown:
            headline = f"### Userbenchmark: {escaped(signals.name)}"
            runs = min(map(len, sides))
            _write(options.markdown, changes.as_markdown(headline, rows, runs))
    elif options.markdown:
        raise UserbenchmarkError("--markdown requires two directories of metrics files")
    else:
        control, treatment = _two_documents(options)
        signals = changes.compare(_benchmark_of(control["name"], options), control, treatment)
    if options.yaml:
        _write(options.yaml, as_yaml(signals.as_document()))
    if options.issue and (signals.changes or signals.control_only or signals.treatment_only):
        _write(options.issue, changes.issue_text(signals, tuple(options.owner)))
    if options.json:
        print(json.dumps(signals.as_document(), indent=2, allow_nan=False))
    else:
        print(printable("\n".join(_verdict_lines(signals))))
    if signals.regressions:
        return EXIT_WRONG
    return EXIT_MISSING if signals.control_only or not signals.compared else EXIT_OK


def _two_documents(options: argparse.Namespace) -> tuple[Document, Document]:
    if len(options.files) == 2:
        paths = [Path(name) for name in options.files]
    elif len(options.files) == 1:
        paths = _last_two(options.files[0], options)
    else:
        raise UserbenchmarkError(
            "compare requires one NAME, two metrics files, or two directories of metrics files"
        )
    control, treatment = (read_metrics(path) for path in paths)
    return control, treatment


def _last_two(name: str, options: argparse.Namespace) -> list[Path]:
    folder = runner.find_folder(options.directory)
    benchmark = runner.find(name, folder)
    output = (options.output or runner.output_base(folder)) / benchmark.name
    paths = metrics_files(output)[-2:]
    if len(paths) < 2:
        raise UserbenchmarkError(
            f"compare requires two metrics files, but {output} has {len(paths)}; "
            f"to add one, run `cbs userbenchmark run {name}`"
        )
    print(printable(f"control: {paths[0]}\ntreatment: {paths[1]}"), file=sys.stderr)
    return paths


def _benchmark_of(name: str, options: argparse.Namespace) -> Userbenchmark | None:
    """Returns the userbenchmark of a metrics file, or None if it is not on this machine."""
    try:
        return runner.find(name, runner.find_folder(options.directory))
    except UserbenchmarkError:
        if options.directory is not None:
            raise
        print(
            f"cbs: userbenchmark {name!r} not found; comparing metrics with a 7 % threshold",
            file=sys.stderr,
        )
        return None


def _verdict_lines(signals: Signals) -> list[str]:
    lines = [
        f"{'worse ' if item.is_worse else 'better'}  {item.change:>8}  {item.metric}: "
        f"{_value(item.control)} -> {_value(item.treatment)}"
        for item in sorted(signals.changes, key=lambda item: not item.is_worse)
    ]
    lines += [f"missing          {name}: {_value(v)}" for name, v in signals.control_only.items()]
    lines += [f"new              {name}: {_value(v)}" for name, v in signals.treatment_only.items()]
    worse = len(signals.regressions)
    summary = (
        f"{signals.name}: metrics compared: {signals.compared}; {worse} worse, "
        f"{len(signals.changes) - worse} better, {len(signals.control_only)} missing, "
        f"{len(signals.treatment_only)} new"
    )
    return [*lines, summary]


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _write(path: Path, text: str) -> None:
    try:
        if path.exists() and not path.is_file():  # e.g. /dev/stdout
            path.write_text(text, encoding="utf-8")
        else:
            write_atomically(path, text)
    except OSError as error:
        raise UserbenchmarkError(f"{path} cannot be written: {error.strerror}") from error


def _bisect(options: argparse.Namespace) -> int:
    from comparative_benchmark.interop.userbenchmarks.bisecting import bisect_userbenchmark
    from comparative_benchmark.studies.bisection import bisection
    from comparative_benchmark.studies.bisection.bisection import as_json

    benchmark = runner.find(options.name, runner.find_folder(options.directory))
    request = bisect_request(options)
    outcome = bisect_userbenchmark(
        benchmark,
        request,
        arguments=options.arguments,
        runs=options.runs,
        timeout_s=options.timeout,
        requirements=options.requirements,
    )
    if options.json:
        print(json.dumps(as_json(outcome), indent=2))
    else:
        told = bisection.as_text(
            outcome, "worse", what=request.subject, effort="--attempts, --runs"
        )
        print(f"{benchmark.name}: {told}")
    return EXIT_OK if outcome.is_exact else EXIT_MISSING
