"""Base class of architectures, with declarations for all frameworks."""

import abc
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures import directories

if TYPE_CHECKING:  # identities are computed without numpy, so that `cbs list` starts fast
    import numpy as np
    import numpy.typing as npt

    Arrays: TypeAlias = tuple[npt.NDArray[np.generic], ...]
else:
    Arrays: TypeAlias = tuple

DATA_TYPES: Mapping[str, str] = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}


class TensorInit(NamedTuple):
    """One tensor of a seeded checkpoint: uniform around `mean` with the given `stddev`.

    The order of the fields is part of the identity of every seeded checkpoint.

    `dtype` is the safetensors name: `F32`, or `I64` for counters (then constant `mean`).
    """

    name: str
    shape: tuple[int, ...]
    mean: float = 0.0
    stddev: float = 0.0
    dtype: str = "F32"


class Architecture(abc.ABC):
    """Configurations by model name, their weights, and the signature of their inputs and outputs.

    Bump `version` whenever initialisation or preprocessing changes: it is part of the identity of
    every workload.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    # `config.json` of the checkpoint by model name, with Hugging Face's keys.
    configs: ClassVar[Mapping[str, Mapping[str, Any]]]
    # Repository and revision of the pretrained checkpoint by model name, if there is one.
    pretrained: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # Parameters that a definition may omit, with their default values.
    defaults: ClassVar[Parameters] = {}
    # Parameters of `create_model()` without arguments, in addition to one row of fp32; and
    # parameters of a small variant, which a model's module runs as a program.
    standard: ClassVar[Parameters] = {}
    example: ClassVar[Parameters] = {}
    # Maps names of checkpoint tensors to our JAX and TensorFlow modules: patterns and replacements,
    # applied in order.
    module_names: ClassVar[Sequence[tuple[str, str]]] = ()
    # Prefixes of tensors that our own modules do not use.
    unused_tensors: ClassVar[tuple[str, ...]] = ()
    # Whether matrices of the checkpoint are [in, out], not torch's [out, in].
    matrices_are_in_out: ClassVar[bool] = False

    def complete(self, parameters: Parameters) -> Parameters:
        """Returns the parameters with defaults for omitted ones."""
        return {**self.defaults, **parameters}

    def creation_parameters(self, parameters: Parameters) -> Parameters:
        """Returns the parameters of `create_model` with defaults for omitted ones."""
        given = self.complete({**self.standard, **parameters})
        return {"batch_size": 1, "data_type": "fp32", **given}

    def module_name(self, tensor: str, config: Mapping[str, Any]) -> str:
        """Returns the name of a tensor in our modules, e.g. `layers.0.attention.query.weight`."""
        for pattern, ours in self.module_names:
            tensor = re.sub(pattern, ours, tensor)
        return tensor

    def generates(self, parameters: Parameters) -> bool:
        """Returns whether the model continues prompts, like `model_interfaces.GenerationModel`.

        Its outputs are then tokens, i32[batch, new], and their logits; the parameter
        `max_new_tokens` gives their number.
        """
        return False

    def trains(self, parameters: Parameters) -> bool:
        """Returns whether the model also outputs gradients."""
        return False

    def training(self, parameters: Parameters) -> Mapping[str, Any] | None:
        """Returns the settings of a model that updates its weights; None for others.

        They are part of the workload's identity.
        """
        return None

    def hidden_sizes(self, parameters: Parameters) -> Mapping[str, int]:
        """Returns sizes that neither inputs nor outputs show; part of the workload's identity."""
        return {}

    def config_of(self, parameters: Parameters) -> Mapping[str, Any]:
        """Returns the configuration that `model_name` of the parameters names.

        Raises:
          DefinitionError: the configuration does not exist.
        """
        return self.config(str(parameters["model_name"]))

    def config(self, model_name: str) -> Mapping[str, Any]:
        """Returns the configuration of that name, or of a directory in Hugging Face's format.

        Raises:
          DefinitionError: the configuration does not exist.
        """
        if is_directory(model_name):
            return directories.config_of(model_name, self.name)
        if model_name not in self.configs:
            known = ", ".join(sorted(self.configs))
            raise DefinitionError(f"{self.name} has no model {model_name!r}; choices are {known}")
        return self.configs[model_name]

    def canonical_name(self, model_name: str) -> str:
        """Returns the first name of the configuration, so that a network has one label."""
        if is_directory(model_name):
            return model_name
        config = self.config(model_name)
        return next(name for name, item in self.configs.items() if item is config)

    @abc.abstractmethod
    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """Returns the tensors of the checkpoint, scaled so that outputs stay of order one."""

    def has_weights(self, parameters: Parameters) -> bool:
        """Returns whether a model has any weights, in a checkpoint or elsewhere."""
        return any(True for _ in self.tensors(self.config_of(parameters)))

    @abc.abstractmethod
    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns shape and type of each input, in the canonical layout."""

    @abc.abstractmethod
    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns shape and type of each output."""

    @abc.abstractmethod
    def default_input_files(self) -> tuple[Path, ...]:
        """Returns the files from which the default input is made; their bytes are its identity."""

    @abc.abstractmethod
    def default_inputs(self, parameters: Parameters) -> Any:
        """Returns the raw default input."""

    def inputs(self, parameters: Parameters, input_data: str) -> Any:
        """Returns the raw input of that name, made from the default one (see `testdata.vary`).

        Raises:
          DefinitionError: the input does not exist.
        """
        return testdata.vary(self.default_inputs(parameters), input_data)

    @abc.abstractmethod
    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Returns the input arrays, as `input_specs` declares them."""

    def label(self, parameters: Parameters) -> str:
        """Returns a short readable name: model, type and input shapes."""
        element_type(parameters.get("data_type"))  # raises for an unsupported type
        shapes = "-".join(map(str, self.input_specs(parameters)[:1]))
        model = self.canonical_name(str(parameters["model_name"])).rpartition("/")[2]
        if parameters.get("checkpoint") == "trained":
            model = model.replace("tiny", "trained")
        return f"{model}-{parameters['data_type']}-{shapes}"

    def canonical_weight_name(self, name: str) -> str:
        """Returns our name for a tensor of a pretrained checkpoint."""
        return name

    def checkpoint_files(self) -> Mapping[str, Path]:
        """Returns further files of a seeded checkpoint (tokenizer ...), by file name."""
        return {}


def is_directory(model_name: str) -> bool:
    """Returns whether a model's name is the absolute path of a directory with its configuration."""
    return Path(model_name).is_absolute()


def element_type(data_type: object) -> str:
    """Returns the tensor element type of a model's `data_type` parameter.

    Raises:
      DefinitionError: models do not support the type.
    """
    if data_type not in DATA_TYPES:
        raise DefinitionError(f"data_type {data_type!r} is not one of {', '.join(DATA_TYPES)}")
    return DATA_TYPES[str(data_type)]


def tensor(parameters: Parameters, *shape: int) -> TensorSpec:
    """Returns the spec of a tensor in the model's `data_type`.

    Raises:
      DefinitionError: models do not support the type.
    """
    return TensorSpec(shape=shape, dtype=element_type(parameters.get("data_type")))


def integer(parameters: Parameters, key: str) -> int:
    """Returns a parameter that must be a positive integer.

    Raises:
      DefinitionError: the parameter is missing, or is not a positive integer.
    """
    value = parameters.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DefinitionError(f"parameter {key!r} must be a positive integer, got {value!r}")
    return value


def digest_of(value: Any) -> str:
    """Returns the sha256 of a value's canonical JSON form, in hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=attrs.asdict)
    return hashlib.sha256(text.encode()).hexdigest()
