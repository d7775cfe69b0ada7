"""How close each result of a run comes to what the machine can do."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from comparative_benchmark.results.record import Host, Program, Result
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
    results: Sequence[Result],
    threads: int,
    *,
    measure: bool,
    say: Callable[[str], None],
) -> tuple[Ceilings, ...]:
    """Returns the ceilings of the devices of a run, as far as they are known.

    Args:
      results: of a run; ceilings are of no use to those whose cost nobody counted.
      threads: of each worker.
      measure: whether to measure the ceilings, once and for all, where they never were. It takes
        a minute or two, so a first look with fixed counts does without.
      say: told what is going on.
    """
    found: list[Ceilings] = []
    for place, device in _judged_places(results).items():
        known = load_ceilings(threads, gpu=place.gpu)
        if known is None and not measure:
            option = f" -device {device}" if place.gpu else ""
            say(f"no share of the roof: `cbs doctor --ceilings{option}` measures this machine once")
        elif known is None:
            known = _measure_once(device, place, threads, say)
        found += [known] if known else []
    return tuple(found)


def known_ceilings(results: Sequence[Result], host: Host) -> tuple[Ceilings, ...]:
    """Returns the ceilings that this machine has of the devices that measured, for a table.

    Args:
      results: of a results file.
      host: machine of the file; of its CPU by number of threads and model.
    """
    found = [
        load_ceilings(host.threads, host.cpu_model, gpu=place.gpu)
        for place in _judged_places(results)
    ]
    return tuple(ceilings for ceilings in found if ceilings)


def shares_of_roof(results: Sequence[Result], ceilings: Sequence[Ceilings]) -> list[str | None]:
    """Returns the share of the roof of each result as a text, as `share_of_roof` explains it.

    What an iteration has to do was counted once for each workload, when its truth was made; where
    it was not (older results), the first backend that counted its own program stands in. A record
    is judged by the ceilings of its CPU, or of the GPU of its name; where these are missing it has
    no share.
    """
    costs, gpus = _costs(results), _gpus(results)
    by_gpu = {one.gpu: one for one in ceilings}
    shares: list[str | None] = []
    for result in results:
        place = _place(result, gpus) if _is_judged(result, costs) else None
        own = by_gpu.get(place.gpu) if place else None
        shares.append(_share(result, costs, own) if own else None)
    return shares


def gpu_names(told: Iterable[tuple[str, str, str | None]]) -> dict[tuple[str, str], str]:
    """Returns the name of the GPU of each run and device, where its results agree on one.

    Not every backend can tell the name; in one run on one device all have the same.

    Args:
      told: run, device and name of the GPU of each result; the name is None where it is not known.
    """
    names: dict[tuple[str, str], set[str]] = {}
    for run, device, name in told:
        if name is not None and accelerator_of(device) == "gpu":
            names.setdefault((run, device), set()).add(name)
    return {key: found.pop() for key, found in names.items() if len(found) == 1}


def peak_type(precision: str, program: Program) -> str:
    """Returns the data type whose product rate a result is judged by.

    Args:
      precision: of the program; a quantised one has another roof than its workload.
      program: what the backend says of it; `tf32` in its notes tells that fp32 matrices were
        multiplied by TensorFloat-32 units.
    """
    return "tf32" if program.tf32 and precision == "fp32" else precision


def _judged_places(results: Sequence[Result]) -> dict[_Place, str]:
    """Returns where results were measured that ceilings are of use to, each with its device."""
    costs, gpus = _costs(results), _gpus(results)
    places: dict[_Place, str] = {}
    for result in results:
        place = _place(result, gpus) if _is_judged(result, costs) else None
        if place is not None:
            places.setdefault(place, result.definition.device)
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


def _gpus(results: Sequence[Result]) -> dict[tuple[str, str], str]:
    return gpu_names(
        (result.run_id, result.definition.device, result.measured.program.device_name)
        for result in results
    )


def _place(result: Result, gpus: Mapping[tuple[str, str], str]) -> _Place | None:
    """Returns where a result was measured; None where its GPU is not known."""
    device = result.definition.device
    if accelerator_of(device) == "cpu":
        return _Place(None)
    name = result.measured.program.device_name or gpus.get((result.run_id, device))
    return _Place(name) if name else None


def _is_judged(result: Result, costs: dict[str, _Cost]) -> bool:
    definition = result.definition
    return (
        accelerator_of(definition.device) is not None
        and definition.workload.digest in costs
        and result.measured.median_ms is not None
    )


def _share(result: Result, costs: dict[str, _Cost], ceilings: Ceilings) -> str | None:
    definition, metrics = result.definition, result.measured
    flops, moved = costs[definition.workload.digest]
    precision = definition.precision or definition.data_type or ""
    data_type = peak_type(precision, metrics.program)
    assert metrics.median_ms is not None
    share = share_of_roof(flops, moved, metrics.median_ms, ceilings, data_type)
    if share is None:
        return None
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _costs(results: Sequence[Result]) -> dict[str, _Cost]:
    """Returns what an iteration has to do, by the digest of the workload."""
    found: dict[str, _Cost] = {}
    for result in sorted(results, key=lambda result: _cost_of(result) is None):
        program = result.measured.program
        cost = _cost_of(result)
        if cost is None and program.flops and program.bytes_accessed:
            cost = (program.flops, program.bytes_accessed)
        if cost is not None:
            found.setdefault(result.definition.workload.digest, cost)
    return found


def _cost_of(result: Result) -> _Cost | None:
    """Returns flops and bytes of an iteration as counted from the model; None if not known."""
    cost = result.measured.workload_cost
    return None if cost.flops is None or cost.bytes is None else (cost.flops, cost.bytes)
