"""One result as the history keeps it: flat, with readable dimensions and plain numbers.

Whatever reads results of any format yields `Row`s; nothing else is needed to feed the history.
"""

import datetime
import hashlib
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs

from comparative_benchmark.history.moments import microseconds

JSON: TypeAlias = bool | int | float | str | list["JSON"] | Mapping[str, "JSON"] | None

OK = "ok"
# Results that ran to their end, or whose output was wrong; the harness has the same words.
STATUSES = (
    *(OK, "unsteady", "wrong_output", "unsupported"),
    *("failed", "out_of_memory", "timeout", "crashed"),
)
# What must be equal for two rows to be points of one trend. Versions, program and revision are
# not here: they are what changes from night to night.
DIMENSIONS = (
    *("source", "workload", "workload_digest", "benchmark", "framework", "level", "data_type"),
    *("batch_size", "backend", "compiler", "options", "environment", "device", "machine"),
    "threads",
)
_DIMENSIONS = operator.attrgetter(*DIMENSIONS)
# Numbers that can have a trend, smaller is better; in SQL each is a column of its own.
METRICS = (
    *("latency_ms", "compile_ms", "warm_compile_ms"),
    *("host_memory_mb", "device_memory_mb", "error"),
)


class RowError(ValueError):
    """A row can not be kept; the message says which field is wrong."""


