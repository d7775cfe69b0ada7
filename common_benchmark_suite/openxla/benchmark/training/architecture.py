"""Training as an architecture: the same batches and labels for every framework, and its memory.

The memory is a lower bound, from definitions alone.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures import bert, gpt2, resnet, vit
from openxla.benchmark.models.architectures.base import (
    Architecture,
    Arrays,
    TensorInit,
    element_type,
    integer,
)
from openxla.benchmark.models.architectures.image_classifier import LABELS
from openxla.benchmark.training import STEPS, optimizer_of

# Tasks of a network: predict hidden words, the next word, or the class of a picture.
MASKED, NEXT, CLASSES = "masked tokens", "next token", "classes"
_TASKS: Mapping[Architecture, str] = {
    bert.ARCHITECTURE: MASKED,
    gpt2.ARCHITECTURE: NEXT,
    resnet.ARCHITECTURE: CLASSES,
    vit.ARCHITECTURE: CLASSES,
}
# Label of a position that is not predicted, as in PyTorch and transformers.
IGNORED = -100
_HIDDEN_SHARE = 0.15  # Devlin et al. 2018
# Statistics of batch norm, which are frozen, see `TrainingArchitecture`.
_STATISTICS = ("running_mean", "running_var")
# Biases of keys; in GPT-2 these are a third of a bias.
_KEYS = ("attention.self.key.bias", "attention.k_proj.bias", "attn.c_attn.bias")
# The type of updated weights and of outputs about them.
_MASTERS = "f32"

_FLOAT64, _FLOAT32, _BF16 = 8, 4, 2


class TrainingArchitecture(Architecture):
    """Parameters: the network's parameters, and `train`, the optimizer.

    Inputs: the network's inputs, each with a leading axis of `STEPS` batches; then labels i32,
    [steps, batch, seq] of hidden tokens or [steps, batch] of classes. A language model that
    predicts the next token needs none.

    Outputs: [steps, 2], loss and gradient norm of each step; [weights, 2] and [weights], the total
    change of each weight (see `models.digest`), in the checkpoint's order (see `judged`).

    The loss is the mean cross-entropy of the predictions. BERT outputs its last hidden state; its
    logits are products with its word embeddings, divided by the root of the hidden size to make
    them of order one. Batch norm uses the statistics of the checkpoint and does not update them, as
    in fine-tuning with frozen statistics; its scale and bias are trained. Dropout is omitted.
    """

    name = "training"
    version = 2
    standard = {**bert.ARCHITECTURE.example, "train": "adamw"}
    example = standard

    def complete(self, parameters: Parameters) -> Parameters:
        """Adds the defaults of the network's definition."""
        if "model_name" not in parameters:
            return parameters
        return network_of(parameters).complete(parameters)

    def config(self, model_name: str) -> Mapping[str, Any]:
        """Returns the network's configuration; the checkpoint is the network's own."""
        return _network(model_name).config(model_name)

    def canonical_name(self, model_name: str) -> str:
        """Returns the network's name."""
        return _network(model_name).canonical_name(model_name)

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """Returns the tensors of the network's checkpoint."""
        network = next(item for item in _TASKS if config in item.configs.values())
        return network.tensors(config)

    def trains(self, parameters: Parameters) -> bool:
        """Returns True."""
        return True

    def training(self, parameters: Parameters) -> Mapping[str, Any] | None:
        """Returns task, optimizer with hyper-parameters, and number of steps."""
        facts: dict[str, Any] = {
            "task": task_of(parameters),
            "steps": STEPS,
            "optimizer": attrs.asdict(optimizer_of(parameters)),
        }
        return {**facts, "masters": _MASTERS} if is_mixed(parameters) else facts

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """See the class."""
        batch = integer(parameters, "batch_size")
        specs = [
            attrs.evolve(spec, shape=(STEPS, *spec.shape))
            for spec in network_of(parameters).input_specs(parameters)
        ]
        if task_of(parameters) == MASKED:
            specs.append(specs[0])
        elif task_of(parameters) == CLASSES:
            specs.append(TensorSpec(shape=(STEPS, batch), dtype="i32"))
        return tuple(specs)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """See the class."""
        weights = len(judged(parameters))
        shapes = ((STEPS, 2), (weights, 2), (weights,))
        return tuple(TensorSpec(shape=shape, dtype=_MASTERS) for shape in shapes)

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled text with its tokenizer, and the bundled picture."""
        return (testdata.DEFAULT_TEXT, testdata.TOKENIZER, testdata.DEFAULT_IMAGE)

    def default_inputs(self, parameters: Parameters) -> Any:
        """The network's default input: a text or a picture."""
        return network_of(parameters).default_inputs(parameters)

    def inputs(self, parameters: Parameters, input_data: str) -> Any:
        """The network's input of that name."""
        return network_of(parameters).inputs(parameters, input_data)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Makes batches with unique rows, and their labels."""
        batch = integer(parameters, "batch_size")
        network = network_of(parameters)
        rows = {**parameters, "batch_size": STEPS * batch}
        arrays = network.preprocess(raw_input, rows, checkpoint)
        given = [value.reshape(STEPS, batch, *value.shape[1:]) for value in arrays]
        if task_of(parameters) == MASKED:
            given = _hidden(*given, mask_token=network.config_of(parameters)["vocab_size"] - 1)
        elif task_of(parameters) == CLASSES:
            labels = _uniform("classes", (STEPS, batch)) * LABELS
            given.append(labels.astype("int32"))
        return tuple(given)

    def label(self, parameters: Parameters) -> str:
        """Returns e.g. `bert-tiny-train-adamw-fp32-4x32xi32`."""
        network = network_of(parameters)
        element_type(parameters.get("data_type"))
        name = self.canonical_name(str(parameters["model_name"])).rpartition("/")[2]
        shape = network.input_specs(parameters)[0]
        return f"{name}-train-{parameters['train']}-{parameters['data_type']}-{shape}"


def network_of(parameters: Parameters) -> Architecture:
    """Returns the architecture of the trained network.

    Raises:
      DefinitionError: `model_name` does not support training.
    """
    return _network(str(parameters["model_name"]))


def task_of(parameters: Parameters) -> str:
    """Returns the task of the network."""
    return _TASKS[network_of(parameters)]


def is_mixed(parameters: Parameters) -> bool:
    """Returns whether a network computes in bf16 with weights stored and updated in fp32.

    Raises:
      DefinitionError: training does not support `data_type`.
    """
    data_type = parameters.get("data_type")
    if data_type not in ("fp32", "bf16"):
        raise DefinitionError(
            f"training computes in fp32 or bf16, not {data_type!r}: fp16 gradients vanish without "
            "loss scaling"
        )
    return data_type == "bf16"


def trained(parameters: Parameters) -> list[str]:
    """Returns the names of the trained weights, in the checkpoint's order."""
    network = network_of(parameters)
    return [
        init.name
        for init in network.tensors(network.config_of(parameters))
        if init.dtype != "I64"
        and not init.name.startswith(network.unused_tensors)
        and not init.name.endswith(_STATISTICS)
    ]


