"""Results as rows of the history, from whatever format they came."""

import datetime
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from comparative_benchmark.formats.names import AUTO
from comparative_benchmark.formats.registry import detect, importer
from comparative_benchmark.formats.result import FormatError, Result
from comparative_benchmark.formats.source import read_source
from comparative_benchmark.history.rows import Refusal, Row, RowError, canonical

_HELD = ("metrics", "tags", "extra")


def row_of(result: Result, *, time: datetime.datetime) -> Row:
    """Returns the row of a result; of one of this suite the row that its results file gives.

    Args:
      result: of any format.
      time: when it was measured, if the result does not tell.

    Raises:
      RowError: a value of the result is none that the history can keep.
    """
    compiler = result.compiler or ""
    held = {name: value for name, value in result.as_json().items() if name in _HELD}
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
        machine=_machine(result),
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
        # What the suite's own rows have there is in the result's `extra` already.
        extra=result.extra if result.identity else held,
        identity=result.identity or canonical(result.as_json()),
    )


def _machine(result: Result) -> str:
    if result.machine is not None or result.identity:
        return result.machine or ""
    return str(result.host.get("cpu_model") or result.host.get("hostname") or "")


@attrs.define
class FormatImporter:
    """Reads files of one format for the history; `auto` finds out which each has.

    Attributes:
      name: of the format.
      told: is given a sentence on what a file says was not run.
    """

    name: str
    told: Callable[[str], None] = print

    def rows(self, path: Path) -> Iterator[Row | Refusal]:
        """Yields a row for each result of a file, and a refusal for what is none."""
        for item in read_file(path, self.name, told=self.told):
            if isinstance(item, Refusal):
                yield item
                continue
            # The file's own time, where nothing in it tells one.
            time = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
            try:
                yield row_of(item, time=time)
            except RowError as error:
                yield Refusal(path=path, place=item.name, reason=str(error))


def read_file(
    path: Path, name: str, *, told: Callable[[str], None] = print
) -> Iterator[Result | Refusal]:
    """Yields the results of a file in a format, and a refusal for what is none."""
    try:
        source = read_source(path)
        kind = detect(source) if name == AUTO else name
        imported = importer(kind)(source)
    except FormatError as error:
        yield refusal(path, str(error))
        return
    for sentence in imported.refused:
        yield refusal(path, sentence)
    if imported.skipped:
        told(f"{path}: {imported.skipped} configurations were not run, the file says")
    for result in imported.results:
        yield result if result.identity else attrs.evolve(result, origin=kind)


def refusal(path: Path, sentence: str) -> Refusal:
    """Returns what `FILE:LINE: REASON` says as a refusal."""
    place, separator, reason = sentence.removeprefix(str(path)).partition(": ")
    if not separator:
        return Refusal(path=path, reason=sentence)
    line = place.removeprefix(":")
    return Refusal(path=path, place=f"line {line}" if line else "", reason=reason)


def _median(values: tuple[float, ...]) -> float | None:
    return statistics.median(values) if values else None


def _time(timestamp: str | None) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
