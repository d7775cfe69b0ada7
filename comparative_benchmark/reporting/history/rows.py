"""One result as stored in the history: flat, with readable dimensions and plain numbers.

To add other measurements to the history, make `Row`s of them.
"""

import datetime
import hashlib
import json
import operator
import statistics
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from comparative_benchmark.reporting.history.portable import (
    OK,
    STATUSES,
    PortableResult,
    StatusName,
    microseconds,
)

__all__ = ["DIMENSIONS", "METRICS", "OK", "STATUSES", "Row", "RowError", "canonical", "row_of"]

# Rows with equal dimensions are points of one trend. Versions, program and revision are not
# dimensions, because they change from night to night.
DIMENSIONS = (
    *("source", "workload", "workload_digest", "benchmark", "framework", "level", "data_type"),
    *("batch_size", "backend", "compiler", "options", "environment", "device", "machine"),
    "threads",
)
_DIMENSIONS = operator.attrgetter(*DIMENSIONS)
# Numbers that can have a trend, smaller is better; each is a column in SQL.
METRICS = (
    *("latency_ms", "compile_ms", "warm_compile_ms"),
    *("host_memory_mb", "device_memory_mb", "error"),
)

# Rejects text that one of the databases rejects: null characters and invalid Unicode.
_SOUND = r"^[^\x00\ud800-\udfff]*\Z"
Text: TypeAlias = Annotated[str, Meta(pattern=_SOUND)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, pattern=_SOUND)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class RowError(ValueError):
    """A row cannot be stored; the message names the field."""


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    workload: Name
    backend: Name
    time: Annotated[datetime.datetime, Meta(tz=True)]
    status: StatusName
    workload_digest: Text = ""
    benchmark: Text = ""
    framework: Text = ""
    level: Text = ""
    data_type: Text = ""
    batch_size: Count | None = None
    compiler: Text = ""
    options: tuple[Text, ...] = ()
    environment: Text = ""
    device: Text = ""
    machine: Text = ""
    threads: Count | None = None
    source: Text = "cbs"
    run_id: Text = ""
    revision: Text = ""
    versions: dict[Text, Text] = {}
    program: Text = ""
    reason: Text = ""
    latency_ms: Amount | None = None
    latency_low_ms: Amount | None = None
    latency_high_ms: Amount | None = None
    processes: Count | None = None
    compile_ms: Amount | None = None
    warm_compile_ms: Amount | None = None
    host_memory_mb: Amount | None = None
    device_memory_mb: Amount | None = None
    error: Amount | None = None
    extra: dict[str, Any] = {}
    identity: Text = ""