def judged(parameters: Parameters) -> list[str]:
    """Returns the names of the weights whose change is verified.

    In float32 these are all weights. Biases of keys are excluded otherwise: they shift all scores
    of a query alike, so their gradient is 0 except for rounding, and AdamW turns the rounding of
    bf16 into full steps.
    """
    names = trained(parameters)
    return [name for name in names if not name.endswith(_KEYS)] if is_mixed(parameters) else names


def _network(model_name: str) -> Architecture:
    for network in _TASKS:
        if model_name in network.configs:
            return network
    known = ", ".join(name for network in _TASKS for name in network.configs)
    raise DefinitionError(f"model {model_name!r} cannot be trained; choices are {known}")


def _hidden(ids: Any, mask: Any, *, mask_token: int) -> list[Any]:
    """Returns ids with some tokens hidden, the mask, and the hidden tokens.

    The second token of each row is always hidden, so every row has one.
    """
    import numpy as np

    hidden = (_uniform("hidden", ids.shape) < _HIDDEN_SHARE) & (mask > 0)
    hidden[..., 1] = True
    labels = np.where(hidden, ids, IGNORED).astype(np.int32)
    return [np.where(hidden, mask_token, ids).astype(np.int32), mask, labels]


def _uniform(name: str, shape: tuple[int, ...]) -> Any:
    """Returns seeded numbers in [0, 1), from the checkpoints' generator."""
    from openxla.benchmark.models import checkpoints

    init = TensorInit(name=f"training/{name}", shape=shape, stddev=3**-0.5)
    return (checkpoints.generate(init, seed=0) + 1) / 2  # type: ignore[operator]


ARCHITECTURE = TrainingArchitecture()


def number_of_weights(parameters: Parameters) -> int:
    """Returns the number of the network's weights."""
    network = network_of(parameters)
    return sum(math.prod(init.shape) for init in network.tensors(network.config_of(parameters)))


def step_bytes(parameters: Parameters) -> int:
    """Returns the memory of a run in the model's own type.

    It includes weights, their initial values, gradients, optimizer slots, and the forward pass's
    data for the backward pass, but not code, workspace and the allocator's overhead. A run that
    exceeds the memory by this count does not fit; one slightly below may not fit either.
    """
    weights, held = number_of_weights(parameters), _arrays_of_weights(parameters)
    copies, type_bytes = (_BF16 * weights, _BF16) if is_mixed(parameters) else (0, _FLOAT32)
    return weights * held * _FLOAT32 + copies + _activations(parameters) * type_bytes


def truth_bytes(parameters: Parameters) -> int:
    """Returns the memory of the run in float64, including the model in its own type."""
    weights, mixed = number_of_weights(parameters), is_mixed(parameters)
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
    count = side**2 * config["embedding_size"]
    side //= 2
    for stage, (width, depth) in enumerate(zip(config["hidden_sizes"], config["depths"])):
        side = side if stage == 0 else side // 2
        count += depth * side**2 * (2 * width // 4 + width)
    return int(3 * count)
