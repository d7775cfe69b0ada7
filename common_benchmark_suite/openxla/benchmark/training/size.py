"""Lower bounds of the memory needed for training, from definitions alone."""

import math
from collections.abc import Mapping
from typing import Any

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.training.architecture import CLASSES, is_mixed, network_of, task_of
from openxla.benchmark.training.optimizers import optimizer_of

_FLOAT64, _FLOAT32, _BF16 = 8, 4, 2


def weights_of(parameters: Parameters) -> int:
    """Returns the number of the network's weights."""
    network = network_of(parameters)
    return sum(math.prod(init.shape) for init in network.tensors(network.config_of(parameters)))


def step_bytes(parameters: Parameters) -> int:
    """Returns the memory of a run in the model's own type.

    It includes weights, their initial values, gradients, optimizer slots, and the forward pass's
    data for the backward pass, but not code, workspace and the allocator's overhead. A run that
    exceeds the memory by this count does not fit; one slightly below may not fit either.
    """
    weights, kept = weights_of(parameters), _arrays_of_weights(parameters)
    copies, type_bytes = (_BF16 * weights, _BF16) if is_mixed(parameters) else (0, _FLOAT32)
    return weights * kept * _FLOAT32 + copies + _activations(parameters) * type_bytes


def truth_bytes(parameters: Parameters) -> int:
    """Returns the memory of the run in float64, including the model in its own type."""
    weights, mixed = weights_of(parameters), is_mixed(parameters)
    model = weights * (_FLOAT32 + _BF16 * mixed)
    wide = weights * (_arrays_of_weights(parameters) + mixed) + _activations(parameters)
    return model + wide * _FLOAT64


def _arrays_of_weights(parameters: Parameters) -> int:
    return 3 + (1 if optimizer_of(parameters).name == "sgd" else 2)


def _activations(parameters: Parameters) -> int:
    """Returns approximately how many numbers a forward pass keeps for the backward pass.

    A transformer's layer is counted as by Korthikanti et al. 2022 (arXiv:2205.05198, equation 1,
    without dropout), and logits with their softmax and its gradient.
    """
    network = network_of(parameters)
    config = network.config_of(parameters)
    if "depths" in config:
        return int(parameters["batch_size"]) * _of_convolutions(config)  # type: ignore[arg-type]
    batch, *rest = network.input_specs(parameters)[0].shape
    seq, labels = rest[0], 0
    if task_of(parameters) == CLASSES:
        seq = (config["image_size"] // config["patch_size"]) ** 2 + 1
    else:
        labels = 3 * seq * config["vocab_size"]
    hidden = config.get("hidden_size") or config["n_embd"]
    layers = config.get("num_hidden_layers") or config["n_layer"]
    heads = config.get("num_attention_heads") or config["n_head"]
    return int(batch * (layers * seq * (16 * hidden + 2 * heads * seq) + labels))


def _of_convolutions(config: Mapping[str, Any]) -> int:
    """Counts the outputs of each convolution, its norm and its activation."""
    side = config["image_size"] // 2
    found = side**2 * config["embedding_size"]
    side //= 2
    for stage, (width, depth) in enumerate(zip(config["hidden_sizes"], config["depths"])):
        side = side if stage == 0 else side // 2
        found += depth * side**2 * (2 * width // 4 + width)
    return int(3 * found)
