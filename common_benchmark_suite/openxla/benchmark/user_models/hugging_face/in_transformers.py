"""In a worker: Hugging Face models without an architecture of ours, in PyTorch."""

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.overrides import TorchFunctionMode

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.checkpoint_tensors import SafetensorsFile
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor
from openxla.benchmark.text import did_you_mean
from openxla.benchmark.user_models.hugging_face import companion_formats, usual_inputs
from openxla.benchmark.user_models.hugging_face.companion_formats import Additions, Stage
from openxla.benchmark.user_models.hugging_face.hugging_face import parts_of
from openxla.benchmark.user_models.hugging_face.usual_inputs import Taken
from openxla.benchmark.user_models.inputs import Array
from openxla.benchmark.user_models.model_options import InputSpec, UserModelError, parse_spec
from openxla.benchmark.user_models.python_files.in_torch import TorchModel, plain
from openxla.benchmark.user_models.python_files.loading import refusing

_HIDDEN = "last_hidden_state"
# Suffixes of names of intermediate results.
_INNER_OUTPUTS = ("hidden_state", "hidden_states", "attentions", "past_key_values", "loss")
# Arguments of `forward` that are labels or results of an earlier call.
_NO_INPUTS = frozenset(
    {
        *("labels", "return_dict", "return_loss", "use_cache", "past_key_values", "cache_position"),
        *("output_attentions", "output_hidden_states", "encoder_outputs", "mm_encoder_outputs"),
    }
)


