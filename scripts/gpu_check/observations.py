"""Reads the files of the steps, and lists findings: results that differ from expectations."""

import enum
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs

from comparative_benchmark.analysis.machine.host import describe, git_revision, usable_cpus
from comparative_benchmark.analysis.roofline.ceilings import Ceilings, load_ceilings
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.comparing.compare import Comparison, compare_to_baseline
from comparative_benchmark.results.comparing.roofs import shares_of_roof
from comparative_benchmark.results.record import CompileProcess, Result, Status
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from gpu_check.bootstrap import SET_UP_FILE
from gpu_check.steps import Machine

BASELINE = "pt_inductor:eager"
# Files of the steps in the output folder.
FILES = ("matrix.json", "autotune.json", "races.json", "tests.xml")
_PACKAGES = (
    *("torch", "triton", "transformers", "jax", "jaxlib", "jax-cuda13-plugin", "flax"),
    *("iree-base-runtime", "iree-base-compiler", "numpy"),
)
_GPU_FIELDS = ("name", "driver_version", "memory.total", "mig.mode.current", "compute_cap")
_GOOD = ("ok", "unsupported")


class Ending(enum.Enum):
    """How a step ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NOT_RUN = "not run"


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a step.

    Attributes:
      step: its name; `title` for people.
      ending: how it ended.
      seconds: wall time.
      reason: why it is not ok; None if it is.
      codes: exit codes of the commands that ended before the time limit.
    """

    step: str
    title: str
    ending: Ending
    seconds: float = 0.0
    reason: str | None = None
    codes: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Tests:
    """Result of a run of pytest.

    Attributes:
      failed: names of tests, each with its reason.
      skipped: reasons, one of each skipped test.
    """

    passed: int
    failed: tuple[str, ...]
    skipped: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Observations:
    """Results of the check so far.

    Attributes:
      facts: about the machine, by name.
      outcomes: of the steps.
      cells: of the matrix, as `cbs parity` writes them.
      results: of all races and runs.
      comparisons: of the races against `BASELINE`.
      ceilings: of the device; None if they are not measured.
      shares: of the roof, one for each result; None if it is unknown.
      faults, pairs: answers of these steps; empty without an answer.
      tests: None if pytest did not run.
      findings: one sentence each.
      wrong_outputs: whether an output was wrong, apart from known failures.
    """

    facts: Mapping[str, str]
    outcomes: Sequence[Outcome]
    cells: Sequence[Mapping[str, Any]]
    results: Sequence[Result]
    comparisons: Sequence[Comparison]
    ceilings: Ceilings | None
    shares: Sequence[str | None]
    faults: Sequence[Mapping[str, Any]]
    pairs: Mapping[str, Any]
    tests: Tests | None
    findings: Sequence[str]
    wrong_outputs: bool

    @property
    def document(self) -> dict[str, Any]:
        """The content of `checks.json`; matrix, races and tests have separate files."""
        return {
            "schema_version": 1,
            "kind": "gpu-check",
            "facts": dict(self.facts),
            "steps": [
                {**attrs.asdict(outcome), "ending": outcome.ending.value}
                for outcome in self.outcomes
            ],
            "faults": list(self.faults),
            "pairs": dict(self.pairs),
            "ceilings": attrs.asdict(self.ceilings) if self.ceilings else None,
            "findings": list(self.findings),
        }


def collect(machine: Machine, outcomes: Sequence[Outcome], *, started: float) -> Observations:
    """Returns all results that exist; `started` is the `time.monotonic()` of the start."""
    cells = [
        cell
        for name in ("matrix", "autotune")
        for cell in _json(machine.output / f"{name}.json").get("cells", [])
    ]
    cases = _cases(machine.output / "races.json")
    results = [case.result for case in cases]
    raced = [case for case in cases if case.metrics.race.id]
    faults = _json(machine.scratch / "faults.answer.json").get("faults", [])
    pairs = _json(machine.scratch / "pairs.answer.json")
    tests = _test_results(machine.output / "tests.xml")
    findings = [
        *_findings_of_steps(outcomes),
        *_findings_of_cells(cells),
        *_findings_of_results(results),
        *_findings_of_faults(faults),
        *_findings_of_pairs(pairs),
        *(f"test failed: {name}" for name in (tests.failed if tests else ())),
    ]
    statuses = [cell["status"] for cell in cells if not cell.get("expected")]
    statuses += [case.status.value for case in cases]
    facts = _facts(machine)
    ceilings = load_ceilings(gpu=facts.get("GPU"))
    return Observations(
        facts={**facts, "minutes": f"{(time.monotonic() - started) / 60:.1f}"},
        outcomes=tuple(outcomes),
        cells=cells,
        results=results,
        comparisons=compare_to_baseline(raced, BASELINE),
        ceilings=ceilings,
        shares=shares_of_roof(results, [ceilings] if ceilings else []),
        faults=faults,
        pairs=pairs,
        tests=tests,
        findings=findings,
        wrong_outputs=Status.WRONG_OUTPUT.value in statuses,
    )


