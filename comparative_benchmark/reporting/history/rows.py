"""One result: in the form that formats and history share, and as a flat row of the history.

The shared form has what ran, its outcome and its numbers. A results file contains more (phases,
conditions, blocks); this is the part that can be exchanged. All formats share one rule: only a
correct result has a speed. A row has readable dimensions and plain numbers. To add other
measurements to the history, make `Row`s of them.
"""

import datetime
import hashlib
import json
import operator
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import attrs
import msgspec
from msgspec import Meta, Raw

from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.published import host_name
from comparative_benchmark.results.record import Positive, Status

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class DamagedRowError(ValueError):
    """A row holds values that none of our programs writes."""


def microseconds(time: datetime.datetime) -> int:
    """Returns microseconds since 1970, UTC."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def timestamp(time_us: int) -> datetime.datetime:
    """Returns the time from microseconds since 1970.

    Raises:
      DamagedRowError: the time is out of range.
    """
    try:
        return _EPOCH + datetime.timedelta(microseconds=time_us)
    except (OverflowError, TypeError):
        raise DamagedRowError(f"{time_us!r} is not a time in microseconds") from None


def json_value(text: str) -> Any:
    """Returns the value of a column's JSON text.

    Raises:
      DamagedRowError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise DamagedRowError(f"{str(text)[:80]!r} is not JSON") from None


def parse_time(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """Returns the time of `2026-11-01`, `2026-11-01T06:00`, or `30d` (12h, 2w) before now.

    Without a zone it is UTC.

    Raises:
      ValueError: the text has none of these forms.
    """
    if match := re.fullmatch(r"(\d{1,6})([hdw])", text):
        now = now or datetime.datetime.now(datetime.UTC)
        try:
            return now - datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is too long ago") from None
    time = datetime.datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)


OK = Status.OK.value
STATUSES = tuple(status.value for status in Status)
# The origin of results of this suite.
SUITE = "cbs"

# Integers stay integers, so that a result has the same text in every format.
_MOST, _MOST_INTEGER = 1e300, 2**63 - 1
Count: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST_INTEGER)]
Amount: TypeAlias = Count | Annotated[float, Meta(ge=0, le=_MOST)]
Number: TypeAlias = (
    Annotated[int, Meta(ge=-_MOST_INTEGER, le=_MOST_INTEGER)]
    | Annotated[float, Meta(ge=-_MOST, le=_MOST)]
)
# Between these limits sums, means and quotients of times are finite.
Time: TypeAlias = Annotated[float, Meta(ge=1e-100, le=1e100)]
Process: TypeAlias = Annotated[tuple[Time, ...], Meta(min_length=1)]
StatusName: TypeAlias = Annotated[str, Meta(pattern=rf"^({'|'.join(STATUSES)})\Z")]


class FormatError(UsageError, ValueError):
    """A file, or a part of it, violates its format; the message gives place and reason."""


class PortableResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A result that can be exchanged between formats.

    Attributes:
      case: name of the benchmark case; in a foreign file, of its benchmark.
      compiler: compiler with its options, e.g. `inductor+freezing`.
      options: options of the compiler, as in its name.
      environment: name of the Python environment, if several raced.
      timestamp: start of the run, ISO 8601 with time zone.
      samples_ms: latencies of each process; empty unless the status is `ok`.
      latency_ms: mean over processes of their median latency, with its 95 % interval if there was
        more than one process. For a foreign file, the value in it.
      compile_ms: cold compile times, one per process; `warm_compile_ms` with filled caches.
      relative_rmse: error against the float64 truth, relative to its scale.
      metrics: other numbers in a foreign file, by its own names.
      versions: versions of the packages involved.
      host: properties of the machine, by the names in results files.
      machine, threads: machine name and thread count as in the history.
      extra: other JSON values.
      identity: unique key of a result of this suite; None for a foreign file.
      origin: name of the format that it was first written in.

    Raises:
      ValueError: a result that is not `ok` has a latency.
    """

    case: str
    framework: str | None = None
    model: str | None = None
    input_data: str | None = None
    workload: str | None = None
    workload_label: str | None = None
    workload_digest: str | None = None
    data_type: str | None = None
    precision: str | None = None
    batch_size: Count | None = None
    level: str | None = None
    backend: str | None = None
    compiler: str | None = None
    options: tuple[str, ...] = ()
    environment: str | None = None
    device: str | None = None
    tags: tuple[str, ...] = ()
    status: StatusName = OK
    phase: str | None = None
    reason: str | None = None
    samples_ms: tuple[Process, ...] = ()
    latency_ms: Amount | None = None
    latency_low_ms: Amount | None = None
    latency_high_ms: Amount | None = None
    compile_ms: tuple[Amount, ...] = ()
    warm_compile_ms: tuple[Amount, ...] = ()
    host_memory_peak_mb: Amount | None = None
    device_memory_peak_mb: Amount | None = None
    relative_rmse: Amount | None = None
    tokens_per_s: Amount | None = None
    cpu_wall_ratio: Amount | None = None
    metrics: dict[str, Number] = {}
    program_sha256: str | None = None
    wall_s: Amount | None = None
    run_id: str | None = None
    timestamp: str | None = None
    git_revision: str | None = None
    versions: dict[str, str] = {}
    host: dict[str, Any] = {}
    machine: str | None = None
    threads: Count | None = None
    extra: dict[str, Any] = {}
    identity: str | None = None
    origin: str = SUITE

    def __post_init__(self) -> None:
        """Enforces the rule in the module's docstring."""
        if self.status != OK and (self.samples_ms or self.latency_ms is not None):
            raise ValueError(f"{self.name}: a {self.status} result must not have a latency")

    @property
    def competitor(self) -> str:
        """Backend, compiler and environment, as in results files; empty if unknown."""
        where = f"@{self.environment}" if self.environment else ""
        return ":".join(filter(None, (self.backend, self.compiler))) + where

    @property
    def name(self) -> str:
        """Name that distinguishes it from the other results of a run."""
        return " ".join(filter(None, (self.case, self.competitor, self.device)))

    @property
    def why(self) -> str:
        """Status and reason in one line; only the status if it is ok."""
        if self.status == OK or not self.reason:
            return self.status
        return f"{self.status} {self.reason}" if self.phase else f"{self.status}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Returns JSON for `decoded`; fields without a value are omitted."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return {name: item for name, item in value.items() if item not in (None, (), {})}


@attrs.frozen
class Contents:
    """The content of a file.

    Attributes:
      results: in the order of the file.
      refused: a sentence with file and place for each part that could not be read.
      skipped: number of configurations that the file records as not run.
    """

    results: tuple[PortableResult, ...] = ()
    refused: tuple[str, ...] = ()
    skipped: int = 0


def decoded(content: Raw | str | bytes) -> PortableResult:
    """Returns the result in the JSON of `as_json`.

    Raises:
      FormatError: the content is not such a result.
    """
    try:
        return msgspec.json.decode(content, type=PortableResult)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormatError(str(error)) from error


def portable_result(**fields: Any) -> PortableResult:
    """Returns the result with these fields, checked.

    Raises:
      FormatError: a value has another type or is out of range.
    """
    try:
        return msgspec.convert(fields, PortableResult)
    except msgspec.ValidationError as error:
        raise FormatError(str(error)) from error


# Numbers that can have a trend, smaller is better; each is a column in SQL.
METRICS = (
    *("latency_ms", "compile_ms", "warm_compile_ms"),
    *("host_memory_mb", "device_memory_mb", "error"),
)

# Rejects text that one of the databases rejects: null characters and invalid Unicode.
_SOUND = r"^[^\x00\ud800-\udfff]*\Z"
Text: TypeAlias = Annotated[str, Meta(pattern=_SOUND)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, pattern=_SOUND)]
RowCount: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
RowAmount: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Moment: TypeAlias = Annotated[datetime.datetime, Meta(tz=True)]


