"""Where each workload and each machine stands in the roofline plot."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.doctor.ceilings import Ceilings, load_ceilings, share_of_roof
from comparative_benchmark.report.inputs import Result, number
from comparative_benchmark.results.compare_samples import mapping
from openxla.benchmark import devices

_CPUS = {str(device) for device in devices.ALL_DEVICES if device.accelerator_type == "cpu"}


@attrs.frozen(kw_only=True)
class Cost:
    """What one iteration of a workload has to do, and who counted it.

    Attributes:
      bytes: of weights, inputs and outputs, each once.
    """

    flops: float
    bytes: float
    source: str


def costs(results: Iterable[Result]) -> dict[str, Cost]:
    """Returns the cost of each workload by its digest, where anyone counted it.

    As the tables have it: what was counted from the model, and where that is missing, what the
    first backend says of its own program.
    """
    counted: dict[str, Cost] = {}
    programs: dict[str, Cost] = {}
    for result in results:
        digest = result.case.workload
        cost = mapping(result.case.metrics, "workload_cost")
        flops, moved = number(cost, "flops"), number(cost, "bytes")
        if flops is not None and moved is not None:
            source = str(cost.get("flops_source") or "the model")
            counted.setdefault(digest, Cost(flops=flops, bytes=moved, source=source))
        program = mapping(result.case.metrics, "program")
        flops, moved = number(program, "flops"), number(program, "bytes_accessed")
        if flops and moved:
            source = f"the program of {result.case.competitor}"
            programs.setdefault(digest, Cost(flops=flops, bytes=moved, source=source))
    return programs | counted


class Roofs:
    """The ceilings of the machines that measured, as far as `cbs doctor --ceilings` kept them."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._found: dict[tuple[Any, Any], Ceilings | None] = {}
        for result in results:
            key = _key(result.case.host)
            if key not in self._found:
                threads, model = key
                known = isinstance(threads, int) and isinstance(model, str)
                self._found[key] = load_ceilings(threads, model) if known else None

    def of(self, result: Result) -> Ceilings | None:
        """Returns those of the machine of a result; None where not known, or not a CPU."""
        if result.case.device not in _CPUS:
            return None
        return self._found.get(_key(result.case.host))

    def share(self, result: Result, cost: Cost | None, latency_ms: float) -> float | None:
        """Returns the share of the roof, see `share_of_roof`; None where it can not be told."""
        ceilings = self.of(result)
        if ceilings is None or cost is None:
            return None
        return share_of_roof(cost.flops, cost.bytes, latency_ms, ceilings, result.case.data_type)


def as_json(ceilings: Ceilings) -> dict[str, Any]:
    """Returns what the plot needs: peaks in GFLOP/s by data type, bandwidth in GB/s."""
    peaks = {gemm.data_type: ceilings.best_gemm(gemm.data_type) for gemm in ceilings.gemms}
    copy = ceilings.best_copy()
    return {
        "peaks": {name: gemm.gflops for name, gemm in peaks.items() if gemm},
        "bandwidth": copy.gb_per_s if copy else None,
        "threads": ceilings.threads,
        "date": ceilings.date,
        "contended": ceilings.contended,
    }


def _key(host: Mapping[str, Any]) -> tuple[Any, Any]:
    return (host.get("threads"), host.get("cpu_model"))
