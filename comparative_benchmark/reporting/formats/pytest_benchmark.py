"""pytest-benchmark's JSON, which its `compare` command and its dashboards read.

Each benchmark must have a time, so failures are in a separate list that its readers ignore. Times
are in seconds.
"""

import datetime
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from comparative_benchmark.reporting.formats.interface import (
    CARRIER,
    Exported,
    carried,
    json_file,
    one_run,
    remarks_on,
    unique,
)
from comparative_benchmark.reporting.history.rows import PortableResult

# The version of this layout; readers add the fields of later versions.
_VERSION = "5.0.0"


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the JSON of one run.

    Raises:
      FormatError: there are several runs, or duplicate names.
    """
    run_id = one_run(results, "a pytest-benchmark file")
    unique((_fullname(result) for result in results), "pytest-benchmark's JSON")
    timed = [result for result in results if result.samples_ms]
    host = next((result.host for result in results if result.host), {})
    timestamp = next((result.timestamp for result in results if result.timestamp), None)
    revision = next((result.git_revision for result in results if result.git_revision), None)
    document = {
        "machine_info": {
            "node": host.get("hostname") or "",
            "processor": host.get("architecture") or "",
            "machine": host.get("architecture") or "",
            "python_implementation": "CPython",
            "python_version": host.get("python") or "",
            "release": str(host.get("system") or "").partition(" ")[2],
            "system": str(host.get("system") or "").partition(" ")[0],
            "cpu": {"brand_raw": host.get("cpu_model") or "", "count": host.get("logical_cpus")},
        },
        "commit_info": {
            "id": (revision or "unversioned").removesuffix("-dirty"),
            "dirty": bool(revision and revision.endswith("-dirty")),
            "time": timestamp,
            "author_time": None,
            "project": "common-benchmark-suite",
            "branch": "(unknown)",
        },
        "benchmarks": [_benchmark(result) for result in timed],
        "datetime": timestamp or datetime.datetime.now(datetime.UTC).isoformat(),
        "version": _VERSION,
        CARRIER: carried(results) | {"run_id": run_id},
    }
    missing = len(results) - len(timed)
    return Exported(
        files={"": json_file(document)},
        remarks=remarks_on(
            results,
            "statistics pool the samples from all processes; estimates with intervals and "
            f"per-process samples are in {CARRIER!r}",
            *([f"results without samples, only in {CARRIER!r}: {missing}"] if missing else []),
        ),
    )


def _fullname(result: PortableResult) -> str:
    return f"{result.case}[{result.competitor}-{result.device}]"


def _benchmark(result: PortableResult) -> dict[str, Any]:
    return {
        "group": result.workload or result.case,
        "name": f"{result.model or result.case}[{result.competitor}]",
        "fullname": _fullname(result),
        "params": {"competitor": result.competitor, "device": result.device},
        "param": f"{result.competitor}-{result.device}",
        "extra_info": {"status": result.status, "run_id": result.run_id},
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": 1,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": _stats([value / 1e3 for process in result.samples_ms for value in process]),
    }


def _stats(data: Sequence[float]) -> dict[str, Any]:
    """Returns the statistics of samples in s, by pytest-benchmark's definitions."""
    ordered, rounds = sorted(data), len(data)
    mean, median = statistics.fmean(data), statistics.median(data)
    deviation = statistics.stdev(data) if rounds > 1 else 0.0
    q1, q3 = _quartiles(ordered)
    iqr = q3 - q1
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    beyond_iqr = sum(not low <= value <= high for value in data)
    beyond_deviation = sum(abs(value - mean) > deviation for value in data)
    total = math.fsum(data)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": rounds,
        "median": median,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": beyond_iqr,
        "stddev_outliers": beyond_deviation,
        "outliers": f"{beyond_deviation};{beyond_iqr}",
        "ld15iqr": ordered[min(bisect_left(ordered, low), rounds - 1)],
        "hd15iqr": ordered[max(bisect_right(ordered, high) - 1, 0)],
        "ops": rounds / total if total else 0.0,
        "total": total,
        "data": list(data),
        "iterations": 1,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Returns the quartiles by methods 2 and 3 of Wikipedia's list, as readers expect.

    For an even count, the medians of both halves; for an odd one, the weighted neighbours.
    """
    rounds = len(ordered)
    if rounds == 1:
        return ordered[0], ordered[0]
    if rounds % 2 == 0:
        half = rounds // 2
        return statistics.median(ordered[:half]), statistics.median(ordered[half:])
    n, rest = divmod(rounds, 4)
    if rest == 1:
        return (
            0.25 * ordered[n - 1] + 0.75 * ordered[n],
            0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1],
        )
    return (
        0.75 * ordered[n] + 0.25 * ordered[n + 1],
        0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2],
    )
