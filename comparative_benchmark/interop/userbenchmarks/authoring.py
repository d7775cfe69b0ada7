"""Functions that a userbenchmark may call, under the names that TorchBench uses.

This module imports only the standard library, because a bisection runs userbenchmarks in
environments with few other packages.
"""

import ast
import contextlib
import datetime
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Parent folder of all output; set by `cbs userbenchmark`.
OUTPUT_VARIABLE = "CBS_USERBENCHMARK_OUTPUT"
USERBENCHMARK_OUTPUT_PREFIX = ".userbenchmark"
PLATFORMS = ["gcp_a100", "aws_t4_metal"]
_TIME_FORMAT = "%Y%m%d%H%M%S"
_UNKNOWN = "<unknown>"


@dataclass
class TorchBenchABTestMetric:
    """A changed metric: both values, and the relative change or `old -> new`."""

    control: float | str
    treatment: float | str
    delta: float | str


@dataclass
class TorchBenchABTestResult:
    """The result of a regression detector."""

    name: str
    control_env: dict[str, str]
    treatment_env: dict[str, str]
    details: dict[str, TorchBenchABTestMetric]
    control_only_metrics: dict[str, float | str] = field(default_factory=dict)
    treatment_only_metrics: dict[str, float | str] = field(default_factory=dict)
    bisection: str = "pytorch"
    bisection_mode: str = "bisect"
    bisection_config_file_path: str | None = None


def get_output_json(bm_name: str, metrics: Mapping[str, float | str]) -> dict[str, Any]:
    """Returns a metrics document, including the version of PyTorch if it is installed."""
    version, git_version = pytorch_versions()
    return {
        "name": bm_name,
        "environ": {
            "metrics_version": "v0.1",
            "pytorch_git_version": git_version,
            "pytorch_version": version,
        },
        "metrics": dict(metrics),
    }


def pytorch_versions() -> tuple[str, str]:
    """Returns the version and the commit of PyTorch, without importing it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        commit = getattr(getattr(torch, "version", None), "git_version", None)
        return str(getattr(torch, "__version__", _UNKNOWN)), str(commit or _UNKNOWN)
    stated: dict[str, str] = {}
    # Importing PyTorch takes seconds, so read its version.py as text.
    with contextlib.suppress(ImportError, ValueError, OSError, SyntaxError):
        spec = importlib.util.find_spec("torch")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            stated.update(_stated_texts(Path(place) / "version.py"))
    return stated.get("__version__", _UNKNOWN), stated.get("git_version", _UNKNOWN)


def _stated_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields each module-level name that is assigned a string literal, with the string."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        text = node.value.value if isinstance(node.value, ast.Constant) else None
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            if isinstance(target, ast.Name) and isinstance(text, str):
                yield target.id, text


def get_output_dir(bm_name: str) -> Path:
    """Returns the output folder of a userbenchmark, creating it if necessary."""
    base = os.environ.get(OUTPUT_VARIABLE)
    folder = Path(base) if base else Path.cwd() / USERBENCHMARK_OUTPUT_PREFIX
    folder = folder / bm_name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def get_default_output_json_path(bm_name: str, target_dir: Path | None = None) -> str:
    """Returns `metrics-yyyyMMddHHmmss.json` for the first second from now without a file."""
    folder = target_dir or get_output_dir(bm_name)
    moment = datetime.datetime.now().astimezone()
    while True:
        path = folder / f"metrics-{moment.strftime(_TIME_FORMAT)}.json"
        if not path.exists():
            return str(path)
        moment += datetime.timedelta(seconds=1)


def dump_output(bm_name: str, output: Any, target_dir: Path | None = None) -> None:
    """Writes a metrics document to the output folder, atomically."""
    write_output(Path(get_default_output_json_path(bm_name, target_dir)), output)


def get_default_debug_output_dir(metrics_json: str) -> Path:
    """Returns `output-yyyyMMddHHmmss` next to a metrics file, for the run's other output."""
    path = Path(metrics_json)
    return path.parent / path.stem.replace("metrics-", "output-", 1)


def write_output(path: Path, output: Any) -> None:
    """Writes a metrics document atomically."""
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(output, indent=4, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


@contextlib.contextmanager
def add_path(path: str) -> Iterator[None]:
    """Adds a folder to the import path while the block runs."""
    sys.path.insert(0, path)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(path)


def threshold_detector(
    control: Mapping[str, Any], treatment: Mapping[str, Any], threshold: float = 0.07
) -> TorchBenchABTestResult:
    """Reports metrics that changed by more than the threshold, and changed statuses.

    It compares two single values and ignores noise. Detectors that have samples should use them.
    """
    return detector(lambda _, old, new: _changed(old, new, threshold))(control, treatment)


def detector(
    judge: Callable[[str, float | str, float | str], float | str | None],
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], TorchBenchABTestResult]:
    """Returns a detector that calls `judge(metric, old, new)` for each change, or None."""

    def detect(control: Mapping[str, Any], treatment: Mapping[str, Any]) -> TorchBenchABTestResult:
        details = {}
        for name, old in control["metrics"].items():
            if name not in treatment["metrics"]:
                continue
            new = treatment["metrics"][name]
            delta = judge(name, old, new)
            if delta is not None:
                details[name] = TorchBenchABTestMetric(control=old, treatment=new, delta=delta)
        return TorchBenchABTestResult(
            name=control["name"],
            control_env=_environ(control),
            treatment_env=_environ(treatment),
            details=details,
        )

    return detect


def _environ(document: Mapping[str, Any]) -> dict[str, str]:
    environ = {str(name): str(value) for name, value in document["environ"].items()}
    return {**environ, "git_commit_hash": environ.get("pytorch_git_version", _UNKNOWN)}


def _changed(old: float | str, new: float | str, threshold: float) -> float | str | None:
    if isinstance(old, str) or isinstance(new, str):
        return None if old == new else f"{old} -> {new}"
    if old == 0:
        return None if new == 0 else f"{old} -> {new}"
    delta = (new - old) / abs(old)
    return delta if abs(delta) > threshold else None
