"""In a worker: a Hugging Face directory of an architecture that is not ours, in PyTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers

from openxla.benchmark.brought import specs
from openxla.benchmark.brought.in_torch import TorchModel
from openxla.benchmark.brought.loading import told
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.nearest import did_you_mean

_MAIN_OUTPUTS = ("logits", "last_hidden_state")


class TransformersModel(TorchModel):
    """A model of transformers on its usual inputs; output: its logits or last hidden state."""

    def __init__(self, module: Any, parameters: Parameters) -> None:
        super().__init__(module, parameters)
        self.names, self._specs = _inputs_of(module, parameters)

    def generate_default_inputs(self) -> Any:
        """Returns numbers of the shapes and ranges that the configuration tells."""
        return [specs.parse(text).array(place) for place, text in enumerate(self._specs)]

    def forward(self, *inputs: Any) -> Any:
        """Runs the model."""
        tensors = dict(zip(self.names, map(as_tensor, inputs), strict=True))
        output = self.module(**tensors)
        for name in _MAIN_OUTPUTS:
            if (found := getattr(output, name, None)) is not None:
                return found
        return output[0]


def create_model(**parameters: Any) -> TransformersModel:
    """Returns the model of a directory.

    Raises:
      BroughtError: transformers does not know its type or class, or weights are missing.
    """
    directory = Path(str(parameters["source"]))
    name = str(parameters["model_class"])
    config = _config(directory)
    model_class = getattr(transformers, name, None)
    if model_class is None:
        hint = did_you_mean(name, dir(transformers))
        raise BroughtError(f"transformers {transformers.__version__} has no class {name}{hint}")
    # Nobody compares a cache of keys and values.
    if hasattr(config, "use_cache"):
        config.use_cache = False
    try:
        module = hugging_face.load(
            model_class, directory, str(parameters["data_type"]), config=config
        )
    except (ValueError, OSError, RuntimeError) as error:
        raise BroughtError(f"{directory.name} cannot be loaded as {name}: {told(error)}") from error
    return TransformersModel(module, parameters)


def _config(directory: Path) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        import json

        kind = json.loads((directory / "config.json").read_text()).get("model_type")
        hint = did_you_mean(str(kind), transformers.CONFIG_MAPPING)
        raise BroughtError(
            f"transformers {transformers.__version__} does not support model_type {kind!r}{hint}"
        ) from error


def _inputs_of(module: Any, parameters: Parameters) -> tuple[list[str], list[str]]:
    """Returns names and texts of a model's inputs (see `specs`).

    Raises:
      BroughtError: its main input is none that a configuration tells the form of.
    """
    main, config = module.main_input_name, module.config
    batch, seq = parameters["batch_size"], parameters.get("seq_len")
    text_config = config.get_text_config()
    tokens = f"i32[{batch},{seq}]<{getattr(text_config, 'vocab_size', 0)}"
    if main == "input_ids":
        names, texts = ["input_ids", "attention_mask"], [tokens, f"i32[{batch},{seq}]=1"]
    elif main == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, Sequence) else (size, size)
        names = ["pixel_values"]
        texts = [f"f32[{batch},{getattr(config, 'num_channels', 3)},{height},{width}]"]
    elif main == "input_features" and hasattr(config, "max_source_positions"):
        names = ["input_features"]
        texts = [f"f32[{batch},{config.num_mel_bins},{2 * config.max_source_positions}]"]
    else:
        raise BroughtError(
            f"cannot derive the inputs of {type(module).__name__} ({main}) from its configuration; "
            "write a Python file with the model and example_inputs()"
        )
    if config.is_encoder_decoder:
        names.append("decoder_input_ids")
        texts.append(tokens)
    return names, texts
