"""`cbs check-model`: validates a model against the suite's contract.

With `--torchbench` it validates a model folder against TorchBench's guide.
"""

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.text import Text

import openxla.benchmark
from comparative_benchmark.backends.api import BackendInfo, judges_of
from comparative_benchmark.engine.session import Limits, SessionEnded
from comparative_benchmark.engine.settings import RunSettings, call_once
from comparative_benchmark.errors import EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.maintenance.onboarding import findings, implementation_checks
from comparative_benchmark.maintenance.onboarding.findings import Finding, State, print_findings
from comparative_benchmark.results.record import Status
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.sources.torchbench import folders, installing
from comparative_benchmark.sources.torchbench.folders import Folder
from comparative_benchmark.terminal.screen import Screen
from openxla.benchmark import devices, synonyms
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.files import temporary_folder
from openxla.benchmark.workloads import workload_of

_FOLDER_TESTS = ("eval", "train")
_FOLDER_CHECK = "comparative_benchmark.sources.torchbench.checks:check"
FOLDER_CHECKS = MappingProxyType(
    {
        "runs": "the folder loads and runs from another directory",
        "repeatable": "the same seed gives the same output, even in another process",
        "inputs": "a run does not modify its inputs",
        "signal": "outputs are finite and not constant",
        "jit": "the scripted module gives the same output as eager mode",
        "memory": "memory is freed when the model is dropped",
        "folder": "a run does not modify the folder",
    }
)
_FOLDER_FIXES = MappingProxyType(
    {
        "runs": "open files next to __file__ (pathlib.Path(__file__).parent), and import the "
        "folder's own modules relatively (from . import utils)",
        "repeatable": "set the seeds of torch, random and numpy when the module is imported, and "
        "draw random numbers only in the constructor",
        "inputs": "clone tensors that a step modifies, or separate them from the example inputs",
        "signal": "use varied example inputs and nonzero weights",
        "jit": "script the module with the eager module's weights and mode (call .eval() first)",
        "memory": "do not keep tensors or modules in globals, caches or hooks",
        "folder": "write to a temporary directory; create data in install.py",
    }
)
_MODELS = Path(str(openxla.benchmark.__file__)).parent / "models"
_CREATES = re.compile(r"^(def create_model\(|create_model =)", re.MULTILINE)
_SMALL = "tiny"


def check_model(
    name: str, *, frameworks: str | None, suites: Sequence[str], install: bool, timeout_s: float
) -> int:
    """Checks a model and prints a table.

    Args:
      name: name of the model's modules.
      frameworks: frameworks separated by commas; None for all that implement the model.
      suites: further suites with cases of the model.
      install: whether to install the model's requirements in a fresh environment.
      timeout_s: time limit of each worker.

    Returns:
      0 if it satisfies the contract, 2 if not.

    Raises:
      UsageError: the model or framework does not exist.
    """
    models = _models()
    asked = _frameworks(name, frameworks, models)
    every = catalog.all_benchmarks(suites)
    cases = {item: _cases(every, _module_path(models[name, item])) for item in asked}
    chosen = _smallest(cases)
    rows: list[Finding] = []
    truths = {}
    console = Screen(stderr=True, soft_wrap=True)
    for framework in asked:
        console.print(Text(f"checking {name} in {framework}"))
        path = models[name, framework]
        module = _module_path(path)
        rows.append(implementation_checks.definitions(framework, module, cases[framework]))
        rows.append(implementation_checks.docstrings(framework, path))
        rows.append(implementation_checks.requirements(framework, path.parent))
        if install:
            rows.append(implementation_checks.install(framework, path.parent))
        with temporary_folder("check") as scratch:
            more, truth = _run_model(framework, chosen[framework], timeout_s, Path(scratch))
        rows += more
        if truth is not None:
            truths[framework] = truth
    rows += _agreement(name, asked, truths, chosen)
    print_findings(rows, asked)
    return EXIT_WRONG if any(item.state in ("failed", "not_run") for item in rows) else EXIT_OK


