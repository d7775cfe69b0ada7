"""Writes made-up results for operators over shapes and for recipes, as `cbs micro run` would.

The page, its tests and the history need many results, and real ones would take hours. The figures
are not measurements of any compiler.

    python benchmarks/_made_operators.py OUTPUT.json [--powers 4-10] [--night N] [--slower]
"""

import argparse
import datetime
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import _made_results as made
import attrs
import numpy as np

Json = dict[str, Any]
Shape = tuple[int, ...]


@attrs.frozen
class _Stack:
    """A competitor: its speed-up over eager for large products, and the overhead of a call."""

    name: str
    framework: str
    level: str
    gain: float
    dispatch_ms: float
    compile_s: float = 0.0

    @property
    def runner(self) -> tuple[str, str, str, float, float]:
        return (self.name, self.framework, self.level, self.gain, self.compile_s)


_EAGER = _Stack("pt_inductor:eager", "PYTORCH", "framework_level", 1.0, 0.005)
_OPENVINO = _Stack("openvino:latency", "PYTORCH", "framework_level", 1.25, 0.006, 0.4)
_STACKS = (
    _EAGER,
    _Stack("pt_inductor:inductor", "PYTORCH", "framework_level", 1.2, 0.008, 6.0),
    _Stack("jax_xla:xla", "JAX", "framework_level", 1.01, 0.02, 0.4),
    _Stack("iree:llvm-cpu", "JAX", "compiler_level", 0.6, 0.012, 1.0),
    _OPENVINO,
)
# Stack, recipe, its gain over the stack, signal in dB, share of the bytes left.
_RECIPES = (
    (_EAGER, "int8wo", 0.8, 46.0, 0.26),
    (_EAGER, "int8dq", 1.7, 41.0, 0.26),
    (_EAGER, "intx-4-32", 0.6, 22.0, 0.16),
    (_EAGER, "int4wo-64", 1.9, 21.0, 0.15),
    (_OPENVINO, "int8wo", 1.1, 44.0, 0.27),
)
# The dimensions of each operator.
_OPERATORS = {"matmul": "mkn", "linear": "mkn", "softmax": "mk"}
# Changes that `--slower` adds: competitor, operator, and which of its shapes.
PLANTED = (("jax_xla:xla", "matmul", 3), ("pt_inductor:eager+int8wo", "linear", 2))


@attrs.frozen
class _Night:
    number: int
    slower: bool
    run_id: str
    noise: np.random.Generator

    def records(self, powers: Sequence[int]) -> Iterator[Json]:
        cubes = itertools.combinations_with_replacement([2**power for power in powers], 3)
        shapes = list(cubes)
        for (operator, uses), data_type in itertools.product(_OPERATORS.items(), ("fp32", "fp16")):
            used = [
                tuple(s if x in uses else 1 for s, x in zip(shape, "mkn", strict=True))
                for shape in shapes
            ]
            for number, shape in enumerate(dict.fromkeys(used)):
                for stack in _STACKS:
                    yield self._record(operator, data_type, shape, stack, number)
                if (operator, data_type) == ("linear", "fp32"):
                    for stack, recipe, gain, signal, left in _RECIPES:
                        record = self._record(
                            operator,
                            data_type,
                            shape,
                            attrs.evolve(
                                stack, name=f"{stack.name}+{recipe}", gain=stack.gain * gain
                            ),
                            number,
                        )
                        yield _with_recipe(record, recipe, signal, left, shape)

    def _record(
        self, operator: str, data_type: str, shape: Shape, stack: _Stack, number: int
    ) -> Json:
        m, k, n = shape
        flops, size = 2.0 * m * k * n, 2.0 * (m * k + k * n + m * n)
        rate = made.RATES[data_type]
        latency_ms = stack.dispatch_ms + 1e3 * flops / rate / stack.gain
        if self.slower and (stack.name, operator, number) in PLANTED and data_type == "fp32":
            latency_ms *= 1.3
        status = "ok"
        if stack.name.startswith("iree") and data_type == "fp16":
            status = "wrong_output" if operator == "matmul" else "unsupported"
        return made.record_of(
            stack.runner,
            _definition(operator, data_type, shape, stack),
            self.run_id,
            status,
            latency_ms * float(np.exp(0.004 * self.noise.standard_normal())),
            (flops, size),
            self.noise,
            self.number,
        )


def document(powers: Sequence[int], *, night: int = 0, slower: bool = False) -> Json:
    """Returns a results document of matmul and linear, with recipes, and softmax.

    Args:
      powers: exponents of two for m, k and n, which do not decrease from m to n.
      night: number of the night; determines noise, date and package versions.
      slower: whether the cases in `PLANTED` take 30 % longer.
    """
    run = made.run_of((made.NOON + datetime.timedelta(days=night)).isoformat(), night)
    noise = np.random.default_rng([17, night])
    records = _Night(night, slower, run["run_id"], noise).records(powers)
    return {
        "schema_version": 1,
        "trigger": run["trigger"],
        "execution_environment": run["execution_environment"],
        "runs": [run],
        "benchmarks": list(records),
    }


def _definition(operator: str, data_type: str, shape: Shape, stack: _Stack) -> Json:
    sizes = "x".join(str(size) for size in shape if size > 1)
    label = f"{operator}-{data_type}-{sizes}"
    found = made.definition_of(stack.runner, operator, label, data_type, 1, 1, ("operator",))
    short = {"PYTORCH": "PT", "JAX": "JAX"}[stack.framework]
    model = f"{operator}_{data_type}_{short}_{'x'.join(map(str, shape))}".upper()
    found["workload"]["architecture"] = "operator/1"
    return {
        **found,
        "benchmark_name": f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT",
        "model": model,
        "batch_size": None,
        "tags": ["operator"],
        "model_parameters": {
            "model_name": operator,
            "data_type": data_type,
            **dict(zip("mkn", shape, strict=True)),
        },
    }


def _with_recipe(record: Json, recipe: str, signal: float, left: float, shape: Shape) -> Json:
    """Returns a record with a recipe: its types, share of bytes left, and signal-to-noise ratio."""
    record["definition"] |= {"precision": recipe, "options": [recipe]}
    [metrics] = record["metrics"].values()
    held = 4 * shape[1] * shape[2]
    applied = {"bytes_before": held, "bytes_after": int(held * left), "layers": 1, "linear": 1}
    metrics["program"]["notes"] = {"recipe": applied}
    # Long sums reduce the signal slightly.
    kept = signal - 0.3 * float(np.log2(shape[1]))
    for name in ("verification", "final_verification"):
        metrics[name] = {
            **metrics[name],
            "sqnr_db": round(kept, 2),
            "relative_rmse": 10 ** (-kept / 20),
        }
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--powers", default="4-10", help="smallest and largest exponent of two")
    parser.add_argument("--night", type=int, default=0)
    parser.add_argument("--slower", action="store_true", help="add slow-downs")
    options = parser.parse_args()
    low, high = map(int, options.powers.split("-"))
    made_up = document(range(low, high + 1), night=options.night, slower=options.slower)
    options.output.write_text(json.dumps(made_up), encoding="utf-8")


if __name__ == "__main__":
    main()