class TransformersModel(TorchModel):
    """A transformers model; its outputs are its heads' outputs, or its last hidden state.

    With stages, the output is the result of the last stage.
    """

    def __init__(
        self, module: Any, parameters: Parameters, stages: Sequence[torch.nn.Module] = ()
    ) -> None:
        super().__init__(module, parameters)
        self.stages = torch.nn.ModuleList(stages).eval().requires_grad_(False)
        taken, given = _taken(module, parameters), _given(parameters)
        self.values = taken.inputs(given)
        if stages and not {"input_ids", "attention_mask"} <= self.values.keys():
            raise UserModelError(
                f"pooling needs input_ids and attention_mask, but {taken.kind} does not take both"
            )
        self.names = list(self.values)
        self._others = [name for name in taken.arguments if name not in self.names]
        self._places = (
            usual_inputs.has_places(module.config)
            and {"input_ids", "pixel_values"} <= self.values.keys()
            and "input_ids" not in given
        )

    def generate_default_inputs(self) -> Any:
        """Returns numbers in the shapes and ranges that the configuration determines."""
        arrays = usual_inputs.arrays(self.values)
        if self._places:
            arrays = self._with_places(arrays)
        return [arrays[name] for name in self.names]

    def forward(self, *inputs: Any) -> Any:
        """Runs the model, in float64 if its weights are float64."""
        computing: Any = contextlib.nullcontext()
        if torch.compiler.is_exporting():  # exporters have no grouped matrix products
            computing = _experts_as(self.module, "batched_mm")
        elif not torch.compiler.is_compiling() and self.module.dtype == torch.float64:
            computing = _in_float64(self.module)
        with computing:
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        tensors = dict(zip(self.names, map(as_tensor, inputs), strict=True))
        output = self.module(**tensors)
        if len(self.stages):
            hidden = output[0]
            for stage in self.stages:
                hidden = stage(hidden, tensors["attention_mask"])
            return hidden
        return _outputs_of(output)

    def try_out(self, *inputs: Array) -> None:
        """Checks the number of inputs, and that the model runs; see `UserModel.try_out`.

        Raises:
          UserModelError: the model does not run on them; the message names what else it takes.
        """
        kind = type(self.module).__name__
        if len(inputs) != len(self.names):
            raise UserModelError(
                f"{kind}: expected arrays for {', '.join(self.names)}; arrays given: {len(inputs)}"
            )
        try:
            super().try_out(*inputs)
        except UserModelError as error:
            if error.__cause__ is None or not self._others:
                raise
            raise UserModelError(
                f"{error}; {kind} got {', '.join(self.names)} and also takes "
                f"{', '.join(self._others)}: to pass one, add --input NAME=TYPE[SIZES]"
            ) from error.__cause__

    def _with_places(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Returns inputs whose text has a placeholder token for each part of the picture.

        Raises:
          UserModelError: the number of placeholders cannot be computed.
        """
        pixels = arrays["pixel_values"]
        grids = {name: as_tensor(arrays[name]) for name in ("image_grid_thw",) if name in arrays}
        # Some models take several pictures per row.
        for values in (pixels, pixels[:, None]):
            given = as_tensor(values).to(TORCH_DTYPES[str(self.model_parameters["data_type"])])
            try:
                with torch.no_grad():
                    output = self.module.get_image_features(given, **grids)
                features = getattr(output, "pooler_output", output)
                each = features if isinstance(features, list | tuple) else [features]
                count = sum(item.numel() // item.shape[-1] for item in each)
            except Exception:  # noqa: S112  # any model's own check of its pixels
                continue
            rows = len(arrays["input_ids"])
            with_pixels = {**arrays, "pixel_values": values}
            return usual_inputs.with_places(with_pixels, self.module.config, count // rows)
        kind = type(self.module).__name__
        raise UserModelError(
            usual_inputs.missing_inputs(kind, ["pixel_values"])
            + "; to run only the text part, describe input_ids and attention_mask"
        )


class _Widened(TorchFunctionMode):
    """Makes casts to float32 return float64.

    transformers computes norms, rotary embeddings and softmax of 16-bit models in float32, by casts
    that would round a float64 run. Casts to other types are kept: there the model intends to round.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        wide = [torch.float64 if value is torch.float32 else value for value in args]
        named = {
            key: torch.float64 if value is torch.float32 else value
            for key, value in (kwargs or {}).items()
        }
        return (torch.Tensor.double if func is torch.Tensor.float else func)(*wide, **named)


@contextlib.contextmanager
def _in_float64(module: Any) -> Iterator[None]:
    """Makes a model whose weights are float64 compute in float64 within the block."""
    # Grouped matrix products have no float64 kernel.
    with _experts_as(module, "eager"), _Widened():
        yield


@contextlib.contextmanager
def _experts_as(module: Any, implementation: str) -> Iterator[None]:
    """Sets how the layers of experts compute within the block, if the model has such layers."""
    before = getattr(module.config, "_experts_implementation", None)
    try:
        if before is not None:
            module.config._experts_implementation = implementation  # noqa: SLF001
        yield
    finally:
        if before is not None:
            module.config._experts_implementation = before  # noqa: SLF001


class _Pooling(torch.nn.Module):
    """Pools token vectors into one vector per row, with the modes of sentence-transformers."""

    def __init__(self, modes: Sequence[str]) -> None:
        super().__init__()
        self.modes = modes

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Pools [batch, seq, width] with mask [batch, seq] to [batch, modes * width]."""
        wide = mask.to(hidden.dtype)[..., None]
        places = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)
        pooled = []
        for mode in self.modes:
            if mode == "cls":
                pooled.append(hidden[:, 0])
            elif mode == "max":
                lowest = torch.finfo(hidden.dtype).min
                pooled.append(hidden.masked_fill(wide == 0, lowest).amax(1))
            elif mode == "lasttoken":
                last = (places[None] * (mask != 0)).amax(1).clamp(min=1) - 1
                at = last.long()[:, None, None].expand(-1, 1, hidden.shape[2])
                pooled.append((hidden * wide).gather(1, at)[:, 0])
            else:
                weights = wide
                if mode == "weightedmean":
                    weights = wide * places.to(hidden.dtype)[None, :, None]
                count = weights.sum(1).clamp(min=1e-9)
                if mode == "mean_sqrt_len":
                    count = count.sqrt()
                pooled.append((hidden * weights).sum(1) / count)
        return torch.cat(pooled, 1)


class _Normalize(torch.nn.Module):
    def forward(self, hidden: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(hidden, p=2, dim=1)


class _Layer(torch.nn.Module):
    """A layer, and the function applied to its result."""

    def __init__(self, layer: torch.nn.Module, activation: torch.nn.Module) -> None:
        super().__init__()
        self.layer, self.activation = layer, activation

    def forward(self, hidden: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        activated: torch.Tensor = self.activation(self.layer(hidden))
        return activated


def create_model(**parameters: Any) -> TransformersModel:
    """Returns the model of a directory.

    Raises:
      DefinitionError: the directory has changed since the run was planned, transformers does not
        support its type or class, or weights are missing.
    """
    directory = Path(str(parameters["source"]))
    allow_code = parameters.get("pickled") is True
    pipeline = None
    if parameters.get("pipeline"):
        pipeline = companion_formats.read_pipeline(directory, allow_code=allow_code)
    home = pipeline.transformer if pipeline else directory
    additions, adapter, label = None, None, directory.name
    if "base" in parameters:
        adapter = companion_formats.read_adapter(home)
        if adapter is None:
            raise UserModelError(f"{home} no longer contains {companion_formats.ADAPTER_FILE}")
        additions, home = adapter.merged(), Path(str(parameters["base"]))
    _, digest = parts_of(directory, home, pipeline, adapter, allow_code=allow_code)
    if digest != parameters["source_sha256"]:
        raise UserModelError(f"{directory} has changed since this run was planned")
    config = _config(home)
    name = str(parameters["model_class"])
    model_class = _class(home, name, config, of_sentences=pipeline is not None)
    # The key-value cache is not compared.
    if hasattr(config, "use_cache"):
        config.use_cache = False
    options: dict[str, Any] = {"config": config}
    # The pipeline does not use the pooler of the transformer.
    spared: tuple[str, ...] = ("pooler.",) if pipeline else ()
    if additions is not None:
        spared = (*spared, *additions.replaced)
        options["ignore_mismatched_sizes"] = True
        if (labels := _labels(additions)) is not None:
            config.num_labels = labels
    data_type = str(parameters["data_type"])
    with refusing(f"{label} cannot be loaded as {name}", ValueError, OSError, RuntimeError):
        module = hugging_face.load(model_class, home, data_type, spared=spared, **options)
    if additions is not None:
        _add(module, additions, f"{label} does not match its base {home.name}")
    stages = [_stage(stage, data_type) for stage in pipeline.stages] if pipeline else ()
    return TransformersModel(module, parameters, stages)


def _config(directory: Path) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        content = _json(directory)
        kind = content.get("model_type")
        if content.get("auto_map") and kind not in transformers.CONFIG_MAPPING:
            raise UserModelError(_needs_own_code(directory, content)) from error
        hint = did_you_mean(str(kind), transformers.CONFIG_MAPPING)
        raise UserModelError(
            f"transformers {transformers.__version__} does not support model_type {kind!r}{hint}"
        ) from error


def _json(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return content


def _needs_own_code(directory: Path, content: Mapping[str, Any]) -> str:
    named = content["auto_map"]
    values = named.values() if isinstance(named, Mapping) else [named]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    files = sorted({f"{str(item).rpartition('.')[0]}.py" for item in flat if item})
    return (
        f"{directory.name} needs its own code ({', '.join(files)}), and code in a directory is "
        "never run; write a Python file whose create_model() builds the model, and pass that file"
    )


def _class(directory: Path, name: str, config: Any, *, of_sentences: bool) -> Any:
    """Returns the transformers class that loads a directory's weights."""
    if of_sentences:
        whole = getattr(transformers.MODEL_MAPPING.get(type(config), None), "__name__", "")
        encoder = f"{whole.removesuffix('Model')}EncoderModel"
        name = encoder if hasattr(transformers, encoder) else name
        if config.is_encoder_decoder and name != encoder:
            raise UserModelError(
                f"{directory.name} has an encoder and a decoder, so it has no sentence embedding"
            )
    if (kind := getattr(transformers, name, None)) is not None:
        return kind
    content = _json(directory)
    if content.get("auto_map"):
        raise UserModelError(_needs_own_code(directory, content))
    hint = did_you_mean(name, dir(transformers))
    raise UserModelError(f"transformers {transformers.__version__} has no class {name}{hint}")


def _taken(module: Any, parameters: Parameters) -> Taken:
    signature = inspect.signature(module.forward).parameters
    empty = inspect.Parameter.empty
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    arguments = {
        name: value.default is empty
        for name, value in signature.items()
        # Arguments with other defaults are options.
        if value.kind not in variadic and name not in _NO_INPUTS and value.default in (empty, None)
    }
    # In RoBERTa, positions start after the padding index.
    padded = [
        part.padding_idx + 1
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Embedding)
        and "position" in name
        and part.padding_idx is not None
    ]
    seq, batch = parameters.get("seq_len"), parameters["batch_size"]
    return Taken(
        arguments=arguments,
        main=module.main_input_name,
        config=module.config,
        kind=type(module).__name__,
        batch=int(str(batch)),
        seq=None if seq is None else int(str(seq)),
        reserved=max(padded, default=0),
    )