def _text(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, str):
        raise RowError(f"{field.name} is no text: {value!r}")
    # What one database refuses the other should not take.
    if "\0" in value:
        raise RowError(f"{field.name} holds a zero byte: {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowError(f"{field.name} is no Unicode text: {value!r}") from None


def _named(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    _text(_, field, value)
    if not value:
        raise RowError(f"{field.name} is empty")


def _number(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(f"{field.name} is no number: {value!r}")
    if not math.isfinite(value) or value < 0:
        raise RowError(f"{field.name} is no finite number from 0 on: {value!r}")


def _count(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if value is None:
        return
    if type(value) is not int or not 0 <= value < 2**31:
        raise RowError(f"{field.name} is no count: {value!r}")


def _moment(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise RowError(f"{field.name} is no time with a zone: {value!r}")


def _texts(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, Mapping):
        raise RowError(f"{field.name} is no mapping: {value!r}")
    for item in (*value.keys(), *value.values()):
        _text(_, field, item)


def _options(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    for item in value:
        _text(_, field, item)


def _document(_: "Row", field: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, Mapping):
        raise RowError(f"{field.name} is no mapping: {value!r}")
    if not value:
        return
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"{field.name} is no JSON: {error}") from error


def _listed(value: Sequence[str]) -> tuple[str, ...]:
    return tuple(value)


def _copied(value: Any) -> Any:
    # A plain one, which JSON can hold; what is no mapping is for the validator to refuse.
    return dict(value) if isinstance(value, Mapping) else value


def _text_field(default: str = "") -> Any:
    return attrs.field(default=default, validator=_text)


def _number_field() -> Any:
    return attrs.field(default=None, validator=_number)


@attrs.frozen(kw_only=True)
class Row:
    """One result.

    Only `workload`, `backend`, `time` and `status` are needed; what a format does not tell stays
    at its default, and what has no field here goes into `extra`.

    Attributes:
      workload: what was computed, for people, e.g. `bert-tiny-fp32-1x32xi32`; with
        `workload_digest`, where there is one, it tells workloads apart.
      benchmark: name of the case, e.g. `models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/...`.
      framework: of the model, e.g. `jax`.
      level: `framework_level` or `compiler_level`.
      data_type: what it computed in, e.g. `bf16`.
      batch_size: None where there is none.
      backend, compiler: e.g. `iree` and `llvm-cpu`; options are apart, in `options`.
      environment: name of the environment it ran in; empty for the usual one.
      device: e.g. `host-cpu`; `machine` is the CPU model or the host, `threads` how many it used.
      source: format it came from; results of two formats are never points of one trend.
      time: when its run began, with a zone.
      run_id: of its run; rows of one run were taken one after the other on one machine.
      revision: of what was measured or of the harness, as version control names it.
      versions: of packages, e.g. `{"jax": "0.10.2"}`.
      program: SHA-256 of the compiled program; empty where it is not known.
      status: one of `STATUSES`; `reason` says why it is not `ok`.
      latency_ms: estimate, with the 95 % interval `latency_low_ms` to `latency_high_ms`; None
        where there is none, as for a wrong answer, which has no speed.
      processes: on which latency rests.
      compile_ms, warm_compile_ms: without and with the stack's caches.
      host_memory_mb, device_memory_mb: peaks, in units of 10^6 bytes.
      error: of the output against the truth, relative RMSE.
      extra: anything else that is JSON.
      identity: what tells the result from any other, so that a second import changes nothing: by
        default the digest of all other fields. Set it to the digest of the record in the source
        where a field here is worked out by something that may change.

    Raises:
      RowError: a field is not what it must be.
    """

    workload: str = attrs.field(validator=_named)
    backend: str = attrs.field(validator=_named)
    time: datetime.datetime = attrs.field(validator=_moment)
    status: str = attrs.field()
    workload_digest: str = _text_field()
    benchmark: str = _text_field()
    framework: str = _text_field()
    level: str = _text_field()
    data_type: str = _text_field()
    batch_size: int | None = attrs.field(default=None, validator=_count)
    compiler: str = _text_field()
    options: tuple[str, ...] = attrs.field(default=(), converter=_listed, validator=_options)
    environment: str = _text_field()
    device: str = _text_field()
    machine: str = _text_field()
    threads: int | None = attrs.field(default=None, validator=_count)
    source: str = _text_field("cbs")
    run_id: str = _text_field()
    revision: str = _text_field()
    versions: Mapping[str, str] = attrs.field(factory=dict, converter=_copied, validator=_texts)
    program: str = _text_field()
    reason: str = _text_field()
    latency_ms: float | None = _number_field()
    latency_low_ms: float | None = _number_field()
    latency_high_ms: float | None = _number_field()
    processes: int | None = attrs.field(default=None, validator=_count)
    compile_ms: float | None = _number_field()
    warm_compile_ms: float | None = _number_field()
    host_memory_mb: float | None = _number_field()
    device_memory_mb: float | None = _number_field()
    error: float | None = _number_field()
    extra: Mapping[str, JSON] = attrs.field(factory=dict, converter=_copied, validator=_document)
    identity: str = _text_field()

    @status.validator
    def _known(self, _: Any, value: Any) -> None:
        if value not in STATUSES:
            raise RowError(f"status {value!r} is none of {', '.join(STATUSES)}")

    def __attrs_post_init__(self) -> None:
        low, high = self.latency_low_ms, self.latency_high_ms
        if (low is None) != (high is None):
            raise RowError("an interval has two ends")
        if low is not None and high is not None and low > high:
            raise RowError(f"the interval of the latency ends before it begins: {low} to {high}")

    @property
    def competitor(self) -> str:
        """`backend:compiler+option`, with `@name` of an environment; as `cbs run` takes it."""
        compiler = "+".join([self.compiler, *self.options])
        where = f"@{self.environment}" if self.environment else ""
        return f"{self.backend}:{compiler}{where}" if compiler else f"{self.backend}{where}"

    @property
    def series(self) -> tuple[Any, ...]:
        """The values of `DIMENSIONS`: rows with equal ones are points of one trend."""
        values: tuple[Any, ...] = _DIMENSIONS(self)
        return values

    @property
    def content(self) -> bytes:
        """16 bytes that tell the result from any other."""
        text = self.identity or canonical(
            {**attrs.asdict(self, recurse=False), "time": microseconds(self.time)}
        )
        return hashlib.sha256(f"{self.source}\n{text}".encode()).digest()[:16]


def canonical(value: Any) -> str:
    """Returns JSON that is equal for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Importer(Protocol):
    """Reads files of one format."""

    name: str

    def rows(self, path: Path) -> Iterator["Row | Refusal"]:
        """Yields a row for each result of a file, and a refusal for what is none.

        A file that can not be read at all is one refusal; nothing is raised for its content.
        """
        ...


@attrs.frozen(kw_only=True)
class Refusal:
    """Something that was not imported.

    Attributes:
      path: the file.
      place: where in it, e.g. `line 12` or `record 3`; empty for the whole file.
      reason: why.
    """

    path: Path
    place: str = ""
    reason: str

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.path}{place}: {self.reason}"
