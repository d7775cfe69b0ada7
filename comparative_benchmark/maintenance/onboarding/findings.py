"""Findings of the checks of a model, and how worker outputs are judged."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from comparative_benchmark.terminal.screen import Screen
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.def_types import BenchmarkCase, TensorSpec
from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.models.preprocessing import element_type_of

State = Literal["ok", "failed", "not_applicable", "not_run"]

# In display order, each with the property that it checks.
CHECKS = MappingProxyType(
    {
        "definitions": "cases in the catalogue use the implementation",
        "docstrings": "all public names have docstrings",
        "requirements": "requirements.txt exists, and the installed packages satisfy it",
        "install": "requirements.txt can be installed into a fresh environment",
        "runs elsewhere": "the module runs from another directory",
        "types": "inputs and outputs have the declared shapes and types",
        "repeatable": "the same seed gives the same output in another process",
        "seed": "a different seed gives a different output",
        "signal": "outputs are finite and not constant",
        "memory": "memory is freed when the model is dropped",
        "agreement": "all implementations agree in float64",
    }
)


@attrs.frozen
class Finding:
    """The outcome of one check of one implementation.

    Attributes:
      check: a key of `CHECKS`.
      framework: folder of the implementation, e.g. `jax`.
      state: the outcome; a check is `not_run` if one that it depends on failed.
      detail: details of the outcome, as a sentence.
      fix: advice in case of failure.
    """

    check: str
    framework: str
    state: State
    detail: str
    fix: str | None = None


_STYLES = {"ok": "green", "failed": "red", "not_applicable": "dim", "not_run": "yellow"}
_WORDS = {"not_applicable": "n/a", "not_run": "not run"}
# Width for pipes, so that logs and other programs receive unwrapped lines.
_WIDTH_OF_A_PIPE = 220


def print_findings(
    findings: Sequence[Finding], columns: Sequence[str], checks: Mapping[str, str] = CHECKS
) -> None:
    """Prints a table of checks, a column for each framework or test, and the failures."""
    out = Screen()
    if not out.is_terminal:
        out = Screen(width=_WIDTH_OF_A_PIPE)
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for heading in ("check", *columns):
        table.add_column(heading, no_wrap=True, min_width=max(7, len(heading)))
    table.add_column("")  # in a narrow terminal, only this column is wrapped
    states = {(item.check, item.framework): item.state for item in findings}
    for check, question in checks.items():
        row = [states.get((check, column)) for column in columns]
        if any(row):
            words = [Text(_WORDS.get(s, s), style=_STYLES[s]) if s else Text("-") for s in row]
            table.add_row(check, *words, Text(question, style="dim"))
    out.print(table)
    for item in findings:
        if item.state != "ok":
            word = _WORDS.get(item.state, item.state)
            out.print(
                Text(f"{word}  {item.framework}  {item.check}: {item.detail}"), soft_wrap=True
            )
            if item.fix:
                out.print(Text(f"    fix: {item.fix}"), soft_wrap=True)
    bad = sum(item.state in ("failed", "not_run") for item in findings)
    out.print(Text(f"{len(findings)} checks" + (f", {bad} failed or not run" if bad else " ok")))


# Largest difference of float64 runs, relative to the scale of the output.
AGREEMENT = 1e-9

Array = npt.NDArray[Any]


def agreement(truths: Mapping[str, Sequence[Array]], hint: str) -> list[Finding]:
    """Compares the float64 outputs of all implementations with the first one's.

    Args:
      truths: outputs by framework; at least two.
      hint: a command that finds the layer in which they differ.
    """
    (first, expected), *others = truths.items()
    findings = []
    for framework, values in others:
        error = _largest(values, expected)
        ok = error is not None and error <= AGREEMENT
        detail = (
            f"output shapes differ from {first}"
            if error is None
            else f"differs from {first} by {error:.1e} of the scale"
        )
        fix = None if ok else f"find the layer that differs: {hint}"
        findings.append(Finding("agreement", framework, "ok" if ok else "failed", detail, fix))
    bad = [finding.framework for finding in findings if finding.state == "failed"]
    detail = (
        f"differs from {', '.join(bad)}"
        if bad
        else f"agrees with {', '.join(f for f, _ in others)}"
    )
    fix = f"find the layer that differs: {hint}" if bad else None
    return [Finding("agreement", first, "failed" if bad else "ok", detail, fix), *findings]


def _largest(values: Sequence[Array], expected: Sequence[Array]) -> float | None:
    pairs = list(zip(values, expected, strict=False))
    if len(values) != len(expected) or any(a.shape != b.shape for a, b in pairs):
        return None
    return max(relative_difference(a, b) for a, b in pairs)


def relative_difference(values: Array, truth: Array) -> float:
    """Returns the largest difference, relative to the root mean square of the truth."""
    wide, expected = widest(values), widest(truth)
    scale = float(np.sqrt(np.mean(np.abs(expected) ** 2)))
    largest = float(np.abs(wide - expected).max())
    if largest == 0:
        return 0.0
    return largest / scale if scale and np.isfinite(largest) else float("inf")


def widest(values: Array) -> Array:
    """Returns the values in the widest type: complex128 for complex numbers, else float64."""
    return np.asarray(values, np.complex128 if np.iscomplexobj(values) else np.float64)


def specs(folder: Path, stem: str) -> list[TensorSpec]:
    """Returns shape and type of each array `<stem>_<n>.npy`."""
    values = array_files.load_all(folder, stem)
    return [TensorSpec(shape=value.shape, dtype=element_type_of(value.dtype)) for value in values]


def other_than_declared(
    case: BenchmarkCase, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> list[str]:
    """Returns differences from the architecture's declaration, or without one, from `data_type`."""
    name = case.model.name
    implementation = case.model.model_impl
    if implementation.architecture is None:
        due_type = DATA_TYPES.get(str(case.data_type))
        floats = [spec for spec in outputs if spec.dtype.startswith(("f", "bf"))]
        return [
            f"{name} returns {spec}, expected {due_type}"
            for spec in floats
            if due_type not in (None, spec.dtype)
        ]
    architecture = architectures.get(implementation.architecture)
    parameters = architecture.complete(case.model.model_parameters)
    pairs: list[tuple[str, Callable[..., Sequence[TensorSpec]], Sequence[TensorSpec]]] = [
        ("takes", architecture.input_specs, inputs),
        ("returns", architecture.output_specs, outputs),
    ]
    return [
        f"{name} {verb} {_listed(got)}, declared: {_listed(declared)}"
        for verb, due, got in pairs
        for declared in [list(due(parameters))]
        if list(got) != declared
    ]


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(str, specs))
