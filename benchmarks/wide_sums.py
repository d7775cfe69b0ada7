"""Measures the cost in XLA of the float32 sums that our 16-bit JAX models request.

Each model is compiled twice: unmodified, and with the type of sums left to the compiler. Their
blocks alternate. Errors are relative root mean squares against the float64 run of the same weights.
The models request float32 sums because of IREE, see `cbs parity` (docs/concepts/parity.md).

    python benchmarks/wide_sums.py [--rounds 15] [--quick]
"""

import argparse
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import numpy as np
from _timing import interleave, print_goal, print_table, ratio

from comparative_benchmark.backends.api import ModelDefinition
from comparative_benchmark.engine.worker.preparing import make_inputs
from comparative_benchmark.jax_xla.reference import compute
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.models.jax import layers
from openxla.benchmark.models.shared_model import as_tuple

GOAL = 1.03
_NAME = "models/(BERT_BASE_{0}_JAX_I32_SEQLEN128|RESNET50_{0}_JAX_.*BATCH1)/.*"
_QUICK = "models/(BERT|RESNET)_TINY_{0}_JAX_.*BATCH4/.*"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="try the script with tiny models")
    options = parser.parse_args()
    rows, worst = [], 0.0
    name = (_QUICK if options.quick else _NAME).format("(FP16|BF16)")
    for case in catalog.select(catalog.all_benchmarks(), name=name):
        definition = ModelDefinition.of(case.model)
        model = definition.create()
        inputs = make_inputs(model, case.input_data.name, [])
        truth, _ = compute(model, inputs)
        programs, errors = {}, {}
        for sums, inside in (("float32", nullcontext), ("compiler's", _sums_by_compiler)):
            with inside():
                # A new model, since JAX would reuse the trace of the other version.
                programs[sums] = _compiled(definition.create(), inputs)
            errors[sums] = _error(programs[sums](), truth)
        blocks = interleave(programs, rounds=options.rounds, iterations=5)
        found = ratio(blocks["float32"], blocks["compiler's"])
        worst = max(worst, found.median)
        rows.append([case.model.name, str(found), *(f"{error:.2e}" for error in errors.values())])
    print_table(["model", "time, float32 / compiler's", "error, float32", "compiler's"], rows)
    print_goal(f"at most {GOAL} x the time", met=worst <= GOAL, found=f"{worst:.3f}")


@contextmanager
def _sums_by_compiler() -> Any:
    requested = layers.wide
    layers.wide = lambda x: x.dtype
    try:
        yield
    finally:
        layers.wide = requested


def _compiled(model: Any, inputs: Any) -> Callable[[], Any]:
    arguments = jax.device_put((model.params, *inputs))
    program = jax.jit(model.apply).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def _error(outputs: Any, truth: Any) -> float:
    """Returns the largest relative root mean square error over the outputs."""
    pairs = zip(as_tuple(outputs), truth, strict=True)
    return max(
        float(np.sqrt(((np.asarray(o, np.float64) - t) ** 2).mean() / (t**2).mean()))
        for o, t in pairs
    )


if __name__ == "__main__":
    main()
