"""TorchBench metrics files: those of `torchbench`, and those of TorchBench itself."""

import ast
import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Raw

from comparative_benchmark.formats.carrier import read_carrier
from comparative_benchmark.formats.exported import CARRIER
from comparative_benchmark.formats.source import Part, Source
from comparative_benchmark.formats.torchbench import LATENCY, NOT_IMPLEMENTED, metrics_of
from comparative_benchmark.history.portable import (
    OK,
    Contents,
    FormatError,
    PortableResult,
    made,
)

_SKIPPED = ("skip", "skip_by_dryrun")
_TEST_BENCH = re.compile(
    r"model=(?P<model>.*), test=(?P<test>.*), device=(?P<device>.*), bs=(?P<bs>.*), "
    r"extra_args=(?P<args>.*), metric=(?P<metric>[^,]*)"
)
_NIGHTLY = re.compile(
    r"test_(?P<test>eval|train)\[(?P<model>.+)-(?P<device>\w+)-(?P<args>\w+)\]_"
    r"(?P<metric>latency|cmem|gmem)"
)
_CPU = re.compile(r"(?P<model>.+)-(?P<test>eval|train)_(?P<metric>latency|throughput|cmem)")
_FILE_TIME = re.compile(r"metrics-(\d{14})\.json")


class _File(msgspec.Struct):
    name: str
    environ: dict[str, Any]
    metrics: dict[str, Raw]
    common_benchmark_suite: Raw = Raw()


def read(source: Source) -> Contents:
    """Returns the results of a metrics file; those that it carries exactly, if any.

    Raises:
      FormatError: it is not a metrics file.
    """
    document = source.decoded(_File, "a TorchBench metrics file")
    if carrier := document.common_benchmark_suite:
        metrics = source.decoded(dict[str, Any])["metrics"]
        return read_carrier(source.part(carrier), lambda results: _faults(results, metrics))
    return _read_foreign(source, document)


def _faults(results: Sequence[PortableResult], metrics: Mapping[str, Any]) -> list[str | None]:
    faults = []
    for result in results:
        wrong = [key for key, value in metrics_of(result).items() if metrics.get(key) != value]
        faults.append(
            f"metric {wrong[0]!r} is {metrics.get(wrong[0])!r} in the metrics, but differs in "
            f"{CARRIER}"
            if wrong
            else None
        )
    return faults


def _read_foreign(source: Source, document: _File) -> Contents:
    groups: dict[tuple[tuple[str, str], ...], dict[str, Part]] = {}
    offset, environ = 0, document.environ
    torch = environ.get("pytorch_version")
    for key, raw in document.metrics.items():
        # A value may be a digit that stands anywhere, its key does not.
        name = source.part(Raw(msgspec.json.encode(key)), offset)
        part = source.part(raw, name.offset + len(name.content))
        parts = _parts(key)
        metric = parts.pop("metric")
        groups.setdefault(tuple(sorted(parts.items())), {})[metric] = part
    common = {
        "framework": "pytorch",
        "versions": {"torch": torch} if isinstance(torch, str) else {},
        "timestamp": _timestamp(source.name),
        "host": {"cpu_model": environ["device"]} if isinstance(environ.get("device"), str) else {},
    }
    results, refused, skipped = [], [], 0
    for group, values in groups.items():
        try:
            result = _foreign(document.name, dict(group), values, environ, common)
        except FormatError as error:
            refused.append(str(error))
            continue
        if result is None:
            skipped += 1
        else:
            results.append(result)
    return Contents(tuple(results), tuple(refused), skipped)


def _parts(key: str) -> dict[str, str]:
    for pattern in (_TEST_BENCH, _NIGHTLY, _CPU):
        if match := pattern.fullmatch(key):
            return match.groupdict()
    return {"key": key, "metric": key}


def _foreign(
    name: str,
    parts: Mapping[str, str],
    values: Mapping[str, Part],
    environ: Mapping[str, Any],
    common: Mapping[str, Any],
) -> PortableResult | None:
    """Returns the result of one configuration; None if it was skipped."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for metric, part in values.items():
        try:
            value: float | str = part.decoded(float | str)  # type: ignore[arg-type]  # a union
        except FormatError as error:
            raise FormatError(f"{part}: {metric}: {error}") from error
        if isinstance(value, str):
            texts[metric] = value
        else:
            numbers[metric] = value
    if not numbers and texts and all(text in _SKIPPED for text in texts.values()):
        return None
    latency = next((numbers.pop(n) for n in (LATENCY, "latency") if n in numbers), None)
    batch = parts.get("bs", "")
    failure = next((text for text in texts.values() if text not in _SKIPPED), None)
    if failure is not None:
        # A configuration that failed in one metric has no speed in another.
        if latency is not None:
            numbers[LATENCY] = latency
        latency = None
    return made(
        case=f"{name}/{parts.get('model') or parts.get('key')}",
        model=parts.get("model"),
        device=parts.get("device"),
        batch_size=int(batch) if batch.isdigit() else None,
        compiler=_compiler(parts.get("args")) if parts.get("model") else None,
        backend="torchbench",
        status=_status(failure),
        reason=failure,
        latency_ms=latency,
        metrics=numbers,
        extra={
            "userbenchmark": name,
            "environ": dict(environ),
            **({"test": parts["test"]} if "test" in parts else {}),
        },
        **common,
    )


def _status(failure: str | None) -> str:
    if failure is None:
        return OK
    return "unsupported" if failure == NOT_IMPLEMENTED else "failed"


def _compiler(arguments: str | None) -> str:
    """Returns `eager`, or the extra arguments that made it something else."""
    if not arguments:
        return "eager"
    try:
        found = ast.literal_eval(arguments)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return arguments
    return " ".join(map(str, found)) or "eager" if isinstance(found, list) else arguments


def _timestamp(name: str) -> str | None:
    match = _FILE_TIME.fullmatch(PurePath(name).name)
    if match is None:
        return None
    try:
        # The file does not tell its zone.
        told = datetime.datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return told.isoformat()
