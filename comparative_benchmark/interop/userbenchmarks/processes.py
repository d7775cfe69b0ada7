"""Runs a userbenchmark in its own process and cleans up after it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import msgspec

from comparative_benchmark.errors import EXIT_MISSING, EXIT_OK, EXIT_WRONG
from comparative_benchmark.interop.userbenchmarks import child
from comparative_benchmark.interop.userbenchmarks.authoring import OUTPUT_VARIABLE
from comparative_benchmark.interop.userbenchmarks.discovery import (
    Userbenchmark,
    UserbenchmarkError,
    output_base,
)
from comparative_benchmark.reporting.formats.source import read_source
from comparative_benchmark.reporting.history.portable import FormatError

_FILE = re.compile(r"metrics-\d{14}\.json")
Document = dict[str, Any]


class _Metrics(msgspec.Struct):
    name: str
    environ: dict[str, Any]
    metrics: dict[str, Any]


class MetricsError(ValueError):
    """A metrics file is damaged; the message names the file and the error."""


def metrics_files(folder: Path) -> list[Path]:
    """Returns the metrics files of a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _FILE.fullmatch(path.name))


def read_metrics(path: Path, name: str | None = None) -> Document:
    """Returns a metrics document.

    Args:
      path: the file.
      name: the userbenchmark that must have written it; None for any.

    Raises:
      MetricsError: the file cannot be read, belongs to another userbenchmark, or contains a value
        that is neither a number nor a status.
    """
    try:
        source = read_source(path)
        metrics = source.decoded(_Metrics, "a metrics file").metrics
        document = source.decoded(Document)
    except FormatError as error:
        raise MetricsError(str(error)) from error
    for metric, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise MetricsError(f"{path}: not a metrics file: {metric!r} is {ascii(value)[:60]}")
    if name is not None and document["name"] != name:
        raise MetricsError(f"{path} belongs to userbenchmark {document['name']!r}, not {name!r}")
    return document


# With wrong outputs or missing data, the metrics contain statuses; the benchmark did not fail.
_PARTLY = (EXIT_OK, EXIT_WRONG, EXIT_MISSING)
_GRACE_S = 5.0
_DETECTOR_S = 600.0


@attrs.frozen(kw_only=True)
class Left:
    """Metrics files and exit code of a userbenchmark."""

    files: tuple[Path, ...]
    code: int


def run_benchmark(
    benchmark: Userbenchmark,
    arguments: Sequence[str],
    output: Path,
    *,
    python: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    log: IO[str] | None = None,
) -> Left:
    """Runs a userbenchmark to its end; returns its validated metrics files and exit code.

    Args:
      benchmark: the userbenchmark.
      arguments: arguments of its `run` function.
      output: parent folder of all output; files go into the subfolder with its name.
      python: interpreter to run it with.
      variables: environment variables, in addition to ours.
      timeout_s: limit after which it and all its descendants are killed.
      log: receives its output; None for our own streams.

    Raises:
      UserbenchmarkError: it failed, timed out, has no run(args), or wrote no metrics.
      MetricsError: a metrics file is damaged.
    """
    folder = output / benchmark.name
    # TorchBench's own `userbenchmark/utils.py` always writes next to its folder.
    next_to_it = output_base(benchmark.folder.parent) / benchmark.name
    before = {
        path: path.stat().st_mtime_ns for at in {folder, next_to_it} for path in metrics_files(at)
    }
    code = _call(
        [python, *_command("run", benchmark), *arguments],
        {OUTPUT_VARIABLE: str(output.absolute()), **(variables or {})},
        directory=benchmark.folder.parent.parent,
        timeout_s=timeout_s,
        log=log,
    )
    written = _written(folder, before)
    if not written and next_to_it.absolute() != folder.absolute():
        folder.mkdir(parents=True, exist_ok=True)
        written = [
            Path(shutil.move(path, folder / path.name)) for path in _written(next_to_it, before)
        ]
    kept = f"; it wrote {', '.join(map(str, written))}" if written else ""
    if code == child.NO_RUN:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} has no run(args) in {benchmark.folder}/__init__.py"
        )
    if code is None:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} took more than {timeout_s:g} s and was killed{kept}"
        )
    if code not in _PARTLY:
        raise UserbenchmarkError(f"userbenchmark {benchmark.name!r} failed: {_ending(code)}{kept}")
    if not written:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} ended with exit code {code} but wrote no "
            f"metrics-*.json in {folder}"
        )
    for path in written:
        read_metrics(path, benchmark.name)
    return Left(files=tuple(written), code=code)


def _written(folder: Path, before: Mapping[Path, int]) -> list[Path]:
    """Returns the metrics files in a folder that are new or modified."""
    return [path for path in metrics_files(folder) if before.get(path) != path.stat().st_mtime_ns]


def detect(benchmark: Userbenchmark, control: Document, treatment: Document) -> Any:
    """Returns the result of the userbenchmark's own detector for two documents.

    Raises:
      UserbenchmarkError: the detector fails or does not exist.
    """
    with tempfile.TemporaryDirectory() as temporary:
        question, answer = Path(temporary) / "question.json", Path(temporary) / "answer.json"
        question.write_text(json.dumps({"control": control, "treatment": treatment}))
        code = _call(
            [sys.executable, *_command("detect", benchmark), str(question), str(answer)],
            {},
            directory=benchmark.folder.parent.parent,
            timeout_s=_DETECTOR_S,
            # Keep the detector's output out of ours.
            log=sys.stderr,
        )
        where = benchmark.folder / f"{child.DETECTOR}.py"
        if code == child.NO_DETECTOR:
            raise UserbenchmarkError(f"{where} has no run(control, treatment)")
        if code is None or code:
            ending = f"took longer than {_DETECTOR_S:g} s" if code is None else _ending(code)
            raise UserbenchmarkError(f"the detector {where} failed: {ending}")
        try:
            return json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserbenchmarkError(
                f"the detector {where} returned no valid result: {error}"
            ) from error


def _command(action: str, benchmark: Userbenchmark) -> list[str]:
    # -P: a file in the current directory must not shadow a package.
    module = ["-P", "-m", "comparative_benchmark.interop.userbenchmarks.child"]
    return [*module, action, benchmark.name, str(benchmark.folder.parent)]


def _call(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    directory: Path,
    timeout_s: float | None,
    log: IO[str] | None,
) -> int | None:
    """Returns the exit code, or None on timeout; kills all remaining descendants."""
    # Flush, so that our output and the child's appear in order.
    sys.stdout.flush()
    started = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        cwd=directory,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        start_new_session=True,
    )
    try:
        return started.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(started)


def _end(started: subprocess.Popen[bytes]) -> None:
    if started.poll() is None:
        _signal(started.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(_GRACE_S)
    # The group leader may have exited before its children.
    _signal(started.pid, signal.SIGKILL)
    started.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


__all__ = ["MetricsError", "UserbenchmarkError", "detect", "run_benchmark"]
