"""A result in the form shared by formats and history: what ran, its outcome, its numbers.

A results file contains more (phases, conditions, blocks); this is the part that can be exchanged.
All formats share one rule: only a correct result has a speed.
"""

import datetime
import json
import re
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec
from msgspec import Meta, Raw

from comparative_benchmark.results.record import Status

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class DamagedRowError(ValueError):
    """A row holds values that none of our programs writes."""


def microseconds(time: datetime.datetime) -> int:
    """Returns microseconds since 1970, UTC."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def moment(time_us: int) -> datetime.datetime:
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


def parsed(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
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
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


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


# Characters with which a spreadsheet formula may begin.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet_text(text: str) -> str:
    """Returns a text that spreadsheets do not run as a formula, with an apostrophe if needed."""
    return f"'{text}" if text.startswith(_FORMULA) else text


class FormatError(ValueError):
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
      extra: JSON values without a field of their own.
      identity: unique key of a result of this suite; empty for a foreign file.
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


def made(**fields: Any) -> PortableResult:
    """Returns the result with these fields, checked.

    Raises:
      FormatError: a value has another type or is out of range.
    """
    try:
        return msgspec.convert(fields, PortableResult)
    except msgspec.ValidationError as error:
        raise FormatError(str(error)) from error
