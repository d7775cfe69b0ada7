"""Changes between two metrics documents, in the form of TorchBench's regression files."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs
import msgspec

from comparative_benchmark.interop.userbenchmarks.authoring import threshold_detector
from comparative_benchmark.interop.userbenchmarks.discovery import Userbenchmark, UserbenchmarkError
from comparative_benchmark.interop.userbenchmarks.processes import Document, MetricsError, detect
from comparative_benchmark.terminal.screen import escaped

Value: TypeAlias = int | float | str
# Metrics for which larger values are better; for all others, smaller values are.
_MORE_IS_BETTER = re.compile(r"throughput|tokens_per_s|speedup|score|per_second|accuracy")
# Statuses that are not failures.
_FINE = ("ok", "pass", "pass_due_to_skip")


@attrs.frozen(kw_only=True)
class Signal:
    """A metric that changed."""

    metric: str
    control: Value
    treatment: Value
    delta: Value

    @property
    def is_worse(self) -> bool:
        """Whether it became worse; a failure status instead of a number is worse."""
        if isinstance(self.treatment, str):
            return self.treatment not in _FINE
        if isinstance(self.control, str):
            return False
        grew = self.treatment > self.control
        return grew is not more_is_better(self.metric)

    @property
    def change(self) -> str:
        """The formatted change, e.g. `+12.0 %`."""
        if isinstance(self.delta, str):
            return self.delta
        return f"{self.delta:+.1%}"


@attrs.frozen(kw_only=True)
class Signals:
    """All changes between two documents."""

    name: str
    control_env: Mapping[str, Any]
    treatment_env: Mapping[str, Any]
    found: tuple[Signal, ...]
    control_only: Mapping[str, Value]
    treatment_only: Mapping[str, Value]
    compared: int
    bisection: str = "pytorch"

    @property
    def regressions(self) -> list[Signal]:
        """The metrics that became worse."""
        return [signal for signal in self.found if signal.is_worse]

    def as_document(self) -> dict[str, Any]:
        """Returns the contents of TorchBench's `regression-*.yaml`, the input of its bisection."""
        return {
            "name": self.name,
            "control_env": dict(self.control_env),
            "treatment_env": dict(self.treatment_env),
            "details": {
                signal.metric: {
                    "control": signal.control,
                    "treatment": signal.treatment,
                    "delta": signal.delta,
                }
                for signal in self.found
            },
            "control_only_metrics": dict(self.control_only),
            "treatment_only_metrics": dict(self.treatment_only),
            "bisection": self.bisection,
            "bisection_mode": "bisect",
            "bisection_config_file_path": None,
        }


class _Detail(msgspec.Struct):
    control: Value
    treatment: Value
    delta: Value


class _Answer(msgspec.Struct):
    """The result of a detector; see `TorchBenchABTestResult`."""

    details: dict[str, _Detail]
    control_env: dict[str, Any] | None = None
    treatment_env: dict[str, Any] | None = None
    bisection: str | None = None


def more_is_better(metric: str) -> bool:
    """Returns whether larger values of a metric are better."""
    return bool(_MORE_IS_BETTER.search(metric.rpartition("metric=")[2]))


def compare(benchmark: Userbenchmark | None, control: Document, treatment: Document) -> Signals:
    """Returns the changes found by the userbenchmark's own detector, or else the default one.

    Raises:
      MetricsError: the documents belong to different userbenchmarks.
      UserbenchmarkError: the detector fails, or returns an invalid result.
    """
    if control["name"] != treatment["name"]:
        raise MetricsError(
            f"the metrics belong to different userbenchmarks: {control['name']!r} and "
            f"{treatment['name']!r}"
        )
    shared = [name for name in control["metrics"] if name in treatment["metrics"]]
    old, new = (
        {**document, "metrics": {name: document["metrics"][name] for name in shared}}
        for document in (control, treatment)
    )
    if benchmark is not None and benchmark.has_detector:
        answer = detect(benchmark, old, new)
    else:
        answer = dataclasses.asdict(threshold_detector(old, new))
    return _signals(answer, control, treatment, len(shared))


def issue_text(signals: Signals, owners: tuple[str, ...] = ()) -> str:
    """Returns the text of an issue about regressions, with the sections of TorchBench's."""

    def revision(environ: Mapping[str, Any]) -> str:
        names = ("git_commit_hash", "pytorch_git_version", "suite_git_revision")
        known = [str(environ[name]) for name in names if name in environ]
        return next((text for text in known if text != "<unknown>"), "unknown")

    lines = [
        f"The userbenchmark {signals.name} has detected a performance signal.",
        "",
        f"Base commit: {revision(signals.control_env)}",
        "",
        f"Affected commit: {revision(signals.treatment_env)}",
        "",
        "Affected tests:",
        *(f"- {escaped(signal.metric)}: {escaped(signal.change)}" for signal in signals.found),
        "",
        "Tests that were no longer run on the affected commit:",
        *(f"- {escaped(name)}: {value}" for name, value in signals.control_only.items()),
        "",
        "Tests that were newly added on the affected commit:",
        *(f"- {escaped(name)}: {value}" for name, value in signals.treatment_only.items()),
        "",
    ]
    if owners:
        lines += [f"cc {' '.join(owners)}", ""]
    return "\n".join(lines)


def as_yaml(signals: Signals) -> str:
    """Returns the regression file.

    Raises:
      UserbenchmarkError: PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UserbenchmarkError("writing YAML requires PyYAML: pip install pyyaml") from error
    text: str = yaml.safe_dump(signals.as_document(), sort_keys=False, allow_unicode=True)
    return text


def _signals(answer: Any, control: Document, treatment: Document, compared: int) -> Signals:
    try:
        told = msgspec.convert(answer or {"details": {}}, _Answer)
    except msgspec.ValidationError as error:
        raise UserbenchmarkError(
            f"the detector of {control['name']!r} returned no TorchBenchABTestResult: {error}"
        ) from error
    return Signals(
        name=control["name"],
        control_env=told.control_env or control["environ"],
        treatment_env=told.treatment_env or treatment["environ"],
        found=tuple(
            Signal(metric=name, control=item.control, treatment=item.treatment, delta=item.delta)
            for name, item in told.details.items()
        ),
        control_only=_only(control, treatment),
        treatment_only=_only(treatment, control),
        compared=compared,
        bisection=told.bisection or "pytorch",
    )


def _only(one: Document, other: Document) -> dict[str, Value]:
    return {name: v for name, v in one["metrics"].items() if name not in other["metrics"]}