def _given(parameters: Parameters) -> dict[str, InputSpec]:
    """Returns the inputs that the user describes, by name."""
    texts = filter(None, str(parameters.get("inputs", "")).split("; "))
    return {spec.name: spec for spec in map(parse_spec, texts)}


def _outputs_of(output: Any) -> Any:
    """Returns the last hidden state if it is the first output, else the outputs of all heads.

    All heads are returned because a compiler would remove an unused one.
    """
    if not isinstance(output, Mapping):
        return plain(output)
    if next(iter(output), None) == _HIDDEN:
        return output[_HIDDEN]
    tensors = []
    for name, value in output.items():
        each = value if type(value) is tuple else (value,)
        if not name.endswith(_INNER_OUTPUTS):
            tensors += [item for item in each if isinstance(item, torch.Tensor)]
    if not tensors:
        return plain(tuple(output.values()))
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _stage(stage: Stage, data_type: str) -> torch.nn.Module:
    """Returns the module of a stage after the transformer, with its weights.

    Raises:
      UserModelError: the weights do not match the configuration.
    """
    if stage.kind == "Pooling":
        return _Pooling(stage.modes)
    if stage.kind == "Normalize":
        return _Normalize()
    if stage.kind == "Dropout" or stage.weights is None:
        return _Layer(torch.nn.Identity(), torch.nn.Identity())
    config, activation = stage.config, torch.nn.Identity()
    if stage.kind == "Dense":
        name = config.get("activation_function", "torch.nn.Tanh")
        activation = _activation(name, stage.weights.parent)
    kinds = KeyError, TypeError, ValueError, RuntimeError, OSError
    with refusing(f"{stage.kind} in {stage.weights.parent} cannot be loaded", *kinds):
        if stage.kind == "LayerNorm":
            layer: torch.nn.Module = torch.nn.LayerNorm(config["dimension"])
        else:
            sizes = config["in_features"], config["out_features"]
            layer = torch.nn.Linear(*sizes, bias=config.get("bias", True))
        if stage.weights.suffix == ".safetensors":
            file = SafetensorsFile(stage.weights)
            state = {key: as_tensor(file[key]) for key in file}
        else:
            state = torch.load(stage.weights, map_location="cpu", weights_only=True)
        state = {key.partition(".")[2]: value for key, value in state.items()}
        layer.load_state_dict(state, strict=True)
    return _Layer(layer, activation).to(TORCH_DTYPES[data_type])


