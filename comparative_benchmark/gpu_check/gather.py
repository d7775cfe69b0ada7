"""Reads what the steps wrote and says what is not as it must be."""

import json
import os
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

from comparative_benchmark.gpu_check.bootstrap import BOOTSTRAP_VARIABLE
from comparative_benchmark.gpu_check.driver import Ending, Outcome
from comparative_benchmark.gpu_check.plan import Machine
from comparative_benchmark.machine.host import describe, git_revision, usable_cpus
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.codec import ResultsFileError, read_document
from comparative_benchmark.results.compare import Comparison, compare_to_baseline
from comparative_benchmark.results.record import CompileProcess, Result, Status
from comparative_benchmark.results.roofs import shares_of_roof
from comparative_benchmark.roofline.ceilings import Ceilings, load_ceilings

BASELINE = "pt_inductor:eager"
_PACKAGES = (
    *("torch", "triton", "transformers", "jax", "jaxlib", "jax-cuda13-plugin", "flax"),
    *("iree-base-runtime", "iree-base-compiler", "numpy"),
)
_GPU_FIELDS = ("name", "driver_version", "memory.total", "mig.mode.current", "compute_cap")
_GOOD = ("ok", "unsupported")
_SCHEMA = 1


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
class Found:
    """All that is known so far.

    Attributes:
      facts: of the machine, by name; texts.
      outcomes: of the steps.
      cells: of the matrix, as `cbs parity` wrote them.
      results: of all races and runs.
      comparisons: of the races against `BASELINE`.
      ceilings: of the device; None where they have not been measured.
      shares: of the roof, one for each result; None where there is none.
      faults, pairs: what these steps answered; empty where they have not.
      tests: None where none were run.
      findings: what is not as it must be, a sentence each.
      wrong_outputs: whether an output was wrong.
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
        """What goes to `checks.json`; matrix, races and tests have files of their own."""
        return {
            "schema_version": _SCHEMA,
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


def gather(machine: Machine, outcomes: Sequence[Outcome], *, started: float) -> Found:
    """Returns what is there now; a file that is not there yet counts as empty."""
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
    tests = _tests(machine.output / "tests.xml")
    findings = [
        *_about_steps(outcomes),
        *_about_cells(cells),
        *_about_results(results),
        *_about_faults(faults),
        *_about_pairs(pairs),
        *(f"test failed: {name}" for name in (tests.failed if tests else ())),
    ]
    statuses = [cell["status"] for cell in cells] + [case.status.value for case in cases]
    facts = _facts(machine)
    ceilings = load_ceilings(gpu=facts.get("GPU"))
    return Found(
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
        findings=list(findings),
        wrong_outputs=Status.WRONG_OUTPUT.value in statuses,
    )


def cold_and_warm(result: Result) -> tuple[list[CompileProcess], list[CompileProcess]]:
    """Returns the compiles of a result's processes: with empty caches, and with filled ones."""
    compiled = result.measured.compile
    compiles = compiled.processes if compiled else ()
    return [item for item in compiles if item.cold], [item for item in compiles if not item.cold]


def _about_steps(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if outcome.ending in (Ending.FAILED, Ending.TIMEOUT):
            yield f"step {outcome.step}: {outcome.ending.value}, {outcome.reason}"


def _about_cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for cell in cells:
        if cell["status"] not in _GOOD and not cell.get("expected"):
            where = f"{cell['label']} {cell['framework']} {cell['competitor']}"
            yield f"{where}: {cell['status']} in {cell['phase']}: {_short(cell['reason'])}"


def _about_results(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        name = f"{result.definition.model} {result.definition.competitor}"
        if result.status.value not in _GOOD:
            reason = _short(result.reason)
            yield f"{name}: {result.status.value} in {result.phase}: {reason}"
            continue
        cold, warm = cold_and_warm(result)
        if any(item.cache_hits for item in cold):
            yield f"{name}: a cold compile hit a cache"
        # A stack without counters says None; one that compiles nothing has neither.
        compiled = any(item.cache_misses for item in cold)
        if compiled and any(item.cache_hits == 0 for item in warm):
            yield f"{name}: a warm compile hit no cache"


def _about_faults(faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for fault in faults:
        if not fault["right"]:
            yield (
                f"planted fault {fault['fault']}: expected {fault['expected']}, got "
                f"{fault['status']} ({_short(fault['reason'])})"
            )


def _about_pairs(pairs: Mapping[str, Any]) -> Iterator[str]:
    for kind, counts in pairs.get("kinds", {}).items():
        if counts["wrong"]:
            yield f"{counts['wrong']} of {counts['pairs']} verdicts on {kind} pairs are wrong"
        if counts["incomparable"]:
            reason = next(v["reason"] for v in pairs["verdicts"] if v["verdict"] == "incomparable")
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
    made = _json(Path(os.environ.get(BOOTSTRAP_VARIABLE, "nowhere")))
    carried = made.get("installed_from_wheels") or {}
    if carried:
        facts["from the wheel folder"] = ", ".join(f"{k} {v}" for k, v in sorted(carried.items()))
    for group, reason in (made.get("missing_groups") or {}).items():
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


def _tests(path: Path) -> Tests | None:
    try:
        # pytest of this very check wrote it.
        root = ElementTree.parse(path).getroot()  # noqa: S314
    except (OSError, ElementTree.ParseError):
        return None
    failed, skipped, passed = [], [], 0
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        problem = next((case.find(kind) for kind in ("failure", "error") if _has(case, kind)), None)
        skip = case.find("skipped")
        if problem is not None:
            failed.append(f"{name}: {_short(problem.get('message'))}")
        elif skip is not None:
            skipped.append(_short(skip.get("message")))
        else:
            passed += 1
    return Tests(passed=passed, failed=tuple(failed), skipped=tuple(skipped))


def _has(case: ElementTree.Element, kind: str) -> bool:
    return case.find(kind) is not None


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
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _short(text: object) -> str:
    return " ".join(str(text).split())[:300]
