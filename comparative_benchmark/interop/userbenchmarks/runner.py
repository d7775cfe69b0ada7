"""Finds userbenchmarks with their `ci.yaml`, and runs each in its own process.

Userbenchmarks are subfolders of `userbenchmark/`. All processes of a run are killed at its end.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import msgspec

import comparative_benchmark
from comparative_benchmark.analysis.machine.other_processes import run_supervised
from comparative_benchmark.errors import EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.interop.userbenchmarks import child
from comparative_benchmark.interop.userbenchmarks.authoring import (
    OUTPUT_VARIABLE,
    PLATFORMS,
    USERBENCHMARK_OUTPUT_PREFIX,
)
from comparative_benchmark.reporting.formats.interface import read_source
from comparative_benchmark.reporting.history.rows import FormatError
from openxla.benchmark import bounded, devices
from openxla.benchmark.text import did_you_mean

CI_FILE = "ci.yaml"
SCHEDULES = ("nightly", "weekly")

FOLDER = "userbenchmark"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_FILE = re.compile(r"metrics-\d{14}\.json")
Document = dict[str, Any]

# With wrong outputs or missing data, the metrics contain statuses; the benchmark did not fail.
_PARTLY = (EXIT_OK, EXIT_WRONG, EXIT_MISSING)
_GRACE_S = 5.0
_DETECTOR_S = 600.0


class CiError(UsageError, ValueError):
    """A `ci.yaml` is invalid; the message names the file and the error."""


@attrs.frozen(kw_only=True)
class Ci:
    """Contents of a `ci.yaml`.

    Attributes:
      platform: a device of this suite, one of TorchBench's platforms, or another CI's name.
      schedule: one of `SCHEDULES`.
      note: a hint for the user about an unknown platform; None if the platform is known.
    """

    platform: str
    schedule: str
    note: str | None = None


def read_ci(path: Path) -> Ci | None:
    """Returns the contents of the file, or None if it does not exist.

    Raises:
      CiError: the file is unreadable or invalid, or PyYAML is not installed.
    """
    if not path.is_file():
        return None
    document = _document(path)
    if not isinstance(document, dict):
        raise CiError(f"{path}: expected a mapping with 'platform' and 'schedule'")
    unknown = sorted(str(key) for key in set(document) - {"platform", "schedule"})
    if unknown:
        raise CiError(f"{path}: unknown key {unknown[0]!r}; expected 'platform' or 'schedule'")
    platforms = (*PLATFORMS, *(device.name for device in devices.ALL_DEVICES))
    schedule = _choice(path, document, "schedule", SCHEDULES)
    platform = document.get("platform")
    # Unknown platforms are allowed: another CI may have other machines.
    if isinstance(platform, str) and platform and platform not in platforms:
        note = f"{path}: platform {platform!r} is not one of {', '.join(platforms)}"
        return Ci(platform=platform, schedule=schedule, note=note)
    return Ci(platform=_choice(path, document, "platform", platforms), schedule=schedule)


def _choice(path: Path, document: dict[Any, Any], key: str, choices: tuple[str, ...]) -> str:
    value = document.get(key)
    if value is None:
        raise CiError(f"{path}: {key!r} is missing; choices are {', '.join(choices)}")
    if value not in choices:
        raise CiError(f"{path}: {key} {value!r} is not one of {', '.join(choices)}")
    return str(value)


def _document(path: Path) -> Any:
    try:
        from comparative_benchmark.sources.yaml_files import YamlFile

        file = YamlFile(path)
        return file.plain(file.document())
    except ModuleNotFoundError as error:
        raise CiError(f"{path}: YAML files require PyYAML; run pip install pyyaml") from error
    except UsageError as error:
        raise CiError(str(error)) from error


class UserbenchmarkError(UsageError):
    """A userbenchmark cannot be found or run; the message gives the reason and the remedy."""


@attrs.frozen(kw_only=True)
class Userbenchmark:
    """A userbenchmark."""

    name: str
    folder: Path

    @property
    def ci(self) -> Ci | None:
        """Its CI platform and schedule; None if no CI runs it.

        Raises:
          CiError: its `ci.yaml` is invalid.
        """
        return read_ci(self.folder / CI_FILE)

    @property
    def has_detector(self) -> bool:
        """Whether it defines its own regression detector."""
        return (self.folder / f"{child.DETECTOR}.py").is_file()

    @property
    def summary(self) -> str:
        """The first line of its docstring, parsed without importing the module."""
        import ast

        try:
            tree = ast.parse((self.folder / "__init__.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
        return (ast.get_docstring(tree) or "").partition("\n")[0]


def find_folder(given: Path | None) -> Path:
    """Returns the folder of userbenchmarks: as given, else below here, else in the checkout.

    Raises:
      UserbenchmarkError: no such directory exists.
    """
    if given is not None:
        if not given.is_dir():
            raise UserbenchmarkError(f"--directory {given} is not a directory")
        return given.absolute()
    checkout = Path(comparative_benchmark.__file__).parents[1] / FOLDER
    for folder in (Path.cwd() / FOLDER, checkout):
        if folder.is_dir():
            return folder.absolute()
    raise UserbenchmarkError(
        f"no {FOLDER}/ directory found; run cbs in a checkout, or pass --directory DIR"
    )


def find_all(folder: Path) -> list[Userbenchmark]:
    """Returns all userbenchmarks of a folder, by name."""
    return [
        Userbenchmark(name=path.name, folder=path)
        for path in sorted(folder.iterdir())
        if path.is_dir() and _NAME.fullmatch(path.name)
        # TorchBench's folders may lack `__init__.py`.
        if any((path / name).is_file() for name in ("__init__.py", "run.py"))
    ]


def find(name: str, folder: Path) -> Userbenchmark:
    """Returns the userbenchmark with that name.

    Raises:
      UserbenchmarkError: it does not exist.
    """
    known = {item.name: item for item in find_all(folder)}
    if name in known:
        return known[name]
    if _NAME.fullmatch(name) and (folder / name).is_dir():
        raise UserbenchmarkError(f"{folder / name} has no __init__.py with run(args)")
    meant = did_you_mean(name, known)
    raise UserbenchmarkError(
        f"no userbenchmark {name!r} in {folder}{meant} (see cbs userbenchmark list)"
    )


def output_base(folder: Path) -> Path:
    """Returns the parent folder for the output of all userbenchmarks."""
    return folder.parent / USERBENCHMARK_OUTPUT_PREFIX


class _Metrics(msgspec.Struct):
    name: str
    environ: dict[str, Any]
    metrics: dict[str, Any]


class MetricsError(UsageError, ValueError):
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
            raise MetricsError(f"{path}: invalid value for metric {metric!r}: {ascii(value)[:60]}")
    if name is not None and document["name"] != name:
        raise MetricsError(f"{path} belongs to userbenchmark {document['name']!r}, not {name!r}")
    return document


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
    left = f"; files written: {', '.join(map(str, written))}" if written else ""
    if code == child.NO_RUN:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} has no run(args) in {benchmark.folder}/__init__.py"
        )
    if code is None:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} took more than {timeout_s:g} s and was killed{left}"
        )
    if code not in _PARTLY:
        raise UserbenchmarkError(
            f"userbenchmark {benchmark.name!r} failed: {bounded.exit_description(code)}{left}"
        )
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
            late = f"took longer than {_DETECTOR_S:g} s"
            ending = late if code is None else bounded.exit_description(code)
            raise UserbenchmarkError(f"the detector {where} failed: {ending}")
        try:
            return json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserbenchmarkError(
                f"the detector {where} returned an invalid result: {error}"
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
    return run_supervised(
        command,
        env={**os.environ, **variables},
        timeout_s=timeout_s,
        grace_s=_GRACE_S,
        cwd=directory,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
    )