class RowError(ValueError):
    """A row cannot be stored; the message names the field."""


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that identify a trend: rows with equal values are points of one.

    Versions, program and revision are not dimensions, because they change from night to night.
    """

    source: Text = "cbs"
    workload: Name
    workload_digest: Text = ""
    benchmark: Text = ""
    framework: Text = ""
    level: Text = ""
    data_type: Text = ""
    batch_size: RowCount | None = None
    backend: Name
    compiler: Text = ""
    options: tuple[Text, ...] = ()
    environment: Text = ""
    device: Text = ""
    machine: Text = ""
    threads: RowCount | None = None


class _Fields(Dimensions, frozen=True, kw_only=True):
    time: Moment
    versions: dict[Text, Text] = {}
    run_id: Text = ""
    revision: Text = ""
    program: Text = ""
    status: StatusName
    reason: Text = ""
    latency_ms: RowAmount | None = None
    latency_low_ms: RowAmount | None = None
    latency_high_ms: RowAmount | None = None
    processes: RowCount | None = None
    compile_ms: RowAmount | None = None
    warm_compile_ms: RowAmount | None = None
    host_memory_mb: RowAmount | None = None
    device_memory_mb: RowAmount | None = None
    error: RowAmount | None = None
    extra: dict[str, Any] = {}
    identity: Text = ""


class Row(_Fields, frozen=True, kw_only=True):
    """One result. SQL tables, CSV and Parquet have the columns of this class.

    Only `workload`, `backend`, `time` and `status` are required. Fields unknown to a format keep
    their defaults, and data without a field go into `extra`.

    Attributes:
      workload: readable name, e.g. `bert-tiny-fp32-1x32xi32`; unique together with
        `workload_digest` if there is one.
      benchmark: name of the case, e.g. `models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/...`.
      framework: framework of the model, e.g. `jax`.
      level: `framework_level` or `compiler_level`.
      data_type: type of the computation, e.g. `bf16`.
      batch_size: None for models without a batch.
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
      latency_ms: estimate, with the 95 % interval `latency_low_ms` to `latency_high_ms`; None for
        other statuses than `ok` and for compile-only results.
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
            raise RowError("a latency interval needs a lower and an upper bound")
        if low is not None and high is not None and low > high:
            raise RowError(f"latency interval: lower bound {low} is above upper bound {high}")

    @property
    def competitor(self) -> str:
        """Competitor as for `cbs run`."""
        return competitor(msgspec.structs.asdict(self))

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


DIMENSIONS = Dimensions.__struct_fields__
_DIMENSIONS = operator.attrgetter(*DIMENSIONS)
_HINTS = get_type_hints(Row)
# Columns of tables and files, and their types.
COLUMNS = {"time": _HINTS.pop("time"), **_HINTS}


def row_of(result: PortableResult, *, time: datetime.datetime) -> Row:
    """Returns the row of a result.

    Args:
      result: a result of any format.
      time: used if the result has no timestamp.

    Raises:
      RowError: the history cannot keep a value of the result.
    """
    fields = result.as_json()
    compiler, machine = result.compiler or "", result.machine
    if machine is None and not result.identity:
        machine = str(result.host.get("cpu_model") or result.host.get("hostname") or "")
    # Another quantity is another trend.
    compiled = result.identity and result.extra.get("stop_reason") == "compile_only"
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
        options=(*result.options, *(["compile-only"] if compiled else [])),
        environment=result.environment or "",
        device=result.device or "",
        machine=machine or "",
        threads=result.threads,
        source=result.origin,
        time=zoned_time(result.timestamp) or time,
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
        compile_ms=median(result.compile_ms),
        warm_compile_ms=median(result.warm_compile_ms),
        host_memory_mb=result.host_memory_peak_mb,
        device_memory_mb=result.device_memory_peak_mb,
        error=result.relative_rmse,
        # Results of the suite store data for readers there.
        extra=result.extra
        if result.identity
        else {name: fields[name] for name in ("tags", "metrics", "extra") if name in fields},
        identity=result.identity or canonical(fields),
    )


def count_of(text: str) -> int | None:
    """Returns the number that a text is in decimal digits; None if it is not one, or too large."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def canonical(value: Any) -> str:
    """Returns JSON text that is equal for equal values, regardless of the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def median(values: Sequence[float]) -> float | None:
    """Returns the median; None without values."""
    return statistics.median(values) if values else None


def zoned_time(timestamp: str | None) -> datetime.datetime | None:
    """Returns an ISO 8601 time, in UTC if it has no time zone; None if it is not one."""
    try:
        moment = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


# The node in the device of a fleet's result, see `Case.place`, unless it is a pseudonym.
_NODE = re.compile(r"(?<= on )(?!host-[0-9a-f]{6} \().+(?= \([^()]*\)$)")


def published_device(device: str) -> str:
    """Returns the name of a device with a pseudonym for its node in a fleet, as published."""
    return _NODE.sub(lambda node: host_name(node[0]), device)


# The fields that all points of a trend share: case, competitor, `published_device`, machine,
# digest of the workload, and number of threads.
Place: TypeAlias = tuple[str, str, str, str, str, int | None]


class TrendPoint(NamedTuple):
    """A latency of a case in ms, its 95 % interval if known, and the installed versions."""

    time: Moment
    value: Positive
    low: Positive | None = None
    high: Positive | None = None
    versions: dict[str, str] = {}


def competitor(record: Mapping[str, Any]) -> str:
    """Returns `backend:compiler+option`, with `@name` of an environment, as for `cbs run`."""
    compiler = "+".join([record["compiler"], *record["options"]])
    where = f"@{record['environment']}" if record["environment"] else ""
    return f"{record['backend']}:{compiler}{where}" if compiler else f"{record['backend']}{where}"
