"""LoRA adapters and sentence-transformers pipelines, read without their packages.

https://huggingface.co/docs/peft describes an adapter's files: their configuration, and what they
add to the base's weights. A layer's weight W becomes W + scale * B A, and layers that were trained
in full are replaced. A pipeline is described by its `modules.json`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.architectures.directories import CONFIG_FILE, WEIGHTS_FILE
from openxla.benchmark.models.checkpoint_tensors import SafetensorsFile
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.refusals import refuse_substitute

ADAPTER_FILE = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PICKLE = "adapter_model.bin"
_MOST_BYTES = 2**24
_PREFIX = "base_model.model."
# Keys that do not affect the additions, and keys that are read below.
_NEUTRAL = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode"),
        *("peft_type", "peft_version", "target_modules", "exclude_modules", "lora_dropout"),
        *("layers_to_transform", "layers_pattern", "bias", "megatron_core", "parent_library"),
        *("runtime_config", "qalora_group_size", "eva_config", "ensure_weight_tying"),
        *("fan_in_fan_out", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"),
        *("modules_to_save", "init_lora_weights"),
    }
)
# Other initialisations change the base's weights before training.
_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
# PEFT's task name -> the transformers class that loads the model.
_TASKS: Mapping[str, str] = MappingProxyType(
    {
        "CAUSAL_LM": "AutoModelForCausalLM",
        "SEQ_CLS": "AutoModelForSequenceClassification",
        "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
        "TOKEN_CLS": "AutoModelForTokenClassification",
        "QUESTION_ANS": "AutoModelForQuestionAnswering",
        "FEATURE_EXTRACTION": "AutoModel",
    }
)
_FACTOR = re.compile(r"(.+)\.lora_(embedding_)?(A|B)(?:\.weight)?")

MODULES_FILE = "modules.json"
_SENTENCE_PIPELINE_PICKLE = "pytorch_model.bin"
_PACKAGE = "sentence_transformers"
_TRANSFORMER = "Transformer"
# Stages after the transformer, and whether they have weights.
_STAGES: Mapping[str, bool] = MappingProxyType(
    {"Pooling": False, "Normalize": False, "Dense": True, "LayerNorm": True, "Dropout": False}
)
# Pooling modes by key in the file, in the order in which their results are concatenated.
MODES: Mapping[str, str] = MappingProxyType(
    {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
        "pooling_mode_weightedmean_tokens": "weightedmean",
        "pooling_mode_lasttoken": "lasttoken",
    }
)
_SENTENCE_PIPELINE_MOST_BYTES = 2**20


@attrs.frozen(kw_only=True)
class Adapter:
    """A LoRA adapter.

    Attributes:
      directory: path of the adapter.
      config: the content of `adapter_config.json`.
      base_name: name of its base model, as in the configuration.
    """

    directory: Path
    config: Mapping[str, Any]
    base_name: str

    def base(self, given: Path | None) -> Path:
        """Returns the directory of the base.

        Args:
          given: absolute path from the user; None to use the name in the adapter.

        Raises:
          UserModelError: the base is not on this machine.
        """
        named = Path(self.base_name).expanduser() if self.base_name else None
        base = given or (self.directory / named if named else None)
        if base is not None and (base / "config.json").is_file():
            return base.resolve()
        if given is not None:
            raise UserModelError(f"--base {given} is not a Hugging Face directory")
        raise UserModelError(
            f"{self.directory.name} is a LoRA adapter of {self.base_name or 'an unnamed model'}; "
            "pass --base DIR with the directory of that model"
        )

    def model_class(self) -> str | None:
        """Returns the name of the base's class in transformers; None if the base decides."""
        mapping = self.config.get("auto_mapping")
        own = mapping.get("base_model_class") if isinstance(mapping, Mapping) else None
        return str(own) if own else _TASKS.get(str(self.config.get("task_type")))

    def digest(self, base: str) -> str:
        """Returns the sha256 of the merged model: the base and both adapter files."""
        files = (self.directory / ADAPTER_FILE, self.directory / _WEIGHTS)
        return hashlib.sha256("\n".join([base, *map(sha256_of, files)]).encode()).hexdigest()

    def merged(self) -> "Additions":
        """Returns the adapter's additions to its base, and the tensors that it replaces.

        Raises:
          UserModelError: the weights do not match the configuration.
        """
        return _additions(self)

    def scale(self, layer: str, rank: int) -> float:
        """Returns the scale of a layer's addition.

        Raises:
          UserModelError: the rank of the layer's factors differs from the configuration.
        """
        try:
            stated = _of_pattern(self.config.get("rank_pattern"), layer, self.config.get("r", 8))
            alpha = _of_pattern(
                self.config.get("alpha_pattern"), layer, self.config.get("lora_alpha", 8)
            )
            if int(stated) != rank:
                raise UserModelError(
                    f"{self.directory.name}: {layer} has factors of rank {rank}, but "
                    f"{ADAPTER_FILE} requires {stated}"
                )
            return float(alpha) / (rank**0.5 if self.config.get("use_rslora") else rank)
        except (TypeError, ValueError, AttributeError, re.error, ZeroDivisionError) as error:
            raise UserModelError(
                f"{self.directory / ADAPTER_FILE} is malformed: {error}"
            ) from error


