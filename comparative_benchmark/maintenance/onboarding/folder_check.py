"""`cbs check-model --torchbench`: validates a model folder against TorchBench's guide."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.text import Text

from comparative_benchmark.engine.session import Limits, SessionEnded
from comparative_benchmark.engine.settings import RunSettings, call_once
from comparative_benchmark.errors import EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.maintenance.onboarding.findings import Finding, print_findings
from comparative_benchmark.results.record import Status
from comparative_benchmark.sources.torchbench import folders, installing
from comparative_benchmark.sources.torchbench.folders import Folder
from comparative_benchmark.terminal.screen import Screen
from openxla.benchmark import devices

_TESTS = ("eval", "train")
_CHECK = "comparative_benchmark.sources.torchbench.checks:check"
CHECKS = MappingProxyType(
    {
        "runs": "it loads and runs from another directory",
        "repeatable": "the same seed gives the same output, also in another process",
        "inputs": "a run does not modify its inputs",
        "signal": "outputs are finite and not constant",
        "jit": "the scripted module gives the same output as eager",
        "memory": "its memory is freed when it is dropped",
        "folder": "a run does not modify the folder",
    }
)
_FIXES = MappingProxyType(
    {
        "runs": "open files next to __file__ (pathlib.Path(__file__).parent), and import the "
        "folder's own modules relatively (from . import utils)",
        "repeatable": "set the seeds of torch, random and numpy when the module is imported, and "
        "draw random numbers only in the constructor",
        "inputs": "clone tensors that a step modifies, or separate them from the example inputs",
        "signal": "use example inputs that vary, and weights that do not vanish",
        "jit": "script the module with the weights and mode of the eager one (call .eval() first)",
        "memory": "keep no tensor or module in globals, caches or hooks",
        "folder": "write to a temporary directory; create data in install.py",
    }
)


def check_folders(
    places: Sequence[Path], *, name: str | None, install: bool, timeout_s: float
) -> int:
    """Checks TorchBench model folders and prints a table of each.

    Args:
      places: folders, or checkouts with folders.
      name: name of the only folder to check; None for all.
      install: whether to run the folders' `install.py`.
      timeout_s: time limit of each worker.

    Returns:
      0 if all follow the guide, 2 if not.

    Raises:
      UsageError: a path contains no folders, or none with that name.
    """
    found = folders.named(folders.find(places))
    if name is not None:
        if name not in found:
            raise UsageError(f"no folder {name!r}; choices are {', '.join(found)}")
        found = {name: found[name]}
    installed = installing.packages_of(list(found.values()), install=install)
    console, code = Screen(stderr=True, soft_wrap=True), EXIT_OK
    for label, folder in found.items():
        console.print(Text(f"checking {label}"))
        reason = folder.problem or installed.failures.get(folder.path)
        findings = (
            [_finding("runs", "eval", "not_run", reason)]
            if reason
            else _of_folder(folder, timeout_s, installed.packages.get(folder.path))
        )
        print_findings(
            findings, [t for t in _TESTS if any(f.framework == t for f in findings)], CHECKS
        )
        if any(item.state in ("failed", "not_run") for item in findings) or all(
            item.state == "not_applicable" for item in findings
        ):
            code = EXIT_WRONG
    return code


def _of_folder(folder: Folder, timeout_s: float, packages: Path | None) -> list[Finding]:
    arguments = {"folder": str(folder.path), "packages": str(packages) if packages else None}
    found: list[Finding] = []
    for test in _TESTS:
        try:
            first = _in_worker(timeout_s, {**arguments, "test": test})
            second = _in_worker(timeout_s, {**arguments, "test": test})
        except SessionEnded as ended:
            found += _not_run(ended, test)
            continue
        states = dict(first["states"])
        if states["repeatable"][0] == "ok" and first["outputs"] != second["outputs"]:
            states["repeatable"] = ("failed", "another process gives a different output")
        found += [_finding(check, test, *states[check]) for check in CHECKS]
    return found


def _in_worker(timeout_s: float, arguments: dict[str, Any]) -> dict[str, Any]:
    settings = RunSettings(device=devices.HOST_CPU, limits=Limits(deadline_s=timeout_s))
    return call_once(settings, _CHECK, arguments, dict[str, Any])


def _not_run(ended: SessionEnded, test: str) -> list[Finding]:
    if ended.status is Status.UNSUPPORTED:
        return [_finding("runs", test, "not_applicable", ended.reason)]
    return [_finding("runs", test, "failed", f"{ended.status.value}: {ended.reason}")]


def _finding(check: str, test: str, state: Any, detail: str) -> Finding:
    return Finding(check, test, state, detail, _FIXES[check] if state == "failed" else None)
