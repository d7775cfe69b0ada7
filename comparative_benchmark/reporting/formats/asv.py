"""The results folder of airspeed velocity (asv), version 2, for `asv publish`.

`benchmarks.json` names the benchmarks, `<machine>/machine.json` the machine, and
`<machine>/<revision>-<environment>.json` holds the results of one revision there. A benchmark is a
workload, its parameter the competitor. Times are in seconds; failures are null, as in asv.
"""

import hashlib
import re
import statistics
from collections.abc import Mapping, Sequence
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
from comparative_benchmark.reporting.history.rows import FormatError, PortableResult, zoned_time

API_VERSION = 2
COLUMNS = (
    *("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"),
    *("stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"),
)
_PREFIX = "comparative_suite"
_NO_REVISION = "0" * 40


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the files of one run.

    Raises:
      FormatError: there are several runs, no results, or duplicate names.
    """
    run_id = one_run(results, "an asv results file")
    unique((f"{result.case} {_parameter(result)}" for result in results), "asv's results")
    if not results:
        raise FormatError("an asv results file needs at least one result")
    host = next((result.host for result in results if result.host), {})
    machine = _file_name(str(host.get("hostname") or "unknown-machine"))
    revision, dirty = _revision(results)
    environment = _environment(results)
    groups: dict[str, list[PortableResult]] = {}
    for result in results:
        groups.setdefault(result.case, []).append(result)
    unique(map(_benchmark, groups), "asv's benchmarks")
    document = {
        "commit_hash": revision,
        "env_name": environment,
        "date": _milliseconds(results),
        "params": {**_machine(machine, host), "python": _python(host)},
        "python": _python(host),
        "requirements": _requirements(results),
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": {_benchmark(case): _row(case, group) for case, group in groups.items()},
        "durations": {},
        "version": API_VERSION,
        CARRIER: carried(results) | {"run_id": run_id},
    }
    benchmarks = {
        _benchmark(case): _description(case, group) for case, group in sorted(groups.items())
    }
    held = [
        (
            f"per-process samples, 95 % intervals and statuses are in {CARRIER!r}; asv's "
            "columns contain pooled samples and quartiles"
        )
    ]
    if revision == _NO_REVISION:
        held.append("the git revision is unknown, so asv cannot find the commit (all zeros)")
    if dirty:
        held.append(f"the checkout had uncommitted changes on top of {revision[:8]}")
    return Exported(
        files={
            "benchmarks.json": json_file({**benchmarks, "version": API_VERSION}),
            f"{machine}/machine.json": json_file({**_machine(machine, host), "version": 1}),
            f"{machine}/{revision[:8]}-{environment}.json": json_file(document),
        },
        remarks=remarks_on(results, *held),
        merge=_merged,
    )


def _merged(known: Any, new: Any, name: str = "") -> Any:
    """Returns the content of a file after another export: a folder of asv collects runs.

    A benchmark has the parameters of all runs, and the latest result of each revision.
    """
    if isinstance(known, dict) and isinstance(new, dict):
        return known | {key: _merged(known.get(key), value, key) for key, value in new.items()}
    if name == "params" and isinstance(known, list):
        return [list(dict.fromkeys([*old, *added])) for old, added in zip(known, new)]
    return new


def _parameter(result: PortableResult) -> str:
    return f"{result.competitor} {result.device}"


def _benchmark(case: str) -> str:
    # asv splits a dotted name into module, class and function; `time_` is its prefix for times.
    return f"{_PREFIX}.time_{re.sub(r'[^0-9A-Za-z]+', '_', case).strip('_')}"


def _row(case: str, results: Sequence[PortableResult]) -> list[Any]:
    pooled = [
        [value / 1e3 for process in result.samples_ms for value in process] for result in results
    ]
    quartiles = [
        statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else None
        for samples in pooled
    ]
    values = {
        "result": [
            None if result.latency_ms is None else result.latency_ms / 1e3 for result in results
        ],
        "params": [[repr(_parameter(result)) for result in results]],
        "version": _version(case),
        "started_at": _milliseconds(results),
        "duration": sum(result.wall_s or 0.0 for result in results),
        # The column is for 99 % intervals, and the suite computes 95 %.
        "stats_ci_99_a": None,
        "stats_ci_99_b": None,
        "stats_q_25": [cuts[0] if cuts else None for cuts in quartiles],
        "stats_q_75": [cuts[2] if cuts else None for cuts in quartiles],
        "stats_number": [1 if samples else None for samples in pooled],
        "stats_repeat": [len(samples) or None for samples in pooled],
        "samples": [samples or None for samples in pooled],
        "profile": None,
    }
    row = [_compressed(name, values[name]) for name in COLUMNS]
    while row and row[-1] is None:
        row.pop()
    return row


def _compressed(name: str, value: Any) -> Any:
    is_empty = isinstance(value, list) and all(item is None for item in value)
    return None if is_empty and name != "params" else value


def _description(case: str, results: Sequence[PortableResult]) -> dict[str, Any]:
    return {
        "code": case,
        "name": _benchmark(case),
        "param_names": ["competitor"],
        "params": [[repr(_parameter(result)) for result in results]],
        "timeout": 60.0,
        "type": "time",
        "unit": "seconds",
        "version": _version(case),
        "min_run_count": 1,
        "number": 0,
        "repeat": 0,
        "rounds": 1,
        "sample_time": 0.0,
        "warmup_time": -1,
    }


def _version(case: str) -> str:
    return hashlib.sha256(case.encode()).hexdigest()


def _revision(results: Sequence[PortableResult]) -> tuple[str, bool]:
    recorded = next((result.git_revision for result in results if result.git_revision), None)
    if recorded is None:
        return _NO_REVISION, False
    revision = recorded.removesuffix("-dirty")
    if not re.fullmatch(r"[0-9a-f]{8,64}", revision):
        return _NO_REVISION, False
    return revision, recorded.endswith("-dirty")


def _machine(name: str, host: Mapping[str, Any]) -> dict[str, str]:
    memory = host.get("memory_bytes")
    return {
        "machine": name,
        "os": str(host.get("system") or ""),
        "arch": str(host.get("architecture") or ""),
        "cpu": str(host.get("cpu_model") or ""),
        "num_cpu": str(host.get("logical_cpus") or ""),
        "ram": str(memory // 1024) if isinstance(memory, int) else "",
    }


def _python(host: Mapping[str, Any]) -> str:
    return ".".join(str(host.get("python") or "0.0").split(".")[:2])


def _requirements(results: Sequence[PortableResult]) -> dict[str, str]:
    packages: dict[str, set[str]] = {}
    for result in results:
        for name, version in result.versions.items():
            packages.setdefault(name, set()).add(version)
    # One value per name: raced environments have several.
    return {name: ",".join(sorted(versions)) for name, versions in sorted(packages.items())}


def _environment(results: Sequence[PortableResult]) -> str:
    text = "-".join(f"{name}{version}" for name, version in _requirements(results).items())
    # Like asv for names that are too long for a file.
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return _file_name(text) if text and len(text) < 100 else f"env-{digest}"


def _file_name(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z._+-]+", "_", text).lstrip(".") or "_"


def _milliseconds(results: Sequence[PortableResult]) -> int:
    """Returns the start of the run in ms since 1970."""
    timestamp = next((result.timestamp for result in results if result.timestamp), None)
    moment = zoned_time(timestamp)
    return int(moment.timestamp() * 1000) if moment else 0
