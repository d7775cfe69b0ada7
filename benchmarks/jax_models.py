"""Compares our JAX models with public and plain implementations, as compiled executables.

For each architecture, one model in float32 at batch 1:
- ours: flax.nnx, from `openxla.benchmark.models.jax`;
- plain: the same network on a dict of arrays, without layers or library. Networks with attention
  have two versions: matrix products, and `jax.nn.dot_product_attention`;
- Keras: KerasHub's (for EfficientNet, Keras Applications') model on the JAX backend, if installed.
  transformers and diffusers no longer have Flax models.
All take the weights of the same checkpoint as arguments and are compiled ahead of time, so only
executables are timed. Outputs are compared first. Blocks alternate in shuffled order.

    python benchmarks/jax_models.py [--rounds 15] [--only bert,resnet] [--quick]

KerasHub depends on TensorFlow, so it requires a separate environment. From the checkout:
    python -m venv DIR && . DIR/bin/activate && pip install torch==2.13.0
    pip install jax==0.10.2 flax==0.12.8 keras==3.15.1 keras-hub==0.32.0 tensorflow==2.21.0 \
        safetensors attrs numpy pillow tokenizers ml_dtypes psutil
    pip install --no-deps -e .
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _keras_hub
import _plain_pictures
import _plain_text
import _race
import _zoo
import jax
import jax.numpy as jnp
import numpy as np
from _keras_port import KerasProgram
from _plain_jax import ATTENTIONS, Attend, Config, Network
from _timing import print_goal
from _weights import arrays, config_of

PACKAGES = ("jax", "jaxlib", "flax", "numpy")
KERAS_PACKAGES = ("keras", "keras-hub")
KERAS = "Keras on JAX"

PLAIN: Mapping[str, Callable[[Config, Attend], Network]] = {
    "bert": _plain_text.bert,
    "resnet": _plain_pictures.resnet,
    "t5": _plain_text.t5,
    "gpt2": _plain_text.gpt2,
    "vit": _plain_text.vit,
    "efficientnet": _plain_pictures.efficientnet,
    "gemma": _plain_text.rotary,
    "llama": _plain_text.rotary,
    "sd_clip": _plain_text.sd_clip,
    "sd_unet": _plain_pictures.sd_unet,
    "sd_vae": _plain_pictures.sd_vae,
    "whisper": _plain_text.whisper,
}
_WITHOUT_ATTENTION = ("resnet", "efficientnet")

Program = tuple[Callable[..., Any], Any, Sequence[Any]]  # function, weights, inputs


def main() -> None:
    chosen = _zoo.prepared(_zoo.options(__doc__.partition("\n")[0], script="jax_models"))
    with_keras = _keras_hub.use("jax")
    if not with_keras:
        print(
            "KerasHub is not installed and is omitted; the top of this file explains how to "
            "install it"
        )
    missed = []
    for name in chosen.only:
        raced, parameters = _table(name, quick=chosen.quick, keras=with_keras, rounds=chosen.rounds)
        if not raced.met:
            missed.append(name)
        if not chosen.quick:
            packages = (*PACKAGES, *(KERAS_PACKAGES if with_keras else ()))
            found = _race.entry(name, parameters, "xla", raced, packages)
            _race.keep(chosen.output, found, ("model", "compiler"))
        jax.clear_caches()
        gc.collect()
    what = "tiny models, not covered by the goal: ours" if chosen.quick else "ours"
    print_goal(
        f"{what} <= {_race.GOAL} x the fastest",
        met=not missed,
        found=f"all but {', '.join(missed)}" if missed else f"all of {len(chosen.only)} models",
    )


def _table(
    name: str, *, quick: bool, keras: bool, rounds: int
) -> tuple[_race.Raced, Mapping[str, Any]]:
    """Races the programs of one model and prints the table."""
    model = _zoo.ENTRIES[name].model("jax", quick=quick)
    given = model.preprocess(model.generate_default_inputs())
    inputs = [jnp.asarray(value) for value in given]
    weights = {key: jnp.asarray(value) for key, value in arrays(model).items()}
    ways = dict(list(ATTENTIONS.items())[:1]) if name in _WITHOUT_ATTENTION else ATTENTIONS
    programs: dict[str, Program] = {
        _race.OURS: (model.apply, model.params, inputs),
        **{
            way: (PLAIN[name](config_of(model), attend), weights, inputs)
            for way, attend in ways.items()
        },
    }
    remarks = {}
    if keras:
        remarks[KERAS] = _keras_hub.ABSENT.get(name) or _keras_hub.REMARKS.get(name, "")
        if (found := _keras_hub.program(name, model, given)) is not None:
            programs[KERAS] = _keras_program(found)
    calls = {key: _compiled(*program) for key, program in programs.items()}
    raced = _race.race(calls, np.asarray, rounds)
    title = f"{model.model_parameters['model_name']}, {', '.join(str(v.shape) for v in given)}"
    _race.print_raced(title, raced, {key: text for key, text in remarks.items() if text})
    return raced, model.model_parameters


def _keras_program(found: KerasProgram) -> Program:
    """Returns a Keras model as a pure function of its variables."""
    kinds = (found.model.trainable_variables, found.model.non_trainable_variables)
    variables = tuple([variable.value for variable in kind] for kind in kinds)

    def run(weights: Any, inputs: Any) -> Any:
        return found.output(found.model.stateless_call(*weights, inputs)[0])

    return run, variables, [jax.tree.map(jnp.asarray, found.inputs)]


def _compiled(function: Callable[..., Any], weights: Any, inputs: Sequence[Any]) -> _race.Call:
    compiled = jax.jit(function).lower(weights, *inputs).compile()
    return lambda: jax.block_until_ready(compiled(weights, *inputs))


if __name__ == "__main__":
    main()
