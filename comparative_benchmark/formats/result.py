"""One result as every format sees it: what ran, how it ended, and its numbers.

A results file knows more (phases, conditions, blocks); this is what can travel. It keeps one
promise for all formats: only a right answer has a speed.
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from comparative_benchmark.formats import checks
from comparative_benchmark.formats.checks import FormatError, number
from comparative_benchmark.history.rows import OK, STATUSES

# The origin of results of this suite.
SUITE = "cbs"

__all__ = ["OK", "STATUSES", "SUITE", "FormatError", "Result", "number"]


@attrs.frozen(kw_only=True)
class Result:
    """A result that can travel between formats.

    Attributes:
      case: name of the benchmark case; what a foreign file calls its benchmark.
      compiler: with its options, e.g. `inductor+freezing`.
      options: of the compiler, as they are in its name, too.
      environment: name of the Python environment, where several raced.
      timestamp: when the run began, ISO 8601 with its zone.
      samples_ms: latencies of each process; none unless the status is `ok`.
      latency_ms: mean over processes of their median latency, with its 95 % interval where there
        was more than one process. Of a foreign file, what it says.
      compile_ms: cold compile times, one of each process; `warm_compile_ms` with filled caches.
      relative_rmse: error against the float64 truth, relative to its scale.
      metrics: other numbers that a foreign file has, by its own names.
      versions: of the packages that took part.
      host: of the machine, by the names of results files.
      machine, threads: as the history names and counts them.
      extra: JSON values that nothing else here holds.
      identity: what tells a result of this suite from any other; none of a foreign file.
      origin: name of the format that it was first written in.

    Raises:
      FormatError: a value is of another type, or a result that is not `ok` has a latency.
    """

    case: str = attrs.field(validator=checks.text)
    framework: str | None = attrs.field(default=None, validator=checks.optional_text)
    model: str | None = attrs.field(default=None, validator=checks.optional_text)
    input_data: str | None = attrs.field(default=None, validator=checks.optional_text)
    workload: str | None = attrs.field(default=None, validator=checks.optional_text)
    workload_label: str | None = attrs.field(default=None, validator=checks.optional_text)
    workload_digest: str | None = attrs.field(default=None, validator=checks.optional_text)
    data_type: str | None = attrs.field(default=None, validator=checks.optional_text)
    precision: str | None = attrs.field(default=None, validator=checks.optional_text)
    batch_size: int | None = attrs.field(default=None, validator=checks.count)
    level: str | None = attrs.field(default=None, validator=checks.optional_text)
    backend: str | None = attrs.field(default=None, validator=checks.optional_text)
    compiler: str | None = attrs.field(default=None, validator=checks.optional_text)
    options: tuple[str, ...] = attrs.field(
        default=(), converter=checks.as_tuple, validator=checks.sequence(checks.texts)
    )
    environment: str | None = attrs.field(default=None, validator=checks.optional_text)
    device: str | None = attrs.field(default=None, validator=checks.optional_text)
    tags: tuple[str, ...] = attrs.field(
        default=(), converter=checks.as_tuple, validator=checks.sequence(checks.texts)
    )
    status: str = attrs.field(default=OK, validator=checks.status)
    phase: str | None = attrs.field(default=None, validator=checks.optional_text)
    reason: str | None = attrs.field(default=None, validator=checks.optional_text)
    samples_ms: tuple[tuple[float, ...], ...] = attrs.field(
        default=(), converter=checks.nested, validator=checks.sequence(checks.sequence_of_sequences)
    )
    latency_ms: float | None = attrs.field(default=None, validator=checks.amount)
    latency_low_ms: float | None = attrs.field(default=None, validator=checks.amount)
    latency_high_ms: float | None = attrs.field(default=None, validator=checks.amount)
    compile_ms: tuple[float, ...] = attrs.field(
        default=(), converter=checks.as_tuple, validator=checks.sequence(checks.amounts)
    )
    warm_compile_ms: tuple[float, ...] = attrs.field(
        default=(), converter=checks.as_tuple, validator=checks.sequence(checks.amounts)
    )
    host_memory_peak_mb: float | None = attrs.field(default=None, validator=checks.amount)
    device_memory_peak_mb: float | None = attrs.field(default=None, validator=checks.amount)
    relative_rmse: float | None = attrs.field(default=None, validator=checks.amount)
    tokens_per_s: float | None = attrs.field(default=None, validator=checks.amount)
    cpu_wall_ratio: float | None = attrs.field(default=None, validator=checks.amount)
    metrics: Mapping[str, float] = attrs.field(factory=dict, validator=checks.numbers_by_name)
    program_sha256: str | None = attrs.field(default=None, validator=checks.optional_text)
    wall_s: float | None = attrs.field(default=None, validator=checks.amount)
    run_id: str | None = attrs.field(default=None, validator=checks.optional_text)
    timestamp: str | None = attrs.field(default=None, validator=checks.optional_text)
    git_revision: str | None = attrs.field(default=None, validator=checks.optional_text)
    versions: Mapping[str, str] = attrs.field(factory=dict, validator=checks.texts_by_name)
    host: Mapping[str, Any] = attrs.field(factory=dict, validator=checks.json_object)
    machine: str | None = attrs.field(default=None, validator=checks.optional_text)
    threads: int | None = attrs.field(default=None, validator=checks.count)
    extra: Mapping[str, Any] = attrs.field(factory=dict, validator=checks.json_object)
    identity: str | None = attrs.field(default=None, validator=checks.optional_text)
    origin: str = attrs.field(default=SUITE, validator=checks.text)

    def __attrs_post_init__(self) -> None:
        """Holds the promise of the module."""
        if self.status != OK and (self.samples_ms or self.latency_ms is not None):
            raise FormatError(f"{self.name}: {self.status}, and yet it has a latency")

    @property
    def competitor(self) -> str:
        """Backend, compiler and environment, as results files name them; empty if unknown."""
        where = f"@{self.environment}" if self.environment else ""
        return ":".join(filter(None, (self.backend, self.compiler))) + where

    @property
    def name(self) -> str:
        """What tells it from the other results of a run."""
        return " ".join(filter(None, (self.case, self.competitor, self.device)))

    @property
    def why(self) -> str:
        """Status and reason in a line; only the status of one that is ok."""
        if self.status == OK or not self.reason:
            return self.status
        return f"{self.status} {self.reason}" if self.phase else f"{self.status}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Returns what `from_json` reads; fields without a value are left out."""
        value = {
            field.name: _plain(getattr(self, field.name)) for field in attrs.fields(type(self))
        }
        return {name: item for name, item in value.items() if item not in (None, [], {})}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Returns the result that `as_json` wrote.

        Raises:
          FormatError: it is no object, or one with other fields or types.
        """
        if not isinstance(value, dict):
            raise FormatError(f"{checks.shown(value)} is no object")
        unknown = sorted(set(value) - {field.name for field in attrs.fields(cls)})
        if unknown:
            raise FormatError(f"no field {checks.shown(unknown[0])}")
        if "case" not in value:
            raise FormatError("no field 'case'")
        return cls(**value)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value
