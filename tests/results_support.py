"""Results files for tests: those that the suite once wrote, and others made from them."""

import copy
import functools
import json
import lzma
from pathlib import Path
from typing import Any

from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.codec import decode_document
from comparative_benchmark.results.record import Document

FOLDER = Path(__file__).parent / "data" / "results"
# Oldest first.
AGES = (
    *("first-fixed", "races-fixed", "workload-cost-fixed", "workload-cost-race"),
    *("profiles-fixed", "compile-processes-fixed", "gpu-check-fixed", "gpu-check-race"),
)
LATEST = "gpu-check-race"


@functools.cache
def content_of(age: str) -> bytes:
    """Returns a file of that age."""
    return lzma.decompress((FOLDER / f"{age}.json.xz").read_bytes())


def plain_document(age: str = LATEST) -> dict[str, Any]:
    """Returns a file of that age as dictionaries and lists, to be changed at will."""
    return json.loads(content_of(age))


def write(path: Path, age: str = LATEST) -> Path:
    """Writes a file of that age."""
    path.write_bytes(content_of(age))
    return path


def decoded(plain: dict[str, Any]) -> Document:
    """Returns dictionaries and lists as a document, by way of its JSON."""
    return decode_document(json.dumps(plain).encode(), "a test's document")


def cases(*records: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> list[Case]:
    """Returns records as cases of the run that they name, or of the latest file's."""
    return cases_of(document(*records, runs=runs))


def document(*records: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> Document:
    """Returns a document of records; runs that they name and `runs` lacks are copies of one."""
    return decoded(plain(*records, runs=runs))


def plain(*records: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """As `document`, as dictionaries and lists."""
    base = plain_document()
    [usual] = base["runs"][:1]
    known = {run["run_id"]: run for run in runs or []}
    for record in records:
        known.setdefault(record["run_id"], usual | {"run_id": record["run_id"]})
    base["runs"] = list(known.values()) or [usual]
    base["benchmarks"] = list(records)
    return base


def record(
    competitor: str = "jax_xla:xla",
    processes: list[list[float]] | None = None,
    *,
    run_id: str = "run",
    framework: str = "JAX",
    status: str = "ok",
    workload: str = "a",
    race: str | None = None,
    rounds: bool = True,
    **metrics: Any,
) -> dict[str, Any]:
    """Returns a valid record as the program writes it.

    Args:
      competitor: `backend:compiler`.
      processes: latencies of each process; each sample is a block of its own if `rounds`.
      run_id: of its run.
      framework: of the model.
      status: how it ended; one that is not `ok` has no latencies.
      workload: a character that stands for its digest.
      race: identifier of its race.
      rounds: whether samples are rounds, which may be paired.
      metrics: what differs in the metrics.
    """
    found = copy.deepcopy(plain_document()["benchmarks"][0])
    backend, _, compiler = competitor.partition(":")
    definition = found["definition"]
    definition |= {"backend": backend, "compiler": compiler}
    definition["framework"] = f"ModelFrameworkType.{framework}"
    definition["workload"] |= {"digest": workload * 64, "label": f"workload-{workload}"}
    found |= {"run_id": run_id, "status": status}
    [level] = found["metrics"]
    values = found["metrics"][level]
    if status == "ok":
        processes = processes or [[1.0, 1.0, 1.0]] * 3
        values |= {"race": {"interleaved": True, "seed": 0, **({"id": race} if race else {})}}
        values["latencies_ms"] = [sample for process in processes for sample in process]
        values["processes"] = [_process(samples, rounds=rounds) for samples in processes]
    else:
        for name in [name for name in values if "latenc" in name or name == "dispatch_ms"]:
            del values[name]
        del values["processes"]
        values["error"] = f"{status} in compile: a reason"
        found |= {"phase": "compile", "reason": "a reason", "traceback": None}
    values |= metrics
    return found


def _process(samples: list[float], *, rounds: bool) -> dict[str, Any]:
    groups = [[sample] for sample in samples] if rounds else [samples]
    blocks = [
        {"round": index if rounds else None, "latencies_ms": group, "contended": False}
        for index, group in enumerate(groups)
    ]
    return {"blocks": blocks, "warmup_iterations": 0}
