"""Our JAX models beside KerasHub's and beside plain jax.numpy, as compiled executables.

BERT-base (float32, sequence of 128, batch 1) and ResNet-50 (float32, 224 x 224, batch 1), each:
- ours: flax.nnx, as `openxla.benchmark.models.jax` has it;
- plain: the same network written out on a dict of arrays, no layers and no library;
- KerasHub on its JAX backend, where it is installed.
All three take the weights of the same checkpoint as arguments and are compiled ahead of time, so
that only executables are timed. Outputs are compared first. Blocks alternate in shuffled order.

    python benchmarks/jax_models.py [--rounds 15] [--quick]

KerasHub brings TensorFlow, so it wants an environment of its own; from the checkout:
    python -m venv DIR && . DIR/bin/activate && pip install torch==2.13.0
    pip install jax==0.10.2 flax==0.12.8 keras==3.15.1 keras-hub==0.32.0 tensorflow==2.21.0 \
        tf-keras==2.21.0 safetensors attrs numpy pillow tokenizers ml_dtypes
    pip install --no-deps -e .
"""

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _keras_hub import keras_bert, keras_resnet
from _plain_jax import arrays, plain_bert, plain_resnet
from _timing import Ratio, interleave, print_goal, print_table, ratio

from openxla.benchmark.models.jax.bert import bert_model
from openxla.benchmark.models.jax.resnet import resnet_model

GOAL = 1.05
Program = tuple[Callable[..., Any], Any, Sequence[jax.Array]]  # function, weights, inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each (default 15)")
    parser.add_argument("--quick", action="store_true", help="tiny models, to try the script")
    options = parser.parse_args()
    quick = options.quick
    bert = bert_model.create_model(
        seq_len=32 if quick else 128, model_name="bert-tiny" if quick else "bert-base-uncased"
    )
    resnet = resnet_model.create_model(model_name="resnet-tiny" if quick else "microsoft/resnet-50")
    with_keras = importlib.util.find_spec("keras_hub") is not None
    if not with_keras:
        print("KerasHub is not installed here and left out; this file says how to install it")
    slowdowns = []
    for model, plain, keras in (
        (bert, plain_bert, keras_bert),
        (resnet, plain_resnet, keras_resnet),
    ):
        inputs = [jnp.asarray(value) for value in model.preprocess(model.generate_default_inputs())]
        programs: dict[str, Program] = {
            "ours": (model.apply, model.params, inputs),
            "plain": (plain(model), arrays(model), inputs),
        }
        # KerasHub has no ResNet as narrow as our tiny one.
        if with_keras and not (quick and model is resnet):
            programs["KerasHub"] = keras(model, inputs)
        slowdowns.append(_race(str(model.model_parameters["model_name"]), programs, options.rounds))
    met = all(slowdown.median <= GOAL for slowdown in slowdowns)
    what = "tiny models, which the goal is not about: ours" if quick else "ours"
    print_goal(f"{what} <= {GOAL} x the fastest", met=met)


def _race(title: str, programs: Mapping[str, Program], rounds: int) -> Ratio:
    """Compares outputs, then times; returns how much slower ours is than the fastest other."""
    calls, outputs = {}, {}
    for name, (function, weights, inputs) in programs.items():
        compiled = jax.jit(function).lower(weights, *inputs).compile()
        calls[name] = _bind(compiled, weights, inputs)
        outputs[name] = np.asarray(calls[name]())
    times = interleave(calls, rounds=rounds, iterations=10)
    ours = times["ours"]
    rows = [
        [
            name,
            f"{np.abs(outputs[name] - outputs['ours']).max():.1e}",
            f"{statistics.median(times[name]) * 1e3:.2f}",
            f"{min(times[name]) * 1e3:.2f}",
            str(ratio(ours, times[name])),
        ]
        for name in programs
    ]
    print(f"\n{title}; outputs up to {np.abs(outputs['ours']).max():.1f}")
    print_table(["program", "max abs diff", "median ms", "best ms", "ours / it"], rows)
    return max((ratio(ours, times[name]) for name in programs if name != "ours"), key=_median)


def _median(found: Ratio) -> float:
    return found.median


def _bind(compiled: Any, weights: Any, inputs: Sequence[jax.Array]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(compiled(weights, *inputs))


if __name__ == "__main__":
    main()
