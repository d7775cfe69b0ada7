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
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import numpy as np
from _timing import Ratio, interleave, print_goal, print_table, ratio

from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.jax.bert import bert_model
from openxla.benchmark.models.jax.flax_model import FlaxModel
from openxla.benchmark.models.jax.resnet import resnet_model

GOAL = 1.05
Weights = Mapping[str, jax.Array]
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
    resnet = resnet_model.create_model(
        model_name="resnet-tiny" if quick else "microsoft/resnet-50"
    )
    with_keras = importlib.util.find_spec("keras_hub") is not None
    if not with_keras:
        print("KerasHub is not installed here and left out; this file says how to install it")
    slowdowns = []
    for model, plain, keras in ((bert, plain_bert, keras_bert), (resnet, plain_resnet, keras_resnet)):
        inputs = [jnp.asarray(value) for value in model.preprocess(model.generate_default_inputs())]
        programs: dict[str, Program] = {
            "ours": (model.apply, model.params, inputs),
            "plain": (plain(model), _arrays(model), inputs),
        }
        if with_keras:
            programs["KerasHub"] = keras(model, inputs)
        slowdowns.append(_race(str(model.model_parameters["model_name"]), programs, options.rounds))
    met = all(slowdown.median <= GOAL for slowdown in slowdowns)
    print_goal(f"ours <= {GOAL} x the fastest", met=met)


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


def _arrays(model: FlaxModel) -> Weights:
    """Returns the checkpoint by its own names; matrices [in, out], kernels [h, w, in, out]."""
    layouts: dict[int, tuple[int, ...]] = {2: (1, 0), 4: (2, 3, 1, 0)}
    tensors = checkpoints.load_tensors(model.architecture, model.checkpoint)
    return {
        name: jnp.asarray(
            value.transpose(layouts[value.ndim])
            if value.ndim in layouts and "embeddings" not in name
            else value
        )
        for name, value in tensors.items()
        if value.dtype == np.float32
    }


def _config(model: FlaxModel) -> Mapping[str, Any]:
    return model.architecture.config(str(model.model_parameters["model_name"]))