def _models() -> dict[tuple[str, str], Path]:
    """Returns the modules of all models by name and framework.

    A model may have its own folder, as in the OpenXLA suite's guide: `NAME/NAME.py`, or
    `NAME/NAME_model.py`.
    """
    nested = {
        (path.parent.name, path.parents[1].name): path
        for path in sorted(_MODELS.glob("*/*/*.py"))
        if path.stem in (path.parent.name, f"{path.parent.name}_model")
    }
    written = (path for path in _MODELS.glob("*/*.py") if _CREATES.search(path.read_text("utf-8")))
    return nested | {(path.stem, path.parent.name): path for path in written}


def _frameworks(name: str, text: str | None, models: Collection[tuple[str, str]]) -> list[str]:
    """Returns the framework folders that contain the model, restricted to those in `text`."""
    there = sorted(framework for other, framework in models if other == name)
    if not there or not name.isidentifier():
        known = sorted({other for other, _ in models})
        nearest = difflib.get_close_matches(name, known, n=3) or known
        raise UsageError(
            f"no model {name!r} in {_MODELS}/<framework>/; choices include {', '.join(nearest)}"
        )
    if text is None:
        return there
    typed = (item.strip() for item in text.split(",") if item.strip())
    asked = list(dict.fromkeys(map(synonyms.framework_folder, typed)))
    lacking = ", ".join(item for item in asked if item not in there)
    if lacking or not asked:
        problem = f"{name} has no implementation in {lacking}" if lacking else "no framework given"
        raise UsageError(f"--framework: {problem}; choices are {', '.join(there)}")
    return asked


def _module_path(path: Path) -> str:
    return ".".join(["openxla.benchmark.models", *path.relative_to(_MODELS).with_suffix("").parts])


def _cases(every: Sequence[BenchmarkCase], module_path: str) -> list[BenchmarkCase]:
    return [case for case in every if case.model.model_impl.module_path == module_path]


def _smallest(cases: Mapping[str, Sequence[BenchmarkCase]]) -> dict[str, list[BenchmarkCase]]:
    """Returns the smallest case and the same in other data types, by framework.

    All cases belong to one workload if the frameworks share one; float32 is preferred.
    """
    digests = {
        framework: {workload_of(case).digest: case for case in reversed(known)}
        for framework, known in cases.items()
        if known
    }
    common = set.intersection(*map(set, digests.values())) if digests else set()
    chosen: dict[str, list[BenchmarkCase]] = {framework: [] for framework in cases}
    if not digests:
        return chosen
    first = next(iter(digests.values()))
    shared = min((first[digest] for digest in common), key=_size, default=None)
    for framework, by_digest in digests.items():
        if shared is not None:
            case = by_digest[workload_of(shared).digest]
        else:
            case = min(by_digest.values(), key=_size)
        others = [other for other in cases[framework] if _differs_in_type(other, case)]
        chosen[framework] = [case, *others]
    return chosen


def _size(case: BenchmarkCase) -> tuple[bool, bool, int, str]:
    """Returns a key that orders cases by the resources they need."""
    elements = sum(math.prod(spec.shape) for spec in workload_of(case).inputs)
    return (_SMALL not in case.tags, case.data_type not in ("fp32", None), elements, case.name)


def _differs_in_type(other: BenchmarkCase, case: BenchmarkCase) -> bool:
    ours, theirs = dict(case.model.model_parameters), dict(other.model.model_parameters)
    return ours.pop("data_type", None) != theirs.pop("data_type", None) and ours == theirs


def _run_model(
    framework: str, cases: Sequence[BenchmarkCase], timeout_s: float, scratch: Path
) -> tuple[list[Finding], list[findings.Array] | None]:
    """Returns the findings from running the model, and its float64 outputs."""
    if not cases:
        return _none_run(framework, "no case to run"), None
    backend = _backend(cases[0])
    if isinstance(backend, str):
        return _none_run(framework, backend), None
    settings = implementation_checks.ElsewhereSettings(
        device=devices.HOST_CPU, limits=Limits(deadline_s=timeout_s), log_dir=scratch
    )
    checks = implementation_checks.WorkerChecks(framework, cases, backend, settings, scratch)
    return checks.run(), checks.truth


def _backend(case: BenchmarkCase) -> BackendInfo | str:
    """Returns a backend that computes truth in a case's framework, or why none does."""
    framework = case.model.model_impl.framework_type
    reason = f"no backend can compute the truth for {framework.value} models"
    for backend in judges_of(framework):
        missing = backend.missing_modules(framework)
        if not missing:
            return backend
        reason = backend.absence(missing).sentence
    return reason


