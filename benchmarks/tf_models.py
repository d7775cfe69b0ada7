"""Compares our TensorFlow models with public Keras implementations, with XLA and as graphs.

For each architecture, one model in float32 at batch 1:
- ours: our own Keras layers, from `openxla.benchmark.models.tf`;
- Keras: KerasHub's (for EfficientNet, Keras Applications') model on the TensorFlow backend.
  transformers no longer has TensorFlow models.
Both have the weights of the same checkpoint as variables. They are traced and compiled before they
are timed: with `tf.function(jit_compile=True)`, and as a graph without XLA. Outputs are compared
first. Blocks alternate in shuffled order.

    python benchmarks/tf_models.py [--rounds 15] [--only bert,resnet] [--compiler xla] [--quick]

`jax_models.py` explains how to create an environment with KerasHub.
"""

import gc
from collections.abc import Callable, Mapping
from typing import Any

import _keras_hub
import _race
import _zoo
import tensorflow as tf
from _timing import print_goal

PACKAGES = ("tensorflow", "keras", "keras-hub", "numpy")
KERAS = "Keras on TensorFlow"
COMPILERS = ("xla", "graph")


def main() -> None:
    parser = _zoo.options(__doc__.partition("\n")[0], script="tf_models")
    parser.add_argument(
        "--compiler",
        choices=COMPILERS,
        action="append",
        help="compiler to measure; may be repeated (default: both)",
    )
    chosen = _zoo.prepared(parser)
    if not _keras_hub.use("tensorflow"):
        raise SystemExit(
            "KerasHub is not installed; the top of jax_models.py explains how to install it"
        )
    missed = []
    for name in chosen.only:
        if name in _keras_hub.ABSENT:
            print(f"\n{name}: {_keras_hub.ABSENT[name]}")
            continue
        for compiler in chosen.compiler or COMPILERS:
            raced, parameters = _table(name, compiler, quick=chosen.quick, rounds=chosen.rounds)
            if not raced.met:
                missed.append(f"{name} ({compiler})")
            if not chosen.quick:
                found = _race.entry(name, parameters, compiler, raced, PACKAGES)
                _race.keep(chosen.output, found, ("model", "compiler"))
            tf.keras.backend.clear_session()
            gc.collect()
    what = "tiny models, not covered by the goal: ours" if chosen.quick else "ours"
    print_goal(
        f"{what} <= {_race.GOAL} x the fastest",
        met=not missed,
        found=f"all but {', '.join(missed)}" if missed else f"all of {len(chosen.only)} models",
    )


def _table(
    name: str, compiler: str, *, quick: bool, rounds: int
) -> tuple[_race.Raced, Mapping[str, Any]]:
    """Races the programs of one model and prints the table."""
    model = _zoo.ENTRIES[name].model("tf", quick=quick)
    given = model.preprocess(model.generate_default_inputs())
    public = _keras_hub.program(name, model, given)
    assert public is not None, f"{name} is not in any Keras table"
    calls = {
        _race.OURS: _compiled(model.forward, given, compiler),
        KERAS: _compiled(
            lambda inputs: public.output(public.model(inputs)), (public.inputs,), compiler
        ),
    }
    raced = _race.race(calls, lambda output: output.numpy(), rounds)
    shapes = ", ".join(str(value.shape) for value in given)
    title = f"{model.model_parameters['model_name']}, {shapes}, {compiler}"
    remark = _keras_hub.REMARKS.get(name)
    _race.print_raced(title, raced, {KERAS: remark} if remark else {})
    return raced, model.model_parameters


def _compiled(function: Callable[..., Any], inputs: Any, compiler: str) -> _race.Call:
    """Returns a call of a function; the function is traced once, for these inputs."""

    def positional(*arguments: Any) -> Any:
        return function(*arguments)

    tensors = tf.nest.map_structure(tf.constant, tuple(inputs))
    traced = tf.function(positional, jit_compile=True if compiler == "xla" else None)
    concrete = traced.get_concrete_function(*tensors)
    return lambda: concrete(*tensors)


if __name__ == "__main__":
    main()