def plain_bert(model: FlaxModel) -> Callable[..., jax.Array]:
    """Returns BERT as a function of a dict of arrays and the inputs."""
    config = _config(model)
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(w: Weights, name: str, x: jax.Array) -> jax.Array:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(w: Weights, name: str, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt(variance + epsilon)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def attention(w: Weights, name: str, x: jax.Array, bias: jax.Array) -> jax.Array:
        batch, seq, hidden = x.shape
        query, key, value = (
            linear(w, f"{name}.self.{part}", x)
            .reshape(batch, seq, heads, hidden // heads)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(hidden // heads)) + bias
        context = jax.nn.softmax(scores, axis=-1) @ value
        merged = context.transpose(0, 2, 1, 3).reshape(batch, seq, hidden)
        return norm(w, f"{name}.output.LayerNorm", x + linear(w, f"{name}.output.dense", merged))

    def run(w: Weights, ids: jax.Array, mask: jax.Array) -> jax.Array:
        words, positions, types = (
            w[f"embeddings.{table}_embeddings.weight"] for table in ("word", "position", "token_type")
        )
        x = norm(w, "embeddings.LayerNorm", words[ids] + types[0] + positions[: ids.shape[1]])
        bias = jnp.where(mask[:, None, None, :] > 0, 0.0, jnp.finfo(jnp.float32).min)
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            x = attention(w, f"{layer}.attention", x, bias)
            up = jax.nn.gelu(linear(w, f"{layer}.intermediate.dense", x), approximate=False)
            x = norm(w, f"{layer}.output.LayerNorm", x + linear(w, f"{layer}.output.dense", up))
        return x

    return run


def plain_resnet(model: FlaxModel) -> Callable[..., jax.Array]:
    """Returns ResNet as a function of a dict of arrays and the pixels."""
    depths = _config(model)["depths"]

    def conv(w: Weights, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        kernel = w[f"{name}.convolution.weight"]
        pad = kernel.shape[0] // 2
        y = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        scale, bias, mean, variance = (
            w[f"{name}.normalization.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (y - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias

    def run(w: Weights, pixels: jax.Array) -> jax.Array:
        x = jnp.maximum(conv(w, "resnet.embedder.embedder", pixels.transpose(0, 2, 3, 1), 2), 0)
        window, strides, edge = (1, 3, 3, 1), (1, 2, 2, 1), (1, 1)
        padding = ((0, 0), edge, edge, (0, 0))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)
        for stage, depth in enumerate(depths):
            for block in range(depth):
                name = f"resnet.encoder.stages.{stage}.layers.{block}"
                stride = 2 if stage > 0 and block == 0 else 1
                y = jnp.maximum(conv(w, f"{name}.layer.0", x), 0)
                y = jnp.maximum(conv(w, f"{name}.layer.1", y, stride), 0)
                if block == 0:
                    x = conv(w, f"{name}.shortcut", x, stride)
                x = jnp.maximum(conv(w, f"{name}.layer.2", y) + x, 0)
        return x.mean((1, 2)) @ w["classifier.1.weight"] + w["classifier.1.bias"]

    return run


def keras_bert(model: FlaxModel, inputs: Sequence[jax.Array]) -> Program:
    """Returns KerasHub's BERT; its GELU is the tanh approximation, where ours is exact."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone.from_preset(str(model.checkpoint))
    ids, mask = inputs
    given = (ids, jnp.zeros_like(ids), mask)

    def run(weights: Any, token_ids: Any, segment_ids: Any, padding_mask: Any) -> Any:
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        return backbone.stateless_call(*weights, features)[0]["sequence_output"]

    return run, _variables(backbone), given


def keras_resnet(model: FlaxModel, inputs: Sequence[jax.Array]) -> Program:
    """Returns KerasHub's ResNet v1.5 with our weights; its input is channels-last already."""
    import keras_hub

    config = _config(model)
    keras_model = keras_hub.models.ImageClassifier(
        keras_hub.models.ResNetBackbone(
            input_conv_filters=[config["embedding_size"]],
            input_conv_kernel_sizes=[7],
            stackwise_num_filters=[width // 4 for width in config["hidden_sizes"]],
            stackwise_num_blocks=config["depths"],
            stackwise_num_strides=[1, *[2] * (len(config["depths"]) - 1)],
            block_type="bottleneck_block",
            image_shape=(config["image_size"], config["image_size"], 3),
        ),
        num_classes=len(config["id2label"]),
    )
    weights, backbone = _arrays(model), keras_model.backbone

    def port(theirs: str, ours: str) -> None:
        backbone.get_layer(f"{theirs}_conv").set_weights([weights[f"{ours}.convolution.weight"]])
        parts = ("weight", "bias", "running_mean", "running_var")
        backbone.get_layer(f"{theirs}_bn").set_weights(
            [weights[f"{ours}.normalization.{part}"] for part in parts]
        )

    port("conv1", "resnet.embedder.embedder")
    for stage, depth in enumerate(config["depths"]):
        for block in range(depth):
            theirs = f"stack{stage}_block{block}"
            ours = f"resnet.encoder.stages.{stage}.layers.{block}"
            if block == 0:
                port(f"{theirs}_0", f"{ours}.shortcut")
            for layer in range(3):
                port(f"{theirs}_{layer + 1}", f"{ours}.layer.{layer}")
    keras_model.output_dense.set_weights([weights[f"classifier.1.{p}"] for p in ("weight", "bias")])

    def run(variables: Any, pixels: Any) -> Any:
        return keras_model.stateless_call(*variables, pixels)[0]

    return run, _variables(keras_model), [inputs[0].transpose(0, 2, 3, 1)]


def _variables(keras_model: Any) -> Any:
    kinds = (keras_model.trainable_variables, keras_model.non_trainable_variables)
    return tuple([variable.value for variable in kind] for kind in kinds)


if __name__ == "__main__":
    main()