class Row(_Fields, frozen=True, kw_only=True):
    """One result.

    Only `workload`, `backend`, `time` and `status` are required. Fields unknown to a format keep
    their defaults, and data without a field go into `extra`.

    Attributes:
      workload: readable name, e.g. `bert-tiny-fp32-1x32xi32`; unique together with
        `workload_digest` if there is one.
      benchmark: name of the case, e.g. `models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/...`.
      framework: framework of the model, e.g. `jax`.
      level: `framework_level` or `compiler_level`.
      data_type: type of the computation, e.g. `bf16`.
      batch_size: None if there is none.
      backend, compiler: e.g. `iree` and `llvm-cpu`; `options` are separate.
      environment: name of the environment; empty for the default one.
      device: e.g. `host-cpu`; `machine` is the CPU model or the host, `threads` the number used.
      source: format of origin; results of two formats are never points of one trend.
      time: start of the run, with time zone.
      run_id: identifier of the run; its rows were measured in sequence on one machine.
      revision: version control revision of the measured program or of the harness.
      versions: package versions, e.g. `{"jax": "0.10.2"}`.
      program: SHA-256 of the compiled program; empty if unknown.
      status: one of `STATUSES`; `reason` explains other statuses than `ok`.
      latency_ms: estimate, with the 95 % interval `latency_low_ms` to `latency_high_ms`; None if
        there is none, e.g. for a wrong output.
      processes: number of processes behind the latency.
      compile_ms, warm_compile_ms: without and with the stack's caches.
      host_memory_mb, device_memory_mb: peaks, in units of 10^6 bytes.
      error: error of the output against the truth, relative RMSE.
      extra: any other JSON.
      identity: unique key of the result, so that a second import changes nothing: by default the
        digest of all other fields. Set it to the digest of the source record if a field is
        computed by code that may change.

    Raises:
      RowError: a field is invalid.
    """

    def __post_init__(self) -> None:
        try:
            # Constructors do not validate.
            msgspec.convert(msgspec.structs.asdict(self), _Fields)
        except msgspec.ValidationError as error:
            raise RowError(str(error)) from error
        msgspec.structs.force_setattr(self, "options", tuple(self.options))
        try:
            if self.extra:
                canonical(self.extra)
        except (TypeError, ValueError, RecursionError) as error:
            raise RowError(f"extra is not JSON: {error}") from error
        low, high = self.latency_low_ms, self.latency_high_ms
        if (low is None) != (high is None):
            raise RowError("an interval must have both ends")
        if low is not None and high is not None and low > high:
            raise RowError(f"the latency interval ends before it begins: {low} to {high}")

    @property
    def competitor(self) -> str:
        """`backend:compiler+option`, with `@name` of an environment, as for `cbs run`."""
        compiler = "+".join([self.compiler, *self.options])
        where = f"@{self.environment}" if self.environment else ""
        return f"{self.backend}:{compiler}{where}" if compiler else f"{self.backend}{where}"

    @property
    def series(self) -> tuple[Any, ...]:
        """The values of `DIMENSIONS`; rows with equal values are points of one trend."""
        values: tuple[Any, ...] = _DIMENSIONS(self)
        return values

    @property
    def content(self) -> bytes:
        """16 bytes that identify the result."""
        text = self.identity or canonical(
            {**msgspec.structs.asdict(self), "time": microseconds(self.time)}
        )
        return hashlib.sha256(f"{self.source}\n{text}".encode()).digest()[:16]


def row_of(result: PortableResult, *, time: datetime.datetime) -> Row:
    """Returns the row of a result.

    Args:
      result: a result of any format.
      time: used if the result has no timestamp.

    Raises:
      RowError: the history cannot keep a value of the result.
    """
    told = result.as_json()
    compiler, machine = result.compiler or "", result.machine
    if machine is None and not result.identity:
        machine = str(result.host.get("cpu_model") or result.host.get("hostname") or "")
    return Row(
        workload=result.workload_label or result.workload or result.case,
        workload_digest=result.workload_digest or "",
        benchmark=result.case,
        framework=result.framework or "",
        level=result.level or "",
        data_type=result.precision or result.data_type or "",
        batch_size=result.batch_size,
        backend=result.backend or result.origin,
        compiler=compiler.removesuffix("".join(f"+{option}" for option in result.options)),
        options=result.options,
        environment=result.environment or "",
        device=result.device or "",
        machine=machine or "",
        threads=result.threads,
        source=result.origin,
        time=_time(result.timestamp) or time,
        run_id=result.run_id or "",
        revision=result.git_revision or "",
        versions=result.versions,
        program=result.program_sha256 or "",
        status=result.status,
        reason=result.reason or "",
        latency_ms=result.latency_ms,
        latency_low_ms=result.latency_low_ms,
        latency_high_ms=result.latency_high_ms,
        processes=len(result.samples_ms) or None,
        compile_ms=_median(result.compile_ms),
        warm_compile_ms=_median(result.warm_compile_ms),
        host_memory_mb=result.host_memory_peak_mb,
        device_memory_mb=result.device_memory_peak_mb,
        error=result.relative_rmse,
        # Results of the suite store data for readers there.
        extra=result.extra
        if result.identity
        else {name: told[name] for name in ("tags", "metrics", "extra") if name in told},
        identity=result.identity or canonical(told),
    )


def canonical(value: Any) -> str:
    """Returns JSON text that is equal for equal values, regardless of the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _time(timestamp: str | None) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
