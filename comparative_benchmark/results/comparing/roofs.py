"""How close results come to the limits of the machine."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import attrs

from comparative_benchmark.analysis.roofline.ceilings import (
    ACCELERATORS,
    Ceilings,
    CeilingsError,
    complete_ceilings,
    load_ceilings,
    measure_ceilings,
    save_ceilings,
    share_of_roof,
)
from comparative_benchmark.backends.recipes import RecipeError, parse
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Host, Result
from openxla.benchmark.models.architectures.base import DATA_TYPES

# Data types of the products in LiteRT's precisions; recipes define their own.
_PRODUCTS = {"int8": "int8", "dynamic-range": "int8", "fp16-weights": "fp32"}


@attrs.frozen(kw_only=True)
class Cost:
    """Work of one iteration of a workload, and its source.

    Attributes:
      bytes: size of weights, inputs and outputs, each counted once.
    """

    flops: float
    bytes: float
    source: str


@attrs.frozen
class Place:
    """Device that a result was measured on.

    Attributes:
      gpu: name of the GPU; None for a CPU.
    """

    gpu: str | None


class Roofs:
    """Cost and place of results.

    The cost of an iteration is counted once per workload, when its truth is computed. If it is
    missing (older results), the cost of the first backend that counted its own program is used. Not
    every backend reports the name of its GPU, but all results of one run on one device share it.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        counted: dict[str, Cost] = {}
        programs: dict[str, Cost] = {}
        gpus: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for result in results:
            definition, metrics = result.definition, result.measured
            cost, program = metrics.workload_cost, metrics.program
            if cost.flops is not None and cost.bytes is not None:
                source = cost.flops_source or "the model"
                total = Cost(flops=cost.flops, bytes=cost.bytes, source=source)
                counted.setdefault(definition.workload.digest, total)
            if program.flops and program.bytes_accessed:
                source = f"{definition.competitor}'s program"
                total = Cost(flops=program.flops, bytes=program.bytes_accessed, source=source)
                programs.setdefault(definition.workload.digest, total)
            if program.device_name is not None:
                gpus[result.run_id, definition.device].add(program.device_name)
        self._costs = programs | counted
        self._gpus = {key: next(iter(names)) for key, names in gpus.items() if len(names) == 1}

    def cost(self, result: Result) -> Cost | None:
        """Returns the cost of the result's workload; None if unknown."""
        return self._costs.get(result.definition.workload.digest)

    def place(self, result: Result) -> Place | None:
        """Returns where a result was measured; None if its GPU is unknown."""
        device = result.definition.device
        accelerator = ACCELERATORS.get(device)
        name = result.measured.program.device_name or self._gpus.get((result.run_id, device))
        if accelerator == "gpu" and name:
            return Place(name)
        return Place(None) if accelerator == "cpu" else None

    def share(self, result: Result, latency_ms: float, ceilings: Ceilings) -> float | None:
        """Returns the share of the roof, see `share_of_roof`; None if unknown."""
        cost = self.cost(result)
        if cost is None:
            return None
        moved = max(cost.bytes - _bytes_spared(result), 0)
        return share_of_roof(cost.flops, moved, latency_ms, ceilings, peak_type(result))


def ceilings_for(
    results: Sequence[Result], threads: int, *, measure: bool, say: Callable[[str], None]
) -> tuple[Ceilings, ...]:
    """Returns the known ceilings of the devices of a run.

    Args:
      results: results of a run; ceilings are loaded only for those with known cost.
      threads: number of threads per worker.
      measure: whether to measure ceilings that are missing or exceeded by a result. This takes a
        minute or two, so quick runs with fixed counts omit it.
      say: called with progress messages.
    """
    ceilings: list[Ceilings] = []
    for place, device in _judged_places(results).items():
        known = load_ceilings(threads, gpu=place.gpu)
        if known is None and not measure:
            option = _device_option(device, place)
            say(f"roof shares are unknown; run `cbs doctor --ceilings{option}` on this machine")
        elif known is None:
            known = _measure_once(device, place, threads, say)
        else:
            if measure:
                known = _completed(known, results, say)
            if above := sum((share or 0.0) > 1 for share in _shares(results, [known])):
                busy = " on a busy machine" if known.contended else ""
                say(
                    f"results above the roof: {above}; the ceilings measured on "
                    f"{known.date}{busy} are too low"
                )
                # Ceilings of a quiet machine would not change.
                if measure and known.contended is not False:
                    known = _measure_once(device, place, threads, say, why="again") or known
                else:
                    option = _device_option(device, place)
                    say(f"run `cbs doctor --ceilings{option}` to measure them again")
        ceilings += [known] if known else []
    return tuple(ceilings)