def _activation(name: Any, folder: Path) -> torch.nn.Module:
    """Returns a PyTorch activation by its dotted name, without importing anything for it."""
    if name is None:
        return torch.nn.Identity()
    kind: Any = getattr(torch.nn, str(name).rpartition(".")[2], None)
    is_module = inspect.isclass(kind) and issubclass(kind, torch.nn.Module)
    if not str(name).startswith("torch.nn.") or not is_module:
        raise UserModelError(f"{folder}: activation_function {name!r} is not one of PyTorch's")
    try:
        made: torch.nn.Module = kind()
    except TypeError as error:
        raise UserModelError(f"{folder}: activation_function {name!r} needs arguments") from error
    return made


def _labels(additions: Additions) -> int | None:
    """Returns the number of classes of the adapter's head; None without a head."""
    ends = ("score.weight", "classifier.weight", "out_proj.weight", "qa_outputs.weight")
    heads = [value for name, value in additions.replaced.items() if name.endswith(ends)]
    return len(heads[-1]) if heads else None


def _add(module: Any, additions: Additions, mismatch: str) -> None:
    """Merges an adapter into the module of its base, in place.

    Raises:
      UserModelError: a layer is not in the base, or has another size.
    """
    kind = type(module).__name__
    # First, because PEFT also saves the embeddings that an adapter changes.
    state = module.state_dict()
    for name, value in additions.replaced.items():
        if name not in state:
            raise UserModelError(f"{mismatch}: {kind} has no tensor {name}")
        tensor = as_tensor(value).to(state[name].dtype)
        _check_shape(name, state[name], tensor, mismatch)
        layer, _, key = name.rpartition(".")
        owner = module.get_submodule(layer)
        if isinstance(getattr(owner, key), torch.nn.Parameter):  # PEFT's copy is not tied
            owner.register_parameter(key, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            state[name].data.copy_(tensor)
    for name, delta in additions.deltas():
        try:
            layer = module.get_submodule(name)
            weight = layer.weight
        except AttributeError as error:
            raise UserModelError(
                f"{mismatch}: {kind} has no layer {name}; check --base, and --task if the class "
                "is wrong"
            ) from error
        added = torch.from_numpy(delta.copy())
        if type(layer).__name__ == "Conv1D":  # GPT-2's has [inputs, outputs]
            added = added.T
        _check_shape(name, weight, added, mismatch)
        weight.data.copy_((weight.double() + added).to(weight.dtype))


def _check_shape(name: str, own: torch.Tensor, other: torch.Tensor, mismatch: str) -> None:
    if own.shape != other.shape:
        sizes = ["x".join(map(str, tensor.shape)) for tensor in (other, own)]
        raise UserModelError(f"{mismatch}: {name} has size {sizes[0]}, but the base has {sizes[1]}")