def cold_and_warm(result: Result) -> tuple[list[CompileProcess], list[CompileProcess]]:
    """Returns the compiles of a result's processes with empty and with filled caches."""
    compiled = result.measured.compile
    compiles = compiled.processes if compiled else ()
    return [item for item in compiles if item.cold], [item for item in compiles if not item.cold]


def _findings_of_steps(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if outcome.ending in (Ending.FAILED, Ending.TIMEOUT):
            yield f"step {outcome.step}: {outcome.ending.value}, {outcome.reason}"


def _findings_of_cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for cell in cells:
        if cell["status"] not in _GOOD and not cell.get("expected"):
            where = f"{cell['label']} {cell['framework']} {cell['competitor']}"
            yield f"{where}: {cell['status']} in {cell['phase']}: {_short(cell['reason'])}"


def _findings_of_results(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        name = f"{result.definition.model} {result.definition.competitor}"
        if result.status.value not in _GOOD:
            reason = _short(result.reason)
            yield f"{name}: {result.status.value} in {result.phase}: {reason}"
            continue
        cold, warm = cold_and_warm(result)
        if any(item.cache_hits for item in cold):
            yield f"{name}: a cold compile hit a cache"
        # Without counters, both are None; a stack that compiles nothing has neither.
        compiled = any(item.cache_misses for item in cold)
        if compiled and any(item.cache_hits == 0 for item in warm):
            yield f"{name}: a warm compile hit no cache"


def _findings_of_faults(faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for fault in faults:
        if not fault["right"]:
            yield (
                f"planted fault {fault['fault']}: expected {fault['expected']}, got "
                f"{fault['status']} ({_short(fault['reason'])})"
            )


def _findings_of_pairs(pairs: Mapping[str, Any]) -> Iterator[str]:
    for kind, counts in pairs.get("kinds", {}).items():
        if counts["wrong"]:
            yield f"{counts['wrong']} of {counts['pairs']} verdicts on {kind} pairs are wrong"
        if counts["incomparable"]:
            reason = next(
                v["reason"]
                for v in pairs["verdicts"]
                if v["verdict"] == "incomparable" and v["kind"] == kind
            )
            count = f"{counts['incomparable']} of {counts['pairs']} {kind} pairs"
            yield f"{count} could not be compared: {_short(reason)}"


def _facts(machine: Machine) -> dict[str, str]:
    host = describe(threads=usable_cpus())
    facts = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "revision": git_revision() or "unknown",
        "device": machine.device,
        "CPU": f"{host['cpu_model']}, {host['usable_cpus']} usable",
        "python": platform.python_version(),
        "system": host["system"],
    }
    if machine.on_gpu:
        facts |= _gpu()
    packages = _json(machine.scratch / SET_UP_FILE)
    if unpacked := packages.get("installed_from_wheels"):
        facts["from the wheel folder"] = ", ".join(f"{k} {v}" for k, v in sorted(unpacked.items()))
    for group, reason in packages.get("missing_groups", {}).items():
        facts[f"missing: {group}"] = str(reason)
    for package in _PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _gpu() -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"GPU": f"nvidia-smi failed: {error}"}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(("GPU", "driver", "GPU memory", "MIG", "compute capability"), values))


def _test_results(path: Path) -> Tests | None:
    try:
        # pytest wrote it in this check.
        root = ElementTree.parse(path).getroot()  # noqa: S314
    except (OSError, ElementTree.ParseError):
        return None
    failed, skipped, passed = [], [], 0
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        failure, error, skip = (case.find(kind) for kind in ("failure", "error", "skipped"))
        problem = error if failure is None else failure
        if problem is not None:
            failed.append(f"{name}: {_short(problem.get('message'))}")
        elif skip is not None:
            skipped.append(_short(skip.get("message")))
        else:
            passed += 1
    return Tests(passed=passed, failed=tuple(failed), skipped=tuple(skipped))


def _cases(path: Path) -> list[Case]:
    if not path.exists():
        return []
    try:
        return cases_of(read_document(path))
    except ResultsFileError as error:
        print(error, file=sys.stderr)
        return []


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the step has not written it, or died meanwhile
    return content


def _short(text: object) -> str:
    return " ".join(str(text).split())[:300]
