"""Writes query results and regressions: tables, JSON, the regression file, the text of an issue.

Regression file and issue have the form of TorchBench's detector: its readers find their keys in the
usual places; additional data are in separate keys.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from comparative_benchmark.analysis.stats.analysis import WITHIN_ONE_PROCESS
from comparative_benchmark.reporting.history.findings import Finding, Kind, Occurrence, changed_text
from comparative_benchmark.reporting.history.queries import Record, Series
from comparative_benchmark.reporting.history.rows import DIMENSIONS, competitor
from comparative_benchmark.reporting.writers import regression_document
from comparative_benchmark.terminal.screen import Column, fitted

FORMATS = ("table", "csv", "json", "parquet")


def write_json(records: Iterable[Record], file: IO[str]) -> None:
    """Writes a list of objects, one per line."""
    separator = "[\n"
    for record in records:
        values = {**record, "time": record["time"].isoformat()}
        file.write(separator + json.dumps(values, allow_nan=False))
        separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")


def print_records(records: Iterable[Record], screen: Console) -> None:
    """Prints the most important columns, as many as fit."""
    rows = list(records)

    def column(heading: str, name: str, rank: int) -> Column:
        return Column(
            heading=heading, cells=[digits(row[name]) for row in rows], rank=rank, right=True
        )

    columns = [
        Column(heading="competitor", cells=[Text(competitor(row)) for row in rows]),
        Column(heading="time", cells=[f"{row['time']:%Y-%m-%d %H:%M}" for row in rows]),
        Column(heading="latency ms", cells=[_interval(row) for row in rows], right=True),
        Column(heading="status", cells=[_status(row["status"]) for row in rows], rank=1),
        column("compile ms", "compile_ms", 3),
        column("memory MB", "host_memory_mb", 4),
        column("error", "error", 2),
        Column(heading="framework", cells=[Text(row["framework"]) for row in rows], rank=5),
        Column(heading="device", cells=[Text(row["device"]) for row in rows], rank=6),
    ]
    _print(columns, [row["workload"] for row in rows], screen)


def print_series(series: Sequence[Series], screen: Console) -> None:
    """Prints one row per trend."""
    names = [item.dimensions for item in series]
    columns = [
        Column(heading="competitor", cells=[Text(competitor(name)) for name in names]),
        Column(heading="results", cells=[str(item.results) for item in series], right=True),
        Column(heading="first", cells=[f"{item.first:%Y-%m-%d}" for item in series], rank=1),
        Column(heading="last", cells=[f"{item.last:%Y-%m-%d}" for item in series]),
        Column(heading="last status", cells=[_status(item.last_status) for item in series]),
        Column(heading="framework", cells=[Text(name["framework"]) for name in names], rank=2),
        Column(heading="machine", cells=[Text(name["machine"]) for name in names], rank=3),
        Column(heading="device", cells=[Text(name["device"]) for name in names], rank=4),
    ]
    _print(columns, [name["workload"] for name in names], screen)


def _print(columns: Sequence[Column], workloads: Sequence[str], screen: Console) -> None:
    table = fitted(columns, screen.width, groups=workloads, group_heading="workload")
    screen.print(table.table)
    if table.dropped:
        screen.print(f"not shown: {', '.join(table.dropped)}")


def _status(status: str) -> Text:
    return Text(status, style="" if status == "ok" else "red")


def series_as_json(series: Sequence[Series]) -> str:
    """Returns a JSON list of the trends."""
    return json.dumps(
        [
            {
                **{name: item.dimensions[name] for name in DIMENSIONS},
                "results": item.results,
                "first": item.first.isoformat(),
                "last": item.last.isoformat(),
                "last_status": item.last_status,
            }
            for item in series
        ],
        indent=2,
    )


def digits(value: float | None, significant: int = 3) -> str:
    """Returns a number with `significant` significant digits, but no exponent; `-` for None."""
    if value is None:
        return "-"
    text = f"{value:#.{significant}g}"
    return f"{value:.0f}" if "e+" in text else text.removesuffix(".")


def _interval(record: Record) -> str:
    if record["latency_low_ms"] is None:
        return digits(record["latency_ms"])
    low, high = digits(record["latency_low_ms"]), digits(record["latency_high_ms"])
    within = f" {WITHIN_ONE_PROCESS}" if record["processes"] == 1 else ""
    return f"{digits(record['latency_ms'])} ({low} to {high}{within})"


# Read by TorchBench workflows after its detector.
_DETECTED = "TORCHBENCH_REGRESSION_DETECTED"


def findings_document(
    findings: Sequence[Finding], *, name: str, added: Sequence[Finding] = ()
) -> dict[str, Any]:
    """Returns the content of the regression file.

    `control_env` describes the oldest last good night and `treatment_env` the latest first bad one;
    each detail has its own, which may be closer together. `delta` is a fraction, positive for
    worse. For a changed status it is `null`, and control and treatment are the statuses.

    Args:
      findings: findings that count.
      name: name of the benchmark.
      added: cases that appear for the first time.
    """
    present = [finding for finding in findings if finding.kind is not Kind.MISSING]
    gone = [finding for finding in findings if finding.kind is Kind.MISSING]
    control, treatment = _sides(findings)
    return regression_document(
        name,
        control_env=_environment(control),
        treatment_env=_environment(treatment),
        details={_key(finding): _detail(finding) for finding in present},
        control_only={_key(finding): finding.what for finding in gone},
        treatment_only={_key(finding): finding.what for finding in added},
        bisection=_suspect(findings),
    )


def issue_text(
    findings: Sequence[Finding],
    *,
    name: str,
    owners: Sequence[str] = (),
    added: Sequence[Finding] = (),
) -> str:
    """Returns Markdown with the sections of TorchBench's issues."""
    present = [finding for finding in findings if finding.kind is not Kind.MISSING]
    gone = [finding for finding in findings if finding.kind is Kind.MISSING]
    control, treatment = _sides(findings)
    sections = [
        f"The benchmark {_code(name)} has detected a performance signal.",
        f"Base: {_night(control)}",
        f"Affected: {_night(treatment)}",
        "Affected Tests:\n" + _list(_line(finding) for finding in present),
        "Tests that were no longer run on affected commit:\n"
        + _list(f"{_code(finding.name)}: {_escaped(finding.what)}" for finding in gone),
        "Tests that were newly added on affected commit:\n"
        + _list(f"{_code(finding.name)}: {_escaped(finding.what)}" for finding in added),
    ]
    if owners:
        sections.append("cc " + " ".join(owners))
    return "\n\n".join(sections) + "\n"