@attrs.frozen(kw_only=True)
class Additions:
    """The changes that an adapter makes to its base.

    Attributes:
      layers: by layer name: the factors A and B, the scale, and whether the layer is an embedding
        table.
      replaced: tensors by name.
    """

    layers: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any], float, bool]]
    replaced: Mapping[str, npt.NDArray[Any]]

    def deltas(self) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
        """Yields the name of each layer and its addition, of shape [outputs, inputs, ...].

        For an embedding table the shape is [rows, width].
        """
        for name, (a, b, scale, is_table) in self.layers.items():
            product = b.reshape(len(b), -1).astype(np.float64) @ a.reshape(len(a), -1)
            delta = scale * product.reshape(len(b), *a.shape[1:])
            yield name, delta.T if is_table else delta


def read_adapter(directory: Path) -> Adapter | None:
    """Reads the adapter in a directory; returns None without an `adapter_config.json`.

    Raises:
      UserModelError: the adapter is malformed, or does not compute W + scale * B A.
    """
    path = directory / ADAPTER_FILE
    if not path.is_file():
        return None
    refuse_substitute(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserModelError(f"{path} is larger than {_MOST_BYTES} bytes")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserModelError(f"{path} is not a JSON object")
    way_out = "merge it into its base with merge_and_unload(), and pass the saved directory"
    kind = str(config.get("peft_type"))
    if kind.upper() != "LORA":
        raise UserModelError(f"{path}: adapters of type {kind} are not supported; {way_out}")
    if config.get("use_dora"):
        raise UserModelError(f"{path}: DoRA adapters are not supported; {way_out}")
    if unknown := sorted(key for key in config.keys() - _NEUTRAL if config[key]):
        raise UserModelError(f"{path}: {unknown[0]} is not supported; {way_out}")
    if config.get("init_lora_weights") not in _STARTS:
        start = config["init_lora_weights"]
        raise UserModelError(f"{path}: init_lora_weights {start!r} is not supported; {way_out}")
    name = config.get("base_model_name_or_path")
    return Adapter(directory=directory, config=config, base_name=str(name or ""))


def check_weights(adapter: Adapter) -> None:
    """Checks that the weights cannot run code, and that the factors match.

    Raises:
      UserModelError: a check fails.
    """
    directory = adapter.directory
    if not (directory / _WEIGHTS).is_file():
        if (directory / _PICKLE).is_file():
            raise UserModelError(
                f"{directory / _PICKLE} is a pickle, which can run code when loaded; save the "
                "adapter as safetensors with save_pretrained()"
            )
        raise UserModelError(f"{directory} has no {_WEIGHTS}")
    refuse_substitute(directory / _WEIGHTS)
    file = _tensors(adapter)
    pairs: dict[str, dict[str, tuple[int, ...]]] = {}
    for name in file:
        if match := _FACTOR.fullmatch(name):
            pairs.setdefault(match[1], {})[match[3]] = file.shape(name)
    if not pairs:
        raise UserModelError(f"{directory / _WEIGHTS} has no factors lora_A and lora_B")
    for layer, factors in pairs.items():
        if factors.keys() != {"A", "B"}:
            (other,) = {"A", "B"} - factors.keys()
            raise UserModelError(f"{directory / _WEIGHTS} lacks {layer}.lora_{other}")
        a, b = factors["A"], factors["B"]
        if len(a) < 2 or len(b) < 2 or a[0] != b[1] or any(size != 1 for size in b[2:]):
            raise UserModelError(
                f"{directory / _WEIGHTS}: {layer} has factors of {_size(a)} and {_size(b)}, which "
                "cannot be multiplied"
            )
        adapter.scale(_short(layer), a[0])


def _additions(adapter: Adapter) -> Additions:
    file = _tensors(adapter)
    factors: dict[str, dict[str, npt.NDArray[Any]]] = {}
    tables = set()
    replaced = {}
    for name in file:
        if match := _FACTOR.fullmatch(name):
            layer = _short(match[1])
            factors.setdefault(layer, {})[match[3]] = file[name]
            if match[2]:
                tables.add(layer)
        else:
            replaced[re.sub(r"\.(modules_to_save|base_layer)(?=\.)", "", _short(name))] = file[name]
    layers = {
        layer: (ab["A"], ab["B"], adapter.scale(layer, len(ab["A"])), layer in tables)
        for layer, ab in factors.items()
    }
    return Additions(layers=layers, replaced=replaced)


def _tensors(adapter: Adapter) -> SafetensorsFile:
    try:
        return SafetensorsFile(adapter.directory / _WEIGHTS)
    except (ValueError, OSError) as error:
        raise UserModelError(f"{adapter.directory}: {error}") from error


def _short(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _of_pattern(patterns: Any, layer: str, usual: Any) -> Any:
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", layer):
            return value
    return usual


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@attrs.frozen(kw_only=True)
class Stage:
    """A module after the transformer.

    Attributes:
      kind: its class.
      config: the content of its configuration.
      modes: modes of a pooling, in the order in which they are concatenated.
      weights: its weight file; None if it has none.
    """

    kind: str
    config: Mapping[str, Any]
    modes: tuple[str, ...] = ()
    weights: Path | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({', '.join(self.modes)})" if self.modes else self.kind


@attrs.frozen(kw_only=True)
class Pipeline:
    """A transformer and the stages after it.

    Attributes:
      transformer: directory of the transformer.
      stages: in order.
      files: files that list and define the stages.
    """

    transformer: Path
    stages: Sequence[Stage]
    files: Sequence[Path]

    @property
    def is_pickled(self) -> bool:
        """Whether weights of a stage have to be unpickled."""
        return any(file.name == _SENTENCE_PIPELINE_PICKLE for file in self.files)

    def __str__(self) -> str:
        return ", ".join([_TRANSFORMER, *map(str, self.stages)])

    def digest(self, directory: Path, transformer: str) -> str:
        """Returns the sha256 of the whole pipeline.

        Args:
          directory: path of the pipeline.
          transformer: the digest of its transformer.
        """
        lines = [f"{file.relative_to(directory)} {sha256_of(file)}" for file in self.files]
        return hashlib.sha256("\n".join([transformer, *lines]).encode()).hexdigest()


def read_pipeline(directory: Path, *, allow_code: bool = False) -> Pipeline | None:
    """Returns the pipeline of a directory; None if it has no `modules.json`.

    Args:
      directory: path of the pipeline.
      allow_code: whether to accept weights that can hold code.

    Raises:
      UserModelError: a file is missing or malformed, or a module has an unknown type.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    listed = _json(path)
    if not isinstance(listed, list) or not listed:
        raise UserModelError(f"{path} lists no modules")
    kinds = [_kind(path, entry) for entry in listed]
    folders = [_folder(directory, path, entry) for entry in listed]
    if kinds[0] != _TRANSFORMER:
        raise UserModelError(f"{path} starts with {kinds[0]}; only a Transformer can come first")
    files = [path]
    stages = []
    for kind, folder in zip(kinds[1:], folders[1:], strict=True):
        stage, read_files = _stage(path, kind, folder, allow_code=allow_code)
        stages.append(stage)
        files += read_files
    if stages and "Pooling" not in kinds:
        raise UserModelError(f"{path} has no Pooling, so it does not produce a sentence embedding")
    return Pipeline(transformer=folders[0], stages=stages, files=files)


def _kind(path: Path, entry: object) -> str:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str):
        raise UserModelError(f"{path}: each module needs a type, e.g. {_PACKAGE}.models.Pooling")
    package, name = kind.partition(".")[0], kind.rpartition(".")[2]
    if package != _PACKAGE or name not in (*_STAGES, _TRANSFORMER):
        raise UserModelError(
            f"{path}: modules of type {kind} are not supported (supported are {_TRANSFORMER}, "
            f"{', '.join(_STAGES)}); write a Python file that builds the model"
        )
    return name


def _folder(directory: Path, path: Path, entry: Mapping[str, Any]) -> Path:
    name = str(entry.get("path") or "")
    folder = (directory / name).resolve()
    if not folder.is_relative_to(directory.resolve()):
        raise UserModelError(f"{path} names {name!r}, which is outside its directory")
    return directory / name


def _stage(path: Path, kind: str, folder: Path, *, allow_code: bool) -> tuple[Stage, list[Path]]:
    file = folder / CONFIG_FILE
    has_config = kind not in ("Normalize", "Dropout")
    if has_config and not file.is_file():
        raise UserModelError(f"{path} names a {kind}, but {file} does not exist")
    config = _json(file) if file.is_file() else {}
    if not isinstance(config, dict):
        raise UserModelError(f"{file} is not a JSON object")
    files = [file] if has_config else []
    weights = None
    if _STAGES[kind]:
        weights = folder / WEIGHTS_FILE
        if not weights.is_file() and (folder / _SENTENCE_PIPELINE_PICKLE).is_file():
            weights = folder / _SENTENCE_PIPELINE_PICKLE
            if not allow_code:
                raise UserModelError(
                    f"{weights} is a pickle, which can run code when loaded; save it as "
                    "safetensors, or pass --allow-code if you trust it"
                )
        if not weights.is_file():
            raise UserModelError(f"{folder} has no {WEIGHTS_FILE}")
        refuse_substitute(weights)
        files.append(weights)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise UserModelError(f"{file}: {key} {config[key]!r} is not supported")
    modes = _modes(file, config) if kind == "Pooling" else ()
    return Stage(kind=kind, config=config, modes=modes, weights=weights), files


def _modes(file: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the modes of a pooling, from one key per mode or from a key that lists them."""
    named = config.get("pooling_mode")
    names = {**MODES, **{name: name for name in MODES.values()}}
    if named:
        wanted = named.split("+") if isinstance(named, str) else list(named)
        short = [str(name).strip().removeprefix("pooling_mode_") for name in wanted]
        known = {key.removeprefix("pooling_mode_"): name for key, name in names.items()}
        if unknown := [name for name in short if name not in known]:
            raise UserModelError(
                f"{file}: unknown pooling_mode {unknown[0]!r}; choices are "
                f"{', '.join(MODES.values())}"
            )
        chosen = {known[name] for name in short}
    else:
        ours = {key for key in config if key.startswith("pooling_mode_") and config[key]}
        if unknown := sorted(ours - MODES.keys()):
            raise UserModelError(f"{file}: unknown {unknown[0]}; choices are {', '.join(MODES)}")
        usual = {"pooling_mode_mean_tokens": True}  # if the file does not name a mode
        chosen = {
            MODES[key] for key, is_on in {**usual, **config}.items() if key in MODES and is_on
        }
    if not chosen:
        raise UserModelError(f"{file} has no pooling mode; choices are {', '.join(MODES)}")
    return tuple(name for name in MODES.values() if name in chosen)


def _json(path: Path) -> Any:
    refuse_substitute(path)
    try:
        if path.stat().st_size > _SENTENCE_PIPELINE_MOST_BYTES:
            raise UserModelError(f"{path} is larger than {_SENTENCE_PIPELINE_MOST_BYTES} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserModelError(f"{path} is not JSON: {error}") from error
