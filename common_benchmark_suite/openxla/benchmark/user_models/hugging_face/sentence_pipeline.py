"""sentence-transformers pipelines (`modules.json`), read without that package."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.architectures.directories import CONFIG_FILE, WEIGHTS_FILE
from openxla.benchmark.user_models.refusals import refuse_substitute
from openxla.benchmark.user_models.wanted import BroughtError

MODULES_FILE = "modules.json"
_PICKLE = "pytorch_model.bin"
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
_MOST_BYTES = 2**20


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
        return any(file.name == _PICKLE for file in self.files)

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


def read(directory: Path, *, allow_code: bool = False) -> Pipeline | None:
    """Returns the pipeline of a directory; None if it has no `modules.json`.

    Args:
      directory: path of the pipeline.
      allow_code: whether to accept weights that can hold code.

    Raises:
      BroughtError: a file is missing or malformed, or a module has an unknown type.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    listed = _json(path)
    if not isinstance(listed, list) or not listed:
        raise BroughtError(f"{path} lists no modules")
    kinds = [_kind(path, entry) for entry in listed]
    folders = [_folder(directory, path, entry) for entry in listed]
    if kinds[0] != _TRANSFORMER:
        raise BroughtError(f"{path} starts with {kinds[0]}; only a Transformer can come first")
    files = [path]
    stages = []
    for kind, folder in zip(kinds[1:], folders[1:], strict=True):
        stage, read_files = _stage(path, kind, folder, allow_code=allow_code)
        stages.append(stage)
        files += read_files
    if stages and "Pooling" not in kinds:
        raise BroughtError(f"{path} has no Pooling, so it makes no sentence embedding")
    return Pipeline(transformer=folders[0], stages=stages, files=files)


def _kind(path: Path, entry: object) -> str:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str):
        raise BroughtError(f"{path}: each module needs a type, e.g. {_PACKAGE}.models.Pooling")
    package, name = kind.partition(".")[0], kind.rpartition(".")[2]
    if package != _PACKAGE or name not in (*_STAGES, _TRANSFORMER):
        raise BroughtError(
            f"{path}: modules of type {kind} are not supported (supported are {_TRANSFORMER}, "
            f"{', '.join(_STAGES)}); write a Python file that builds the model"
        )
    return name


def _folder(directory: Path, path: Path, entry: Mapping[str, Any]) -> Path:
    name = str(entry.get("path") or "")
    folder = (directory / name).resolve()
    if not folder.is_relative_to(directory.resolve()):
        raise BroughtError(f"{path} names {name!r}, which is outside its directory")
    return directory / name


def _stage(path: Path, kind: str, folder: Path, *, allow_code: bool) -> tuple[Stage, list[Path]]:
    file = folder / CONFIG_FILE
    is_told = kind not in ("Normalize", "Dropout")
    if is_told and not file.is_file():
        raise BroughtError(f"{path} names a {kind}, but {file} does not exist")
    config = _json(file) if file.is_file() else {}
    if not isinstance(config, dict):
        raise BroughtError(f"{file} is not a JSON object")
    files = [file] if is_told else []
    weights = None
    if _STAGES[kind]:
        weights = folder / WEIGHTS_FILE
        if not weights.is_file() and (folder / _PICKLE).is_file():
            weights = folder / _PICKLE
            if not allow_code:
                raise BroughtError(
                    f"{weights} is a pickle, which can run code when loaded; save it as "
                    "safetensors, or pass --allow-code if you trust it"
                )
        if not weights.is_file():
            raise BroughtError(f"{folder} has no {WEIGHTS_FILE}")
        refuse_substitute(weights)
        files.append(weights)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise BroughtError(f"{file}: {key} {config[key]!r} is not supported")
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
            raise BroughtError(
                f"{file}: unknown pooling_mode {unknown[0]!r}; choices are "
                f"{', '.join(MODES.values())}"
            )
        chosen = {known[name] for name in short}
    else:
        ours = {key for key in config if key.startswith("pooling_mode_") and config[key]}
        if unknown := sorted(ours - MODES.keys()):
            raise BroughtError(f"{file}: unknown {unknown[0]}; choices are {', '.join(MODES)}")
        usual = {"pooling_mode_mean_tokens": True}  # if the file does not name a mode
        chosen = {
            MODES[key] for key, is_on in {**usual, **config}.items() if key in MODES and is_on
        }
    if not chosen:
        raise BroughtError(f"{file} has no mode of pooling; choices are {', '.join(MODES)}")
    return tuple(name for name in MODES.values() if name in chosen)


def _json(path: Path) -> Any:
    refuse_substitute(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BroughtError(f"{path} is larger than {_MOST_BYTES} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BroughtError(f"{path} is not JSON: {error}") from error