def known_ceilings(results: Sequence[Result], host: Host) -> tuple[Ceilings, ...]:
    """Returns this machine's stored ceilings for the devices of a results file.

    Args:
      results: results of the file.
      host: machine of the file, which determines CPU model and number of threads.
    """
    stored = [
        load_ceilings(host.threads, host.cpu_model or host.architecture, gpu=place.gpu)
        for place in _judged_places(results)
    ]
    return tuple(ceilings for ceilings in stored if ceilings)


def ceilings_of(case: Case, results: Sequence[Result]) -> Ceilings | None:
    """Returns this machine's stored ceilings for the device of a case, if any.

    Args:
      case: the case with its run.
      results: results of its file, which may contain the name of the GPU.
    """
    place, host = Roofs(results).place(case.result), case.host
    if place is None or host is None or not (place.gpu or host.cpu_model):
        return None
    return load_ceilings(host.threads, host.cpu_model, gpu=place.gpu)


def shares_of_roof(results: Sequence[Result], ceilings: Sequence[Ceilings]) -> list[str | None]:
    """Returns the share of the roof of each result as text.

    A result is compared with the ceilings of its CPU or GPU; None if they are missing.
    """
    return [
        None if share is None else f"{share:{'.0%' if share >= 0.1 else '.1%'}}"
        for share in _shares(results, ceilings)
    ]


def _shares(results: Sequence[Result], ceilings: Sequence[Ceilings]) -> list[float | None]:
    roofs = Roofs(results)
    by_place = {Place(one.gpu): one for one in ceilings}
    shares = []
    for result in results:
        place, median_ms = roofs.place(result), result.measured.median_ms
        own = by_place.get(place) if place else None
        shares.append(roofs.share(result, median_ms, own) if own and median_ms else None)
    return shares


def peak_type(result: Result) -> str:
    """Returns the data type whose product rate applies to a result.

    This is the type of the multiplied factors: the narrow type if a recipe or compiler quantises
    both factors, the model's type if only the weights are quantised. fp32 matrices multiplied by
    TensorFloat-32 units have the type tf32.
    """
    data_type, definition = Case(result=result).data_type, result.definition
    wide = definition.data_type or definition.workload.data_type or data_type
    if data_type not in DATA_TYPES:
        data_type = _PRODUCTS.get(data_type) or _products_of(data_type) or wide
    return "tf32" if data_type == "fp32" and result.measured.program.tf32 else data_type


def _products_of(precision: str) -> str | None:
    """Returns the product type of a recipe; None for the model's type or an unknown recipe."""
    try:
        return parse(precision).recipe.products
    except RecipeError:
        return None


def _bytes_spared(result: Result) -> float:
    """Returns the bytes saved by a recipe's weights; each weight is read once."""
    applied = result.measured.program.notes.get("recipe")
    if not isinstance(applied, Mapping):
        return 0
    before, after = (applied.get(f"bytes_{when}") for when in ("before", "after"))
    return before - after if isinstance(before, int) and isinstance(after, int) else 0


def _judged_places(results: Sequence[Result]) -> dict[Place, str]:
    """Returns the places, each with its device, of results that need ceilings."""
    roofs = Roofs(results)
    places: dict[Place, str] = {}
    for result in results:
        place = roofs.place(result)
        if place and roofs.cost(result) and result.measured.median_ms:
            places.setdefault(place, result.definition.device)
    return places


def _device_option(device: str, place: Place) -> str:
    return f" -device {device}" if place.gpu else ""


def _completed(known: Ceilings, results: Sequence[Result], say: Callable[[str], None]) -> Ceilings:
    """Measures and stores the ceilings that results need and an older file lacks."""
    if not known.unmeasured(map(peak_type, results)):
        return known
    completed = complete_ceilings(known, say)
    if completed is not known:
        try:
            save_ceilings(completed)
        except OSError as error:
            say(f"the ceilings cannot be saved: {error}")
    return completed


def _measure_once(
    device: str, place: Place, threads: int, say: Callable[[str], None], why: str = "once"
) -> Ceilings | None:
    minutes = "two minutes" if place.gpu else "a minute"
    say(f"measuring this machine's ceilings {why} (about {minutes}) ...")
    try:
        ceilings = measure_ceilings(threads, device=device)
        save_ceilings(ceilings)
    except (CeilingsError, OSError) as error:
        say(f"roof shares are unknown: {error}")
        return None
    return ceilings