def _none_run(framework: str, reason: str) -> list[Finding]:
    return [
        Finding(check, framework, "not_run", reason)
        for check in ("runs elsewhere", *implementation_checks.RUNS)
    ]


def _agreement(
    name: str,
    asked: Sequence[str],
    truths: Mapping[str, list[findings.Array]],
    chosen: Mapping[str, Sequence[BenchmarkCase]],
) -> list[Finding]:
    def all_of(frameworks: Sequence[str], state: State, detail: str) -> list[Finding]:
        return [Finding("agreement", item, state, detail) for item in frameworks]

    if len(asked) < 2:
        return all_of(asked, "not_applicable", "no second implementation to compare with")
    lacking = [framework for framework in asked if framework not in truths]
    not_run = all_of(lacking, "not_run", "the model did not run")
    if len(truths) < 2:
        return [*not_run, *all_of(list(truths), "not_run", "no other implementation ran")]
    workloads = {workload_of(chosen[framework][0]).digest for framework in truths}
    if len(workloads) > 1:
        detail = "no workload exists in all of the frameworks"
        fix = f"give {name} the same architecture, configuration and parameters in all frameworks"
        return not_run + [Finding("agreement", item, "failed", detail, fix) for item in truths]
    case = chosen[next(iter(truths))][0]
    hint = f"cbs parity --drift -name '{case.name}'"
    return [*not_run, *findings.agreement(truths, hint)]


def check_folders(
    places: Sequence[Path], *, name: str | None, install: bool, timeout_s: float, device: str
) -> int:
    """Checks TorchBench model folders and prints a table of each.

    Args:
      places: folders, or checkouts with folders.
      name: name of the only folder to check; None for all.
      install: whether to run the folders' `install.py`.
      timeout_s: time limit of each worker.
      device: name of the device to run on.

    Returns:
      0 if all follow the guide, 2 if not.

    Raises:
      UsageError: a path contains no folders, or none with that name; or the device is unknown.
    """
    settings = RunSettings(device=find_device(device), limits=Limits(deadline_s=timeout_s))
    known = folders.named(folders.find(places))
    if name is not None:
        if name not in known:
            raise UsageError(f"no folder {name!r}; choices are {', '.join(known)}")
        known = {name: known[name]}
    installed = installing.packages_of(list(known.values()), install=install)
    console, code = Screen(stderr=True, soft_wrap=True), EXIT_OK
    for label, folder in known.items():
        console.print(Text(f"checking {label}"))
        reason = folder.problem or installed.failures.get(folder.path)
        rows = (
            [_folder_finding("runs", "eval", "not_run", reason)]
            if reason
            else _of_folder(folder, settings, installed.packages.get(folder.path))
        )
        print_findings(
            rows, [t for t in _FOLDER_TESTS if any(f.framework == t for f in rows)], FOLDER_CHECKS
        )
        if any(item.state in ("failed", "not_run") for item in rows) or all(
            item.state == "not_applicable" for item in rows
        ):
            code = EXIT_WRONG
    return code


def _of_folder(folder: Folder, settings: RunSettings, packages: Path | None) -> list[Finding]:
    arguments = {"folder": str(folder.path), "packages": str(packages) if packages else None}
    rows: list[Finding] = []
    for test in _FOLDER_TESTS:
        try:
            first, second = (
                call_once(settings, _FOLDER_CHECK, {**arguments, "test": test}, dict[str, Any])
                for _ in range(2)
            )
        except SessionEnded as ended:
            rows += _folder_not_run(ended, test)
            continue
        states = dict(first["states"])
        if states["repeatable"][0] == "ok" and first["outputs"] != second["outputs"]:
            states["repeatable"] = ("failed", "another process gives a different output")
        rows += [_folder_finding(check, test, *states[check]) for check in FOLDER_CHECKS]
    return rows


def _folder_not_run(ended: SessionEnded, test: str) -> list[Finding]:
    if ended.status is Status.UNSUPPORTED:
        return [_folder_finding("runs", test, "not_applicable", ended.reason)]
    return [_folder_finding("runs", test, "failed", f"{ended.status.value}: {ended.reason}")]


def _folder_finding(check: str, test: str, state: Any, detail: str) -> Finding:
    return Finding(check, test, state, detail, _FOLDER_FIXES[check] if state == "failed" else None)
