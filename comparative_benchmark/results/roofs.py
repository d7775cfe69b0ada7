"""How close each result of a run comes to what the machine can do."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.results.records import Record, metrics_of
from comparative_benchmark.roofline.ceilings import (
    Ceilings,
    CeilingsError,
    accelerator_of,
    load_ceilings,
    measure_ceilings,
    save_ceilings,
    share_of_roof,
)

# Flops and bytes of an iteration.
_Cost = tuple[float, float]


@attrs.frozen
class _Place:
    """Where a result was measured.

    Attributes:
      gpu: name of the GPU; None for a CPU.
    """

    gpu: str | None


def ceilings_for(
    records: Sequence[Record],
    threads: int,
    *,
    measure: bool,
    say: Callable[[str], None],
) -> tuple[Ceilings, ...]:
    """Returns the ceilings of the devices of a run, as far as they are known.

    Args:
      records: of a run; ceilings are of no use to those whose cost nobody counted.
      threads: of each worker.
      measure: whether to measure the ceilings, once and for all, where they never were. It takes
        a minute or two, so a first look with fixed counts does without.
      say: told what is going on.
    """
    found: list[Ceilings] = []
    for place, device in _judged_places(records).items():
        known = load_ceilings(threads, gpu=place.gpu)
        if known is None and not measure:
            option = f" -device {device}" if place.gpu else ""
            say(f"no share of the roof: `cbs doctor --ceilings{option}` measures this machine once")
        elif known is None:
            known = _measure_once(device, place, threads, say)
        found += [known] if known else []
    return tuple(found)


def known_ceilings(records: Sequence[Record], host: Mapping[str, Any]) -> tuple[Ceilings, ...]:
    """Returns the ceilings that this machine has of the devices that measured, for a table.

    Args:
      records: of a results file.
      host: machine of the file; of its CPU by number of threads and model.
    """
    found = [
        load_ceilings(host.get("threads"), host.get("cpu_model"), gpu=place.gpu)
        for place in _judged_places(records)
    ]
    return tuple(ceilings for ceilings in found if ceilings)


def shares_of_roof(records: Sequence[Record], ceilings: Sequence[Ceilings]) -> list[str | None]:
    """Returns the share of the roof of each record as a text, as `share_of_roof` explains it.

    What an iteration has to do was counted once for each workload, when its truth was made; where
    it was not (older results), the first backend that counted its own program stands in. A record
    is judged by the ceilings of its CPU, or of the GPU of its name; where these are missing it has
    no share.
    """
    costs, gpus = _costs(records), _gpus(records)
    by_gpu = {one.gpu: one for one in ceilings}
    shares: list[str | None] = []
    for record in records:
        place = _place(record, gpus) if _is_judged(record, costs) else None
        own = by_gpu.get(place.gpu) if place else None
        shares.append(_share(record, costs, own) if own else None)
    return shares


def gpu_names(told: Iterable[tuple[Any, Any, Any]]) -> dict[tuple[Any, Any], str]:
    """Returns the name of the GPU of each run and device, where its results agree on one.

    Not every backend can tell the name; in one run on one device all have the same.

    Args:
      told: run, device and name of the GPU of each result; the name is None where it is not known.
    """
    names: dict[tuple[Any, Any], set[str]] = {}
    for run, device, name in told:
        if isinstance(name, str) and accelerator_of(device) == "gpu":
            names.setdefault((run, device), set()).add(name)
    return {key: found.pop() for key, found in names.items() if len(found) == 1}


def peak_type(precision: str, program: Mapping[str, Any]) -> str:
    """Returns the data type whose product rate a result is judged by.

    Args:
      precision: of the program; a quantised one has another roof than its workload.
      program: what the backend says of it; `tf32` in its notes tells that fp32 matrices were
        multiplied by TensorFloat-32 units.
    """
    notes = program.get("notes")
    tf32 = isinstance(notes, Mapping) and notes.get("tf32") is True
    return "tf32" if tf32 and precision == "fp32" else precision


def _judged_places(records: Sequence[Record]) -> dict[_Place, str]:
    """Returns where records were measured that ceilings are of use to, each with its device."""
    costs, gpus = _costs(records), _gpus(records)
    places: dict[_Place, str] = {}
    for record in records:
        place = _place(record, gpus) if _is_judged(record, costs) else None
        if place is not None:
            places.setdefault(place, record["definition"]["device"])
    return places


def _measure_once(
    device: str, place: _Place, threads: int, say: Callable[[str], None]
) -> Ceilings | None:
    minutes = "two minutes" if place.gpu else "a minute"
    say(f"measuring what this machine can do, once ({minutes}) ...")
    try:
        found = measure_ceilings(threads, device=device)
        save_ceilings(found)
    except (CeilingsError, OSError) as error:
        say(f"no share of the roof: {error}")
        return None
    return found


def _gpus(records: Sequence[Record]) -> dict[tuple[Any, Any], str]:
    return gpu_names(
        (
            record.get("run_id"),
            record["definition"]["device"],
            metrics_of(record)["program"].get("device_name"),
        )
        for record in records
    )


def _place(record: Record, gpus: Mapping[tuple[Any, Any], str]) -> _Place | None:
    """Returns where a record was measured; None where its GPU is not known."""
    device = record["definition"]["device"]
    if accelerator_of(device) == "cpu":
        return _Place(None)
    own = metrics_of(record)["program"].get("device_name")
    name = own or gpus.get((record.get("run_id"), device))
    return _Place(name) if name else None


def _is_judged(record: Record, costs: dict[str, _Cost]) -> bool:
    definition = record["definition"]
    return (
        accelerator_of(definition["device"]) is not None
        and definition["workload"]["digest"] in costs
        and metrics_of(record).get("median_latency_ms") is not None
    )


def _share(record: Record, costs: dict[str, _Cost], ceilings: Ceilings) -> str | None:
    definition, metrics = record["definition"], metrics_of(record)
    flops, moved = costs[definition["workload"]["digest"]]
    precision = definition.get("precision") or definition["data_type"]
    data_type = peak_type(precision, metrics["program"])
    share = share_of_roof(flops, moved, metrics["median_latency_ms"], ceilings, data_type)
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
