"""Where each workload and each machine stands in the roofline plot."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import attrs

from comparative_benchmark.report.inputs import Result, number, text
from comparative_benchmark.results.compare_samples import mapping
from comparative_benchmark.results.roofs import gpu_names, peak_type
from comparative_benchmark.roofline.ceilings import (
    Ceilings,
    accelerator_of,
    load_ceilings,
    share_of_roof,
)


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
        self._gpus = gpu_names(
            (result.case.run_id, result.case.device, _gpu_of(result)) for result in results
        )
        self._cpu = cache(load_ceilings)
        self._gpu = cache(lambda name: load_ceilings(gpu=name))

    def of(self, result: Result) -> Ceilings | None:
        """Returns those of the CPU or GPU of a result; None where they are not known."""
        accelerator = accelerator_of(result.case.device)
        if accelerator == "gpu":
            name = _gpu_of(result) or self._gpus.get((result.case.run_id, result.case.device))
            return self._gpu(name) if name else None
        threads, model = result.case.host.get("threads"), result.case.host.get("cpu_model")
        known = isinstance(threads, int) and isinstance(model, str)
        return self._cpu(threads, model) if known and accelerator == "cpu" else None

    def share(self, result: Result, cost: Cost | None, latency_ms: float) -> float | None:
        """Returns the share of the roof, see `share_of_roof`; None where it can not be told."""
        ceilings = self.of(result)
        if ceilings is None or cost is None:
            return None
        return share_of_roof(cost.flops, cost.bytes, latency_ms, ceilings, peak_of(result))


def peak_of(result: Result) -> str:
    """Returns the data type whose product rate a result is judged by."""
    return peak_type(result.case.data_type, mapping(result.case.metrics, "program"))


def as_json(ceilings: Ceilings) -> dict[str, Any]:
    """Returns what the plot needs: peaks in GFLOP/s by data type, bandwidth in GB/s."""
    peaks = {gemm.data_type: ceilings.best_gemm(gemm.data_type) for gemm in ceilings.gemms}
    copy = ceilings.best_copy()
    return {
        "peaks": {name: gemm.gflops for name, gemm in peaks.items() if gemm},
        "bandwidth": copy.gb_per_s if copy else None,
        "threads": ceilings.threads,
        "gpu": ceilings.gpu,
        "date": ceilings.date,
        "contended": ceilings.contended,
    }


def _gpu_of(result: Result) -> str | None:
    return text(mapping(result.case.metrics, "program"), "device_name")
