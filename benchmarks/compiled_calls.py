"""Measures the cost, per call and per process, of proving that compiled programs ran.

An empty function is called with and without a counter, in shuffled blocks. The result is the
first decile of the blocks, in which no other process had the CPU. For three networks, the added
time is compared with a compiled call. The pass that measures the share of compiled code is compared
with the ten seconds of a trial of one process.

    python benchmarks/compiled_calls.py [--rounds 200]
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from _timing import print_table
from _worker_trip import decile
from torch._inductor.compile_fx import compile_fx

from comparative_benchmark.pt_inductor.dynamo import DynamoCalls, measure_shares

_ITERATIONS = 200
_TRIAL_S = 10.0
# Width and layers: many modules with guards, a call of microseconds, a call of milliseconds.
_NETWORKS = ((32, 1), (32, 50), (1024, 8))


def network(width: int, layers: int) -> torch.nn.Module:
    """Returns linear layers for an input of [64, width]."""
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))


def call_ns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the time of a call in nanoseconds, by name."""
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    order = random.Random(0)  # an order, not a secret
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            call, start = calls[name], time.perf_counter_ns()
            for _ in range(_ITERATIONS):
                call()
            blocks[name].append((time.perf_counter_ns() - start) / _ITERATIONS)
    return {name: decile(values) for name, values in blocks.items()}


def main() -> None:
    """Prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    empty = DynamoCalls("Inductor")
    taken = call_ns({"bare": _nothing, "counted": empty.counted(_nothing)}, rounds)
    added_ns = taken["counted"] - taken["bare"]
    print(f"the counter adds {added_ns:.0f} ns to a call")
    rows = []
    for width, layers in _NETWORKS:
        x = torch.randn(64, width)
        calls = DynamoCalls("Inductor")

        def counting(graph: Any, inputs: Any, calls: DynamoCalls = calls) -> Any:
            return calls.counted(compile_fx(graph, inputs))

        compiled = partial(torch.compile(network(width, layers), backend=counting), x)
        for _ in range(20):
            compiled()
        call = call_ns({"counted": compiled}, max(3, rounds // 20))["counted"]
        start = time.perf_counter()
        measure_shares(calls, compiled, lambda: None)
        taken_s = time.perf_counter() - start
        rows.append(
            (
                f"{layers} x {width}",
                f"{call / 1e3:.1f} us",
                f"{added_ns / call:.2%}",
                f"{taken_s * 1e3:.0f} ms",
                f"{taken_s / _TRIAL_S:.1%}",
            )
        )
    print_table(("layers", "a call", "counter", "pass", "of a 10 s trial"), rows)


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