def set_workflow_revision(findings: Sequence[Finding]) -> None:
    """Passes the affected revision to a GitHub workflow, if this runs in one.

    Raises:
      OSError: its environment file cannot be written.
    """
    path = os.environ.get("GITHUB_ENV")
    if not path or not findings:
        return
    latest = max((finding.first_bad for finding in findings), key=lambda night: night.time)
    # A line break would set further variables.
    revision = re.sub(r"[^0-9A-Za-z._-]", "", latest.revision or latest.run_id) or "unknown"
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{_DETECTED}='{revision}'\n")


def _sides(findings: Sequence[Finding]) -> tuple[Occurrence | None, Occurrence | None]:
    return (
        min((f.last_good for f in findings), key=lambda night: night.time, default=None),
        max((f.first_bad for f in findings), key=lambda night: night.time, default=None),
    )


def _environment(night: Occurrence | None) -> dict[str, Any]:
    if night is None:
        return {}
    return {
        "pytorch_version": night.versions.get("torch"),
        # Packages do not report it, but TorchBench's readers require the key.
        "pytorch_git_version": None,
        "git_commit_hash": night.revision or None,
        "time": night.time.isoformat(),
        "run_id": night.run_id,
        "versions": dict(night.versions),
    }


def _key(finding: Finding) -> str:
    names = finding.dimensions
    parts = {
        "model": names["workload"],
        "framework": names["framework"],
        "backend": competitor(names),
        "device": names["device"],
        **{
            name: names[name]
            for name in ("machine", "threads", "level", "data_type", "batch_size", "source")
        },
        # Two workloads may have one label.
        "digest": names["workload_digest"][:12],
        "metric": finding.metric,
    }
    return ", ".join(f"{name}={value}" for name, value in parts.items() if value)


def _detail(finding: Finding) -> dict[str, Any]:
    step = finding.kind is Kind.STEP
    return {
        "control": finding.before if step else finding.last_good.status,
        "treatment": finding.after if step else finding.first_bad.status,
        "delta": finding.ratio - 1 if finding.ratio is not None else None,
        "delta_low": finding.low - 1 if finding.low is not None else None,
        "delta_high": finding.high - 1 if finding.high is not None else None,
        "nights": finding.nights,
        "what": finding.what,
        "last_good": _environment(finding.last_good),
        "first_bad": _environment(finding.first_bad),
        "changed": {package: list(pair) for package, pair in finding.changed.items()},
    }


def _suspect(findings: Sequence[Finding]) -> str | None:
    """Returns the package that changed in most findings; None if none changed."""
    counts = Counter(
        package for finding in findings for package in finding.changed if package != "revision"
    )
    return min(counts, key=lambda package: (-counts[package], package), default=None)


def _night(night: Occurrence | None) -> str:
    if night is None:
        return "unknown"
    revision = f", revision {_code(night.revision)}" if night.revision else ""
    run = f", run {_code(night.run_id)}" if night.run_id else ""
    return f"{night.time:%Y-%m-%d %H:%M} UTC{run}{revision}"


def _line(finding: Finding) -> str:
    if finding.ratio is None or finding.low is None or finding.high is None:
        size = _escaped(finding.what)
    else:
        size = (
            f"{finding.ratio - 1:+.1%} ({finding.low - 1:+.1%} to {finding.high - 1:+.1%}) "
            f"{finding.metric}, {digits(finding.before)} -> {digits(finding.after)}"
        )
    since = f"{finding.first_bad.time:%Y-%m-%d}"
    return f"{_code(finding.name)}: {size}, since {since}; {_code(changed_text(finding))}"


def _list(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- none"


def _code(text: str) -> str:
    """Returns text that Markdown leaves unchanged, including mentions."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _escaped(text: str) -> str:
    """Returns text from a file, escaped for the middle of a line."""
    return re.sub(r"([\\`*_{}\[\]<>#|@!])", r"\\\1", " ".join(text.split()))
