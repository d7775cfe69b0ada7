"""JUnit XML for the test page of a CI: one test case per trial.

A wrong output is a failure, a trial that could not be measured an error, and an unsupported one is
skipped. Numbers are in the output of a case, where people read them.
"""

import contextlib
import datetime
import re
import statistics
import xml.etree.ElementTree as ET  # written here, never read
from collections.abc import Sequence

from comparative_benchmark.analysis.stats.analysis import WITHIN_ONE_PROCESS
from comparative_benchmark.reporting.formats.interface import Exported, remarks_on
from comparative_benchmark.reporting.history.rows import OK, PortableResult, zoned_time

_ELEMENTS = {OK: None, "wrong_output": "failure", "unsupported": "skipped"}
# Characters that XML 1.0 cannot represent, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the XML, with one suite per run."""
    runs: dict[str, list[PortableResult]] = {}
    for result in results:
        runs.setdefault(result.run_id or "results", []).append(result)
    root = ET.Element("testsuites", {"name": "common-benchmark-suite", **_counts(results)})
    for run_id, members in runs.items():
        root.append(_suite(run_id, members))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return Exported(
        files={"": f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()},
        remarks=remarks_on(
            results,
            "JUnit has no numeric fields: 'system-out' contains latencies as text, but no samples",
        ),
    )


def _suite(run_id: str, results: Sequence[PortableResult]) -> ET.Element:
    first = results[0]
    attributes = {
        "name": _clean(run_id),
        **_counts(results),
        "skipped": str(sum(_element(result) == "skipped" for result in results)),
        "time": _seconds(sum(result.wall_s or 0.0 for result in results)),
        "hostname": _clean(str(first.host.get("hostname") or "")),
    }
    if first.timestamp:
        attributes["timestamp"] = _without_zone(first.timestamp)
    suite = ET.Element("testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    shared = {"git_revision": first.git_revision, "cpu_model": first.host.get("cpu_model")}
    versions = {name: v for result in results for name, v in result.versions.items()}
    for name, value in {**shared, **versions}.items():
        if value:
            ET.SubElement(properties, "property", name=_clean(name), value=_clean(str(value)))
    for result in results:
        suite.append(_case(result))
    return suite


def _case(result: PortableResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "name": _clean(result.case),
            "classname": _clean(f"{result.competitor} {result.device or ''}".strip()),
            "time": _seconds(result.wall_s or 0.0),
        },
    )
    if kind := _element(result):
        failure = ET.SubElement(case, kind, type=result.status, message=_clean(result.why))
        failure.text = _clean(result.why)
    output = ET.SubElement(case, "system-out")
    output.text = _clean("\n".join(_numbers(result)))
    return case


def _numbers(result: PortableResult) -> list[str]:
    lines = [f"status: {result.status}"]
    if result.status != OK:
        return lines
    if result.latency_ms is not None:
        within = f", {WITHIN_ONE_PROCESS}" if len(result.samples_ms) == 1 else ""
        interval = (
            f" (95 %{within}: {result.latency_low_ms!r} to {result.latency_high_ms!r})"
            if result.latency_low_ms is not None
            else ""
        )
        lines.append(f"latency_ms: {result.latency_ms!r}{interval}")
    if result.compile_ms:
        lines.append(f"compile_ms: {statistics.median(result.compile_ms)!r}")
    lines += [
        f"{name}: {value!r}"
        for name in ("host_memory_peak_mb", "device_memory_peak_mb", "relative_rmse")
        if (value := getattr(result, name)) is not None
    ]
    return lines


def _element(result: PortableResult) -> str | None:
    return _ELEMENTS.get(result.status, "error")


def _counts(results: Sequence[PortableResult]) -> dict[str, str]:
    kinds = [_element(result) for result in results]
    return {
        "tests": str(len(results)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
    }


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _without_zone(timestamp: str) -> str:
    """Returns the time in UTC without a zone, as the schema requires."""
    if (moment := zoned_time(timestamp)) is None:
        return _clean(timestamp)
    with contextlib.suppress(OverflowError):  # the first or last day of the calendar
        moment = moment.astimezone(datetime.UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="seconds")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
