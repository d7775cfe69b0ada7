"""How close each result of a run comes to what the machine can do."""

from collections.abc import Callable, Sequence

from comparative_benchmark.doctor.ceilings import (
    Ceilings,
    CeilingsError,
    load_ceilings,
    measure_ceilings,
    save_ceilings,
    share_of_roof,
)
from comparative_benchmark.results.records import Record, metrics_of
from openxla.benchmark import devices

# Flops and bytes of an iteration.
_Cost = tuple[float, float]
_CPUS = {str(device) for device in devices.ALL_DEVICES if device.accelerator_type == "cpu"}


def ceilings_for(
    records: Sequence[Record],
    threads: int,
    *,
    measure: bool,
    say: Callable[[str], None],
) -> Ceilings | None:
    """Returns the machine's ceilings for results of that many threads; None where not known.

    Args:
      records: of a run; ceilings are of no use to those whose cost nobody counted.
      threads: of each worker.
      measure: whether to measure the ceilings, once and for all, where they never were. It takes
        about a minute, so a first look with fixed counts does without.
      say: told what is going on.
    """
    if not any(_is_judged(record, _costs(records)) for record in records):
        return None
    found = load_ceilings(threads)
    if found is not None:
        return found
    if not measure:
        say("no share of the roof: `cbs doctor --ceilings` measures this machine once")
        return None
    say("measuring what this machine can do, once (a minute) ...")
    try:
        found = measure_ceilings(threads)
        save_ceilings(found)
    except (CeilingsError, OSError) as error:
        say(f"no share of the roof: {error}")
    return found


def shares_of_roof(records: Sequence[Record], ceilings: Ceilings | None) -> list[str | None]:
    """Returns the share of the roof of each record as a text, as `share_of_roof` explains it.

    What an iteration has to do was counted once for each workload, when its truth was made; where
    it was not (older results), the first backend that counted its own program stands in. The
    ceilings are those of a CPU: results of other devices have no share.
    """
    costs = _costs(records)
    return [
        _share(record, costs, ceilings)
        if ceilings is not None and _is_judged(record, costs)
        else None
        for record in records
    ]


def _is_judged(record: Record, costs: dict[str, _Cost]) -> bool:
    definition = record["definition"]
    return (
        definition["device"] in _CPUS
        and definition["workload"]["digest"] in costs
        and metrics_of(record).get("median_latency_ms") is not None
    )


def _share(record: Record, costs: dict[str, _Cost], ceilings: Ceilings) -> str | None:
    definition = record["definition"]
    flops, moved = costs[definition["workload"]["digest"]]
    median = metrics_of(record)["median_latency_ms"]
    # A quantised program has another roof than its workload, and its ceiling is not measured.
    precision = definition.get("precision") or definition["data_type"]
    share = share_of_roof(flops, moved, median, ceilings, precision)
    if share is None:
        return None
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _costs(records: Sequence[Record]) -> dict[str, _Cost]:
    """Returns what an iteration has to do, by the digest of the workload."""
    found: dict[str, _Cost] = {}
    for record in sorted(records, key=lambda record: _cost_of(record) is None):
        program = metrics_of(record)["program"]
        own = (program.get("flops"), program.get("bytes_accessed"))
        cost = _cost_of(record) or (own if all(own) else None)
        if cost is not None:
            found.setdefault(record["definition"]["workload"]["digest"], cost)
    return found


def _cost_of(record: Record) -> _Cost | None:
    """Returns flops and bytes of an iteration as counted from the model; None if not known."""
    cost = metrics_of(record).get("workload_cost") or {}
    flops, moved = cost.get("flops"), cost.get("bytes")
    return None if flops is None or moved is None else (flops, moved)
