"""Weights: seeded, trained or pretrained, as a directory in Hugging Face's format.

`seeded` only needs numpy and gives the same bytes on every machine: each tensor has its own
counter-based generator (Philox, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"),
keyed by seed and tensor name; its raw 32-bit words become uniform numbers by exact arithmetic, so
no library's implementation of a normal distribution can change them.
"""

import abc
import functools
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.files import new_directory, sha256_of
from openxla.benchmark.installation import root_dir
from openxla.benchmark.models import trained
from openxla.benchmark.models.architectures import base, directories
from openxla.benchmark.models.architectures.base import Architecture, TensorInit, digest_of

if TYPE_CHECKING:  # the identity of a checkpoint is computed without numpy
    import numpy as np
    import numpy.typing as npt

WEIGHTS_FILE = directories.WEIGHTS_FILE
MANIFEST_FILE = "manifest.json"
SEEDED, PRETRAINED, DIRECTORY = "seeded", "pretrained", "directory"
_GENERATOR = "philox4x64-uniform24/1"


class CheckpointError(RuntimeError):
    """A checkpoint is unavailable; the message gives the remedy."""


def resolve(architecture: Architecture, parameters: Parameters) -> Path:
    """Returns the checkpoint directory for a model's parameters, making it if necessary.

    Parameters read: `model_name`, `checkpoint` (`seeded`, the default, `trained`, `pretrained`, or
    `directory`, whose path is then `model_name`), `seed`.

    Raises:
      DefinitionError: the parameters are wrong.
      CheckpointError: the pretrained checkpoint cannot be fetched.
    """
    return _checkpoint(architecture, parameters).resolve()


def identity(architecture: Architecture, parameters: Parameters) -> str:
    """Returns the identity of this checkpoint, without making or fetching it."""
    return _checkpoint(architecture, parameters).identity


def directory_of(architecture: Architecture, parameters: Parameters) -> Path:
    """Returns the directory of a model's checkpoint, which may not exist yet.

    Raises:
      DefinitionError: the parameters are wrong.
    """
    return _checkpoint(architecture, parameters).directory


def facts_of(architecture: Architecture, parameters: Parameters) -> dict[str, Any]:
    """Returns the metadata in that checkpoint's `manifest.json`."""
    return _checkpoint(architecture, parameters).facts


@functools.lru_cache(maxsize=256)
def recipe_digest(architecture: Architecture, model_name: str, seed: int) -> str:
    """Returns the sha256 of everything that determines a seeded checkpoint's bytes."""
    config = architecture.config(model_name)
    facts = {"generator": _GENERATOR, "seed": seed, "config": config}
    return digest_of({**facts, "tensors": list(architecture.tensors(config))})


def seeded(architecture: Architecture, model_name: str, *, seed: int = 0) -> Path:
    """Returns the directory of a seeded checkpoint, made on first use.

    The directory is named by the digest of its recipe (configuration, tensors, seed, generator),
    which determines its content byte for byte; `manifest.json` in it holds the sha256 of each file.

    Raises:
      DefinitionError: the architecture has no model of that name.
    """
    return _Seeded(architecture, model_name, seed).resolve()


def pretrained(repository: str, revision: str) -> Path:
    """Returns the directory of a checkpoint of the Hugging Face hub, fetched on first use.

    Raises:
      CheckpointError: the hub cannot be reached or does not know the checkpoint.
    """
    return _Pretrained(repository, revision).resolve()


def load_tensors(
    architecture: Architecture, checkpoint: Path
) -> "Mapping[str, npt.NDArray[np.generic]]":
    """Returns a checkpoint's weights by our names, as stored; tensors are read lazily."""
    from openxla.benchmark.models.checkpoint_tensors import SafetensorsFile

    file = SafetensorsFile(*directories.weight_files(checkpoint))
    return file.renamed(architecture.canonical_weight_name)


def generate(init: TensorInit, *, seed: int) -> "npt.NDArray[np.generic]":
    """Returns one tensor of a seeded checkpoint; float32 or int64, of the declared shape."""
    import numpy as np

    if init.dtype == "I64":
        return np.full(init.shape, int(init.mean), np.int64)
    count = int(np.prod(init.shape, dtype=np.int64))
    key = hashlib.sha256(f"{seed}/{init.name}".encode()).digest()[:16]
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw((count + 1) // 2)
    halves = words.astype("<u8", copy=False).view("<u4")[:count]
    # 24 bits fit float32 exactly, and so does k * 2^-23 - 1: uniform in [-1, 1) without rounding.
    values = (halves >> np.uint32(8)).astype(np.float32)
    values *= np.float32(2.0**-23)
    values -= np.float32(1)
    values *= np.float32(init.stddev * 3.0**0.5)
    values += np.float32(init.mean)
    return values.reshape(init.shape)


def write_weights(path: Path, inits: Iterable[TensorInit], *, seed: int) -> None:
    """Writes seeded tensors to a safetensors file, one at a time."""
    from openxla.benchmark.models import checkpoint_tensors

    by_name = {init.name: init for init in inits}
    signatures = {name: (init.dtype, init.shape) for name, init in by_name.items()}
    checkpoint_tensors.write_safetensors(
        path, signatures, lambda name: generate(by_name[name], seed=seed)
    )


class _Checkpoint(abc.ABC):
    """A checkpoint: its identity, its directory, and the way to make it."""

    @property
    @abc.abstractmethod
    def identity(self) -> str: ...

    @property
    @abc.abstractmethod
    def directory(self) -> Path: ...

    @property
    @abc.abstractmethod
    def facts(self) -> dict[str, Any]: ...

    @abc.abstractmethod
    def resolve(self) -> Path: ...


class _Made(_Checkpoint):
    """A seeded checkpoint of one of the architecture's own configurations."""

    architecture: Architecture
    model_name: str

    @property
    @abc.abstractmethod
    def digest(self) -> str: ...

    @abc.abstractmethod
    def write_weights(self, directory: Path, tensors: Iterable[TensorInit]) -> None: ...

    @property
    def directory(self) -> Path:
        name = self.architecture.canonical_name(self.model_name).replace("/", "--")
        return root_dir() / "checkpoints" / f"{name}-{self.digest[:16]}"

    def resolve(self) -> Path:
        target = self.directory
        if (target / MANIFEST_FILE).is_file():
            return target
        config = self.architecture.config(self.model_name)
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        with new_directory(target, whole_with=MANIFEST_FILE) as directory:
            (directory / "config.json").write_text(text)
            for name, source in self.architecture.checkpoint_files().items():
                shutil.copyfile(source, directory / name)
            self.write_weights(directory, self.architecture.tensors(config))
            _write_manifest(directory, self.facts)
        return target


@attrs.frozen
class _Seeded(_Made):
    architecture: Architecture
    model_name: str
    seed: int

    @property
    def digest(self) -> str:
        return recipe_digest(self.architecture, self.model_name, self.seed)

    @property
    def identity(self) -> str:
        return f"seeded-{self.seed}-{self.digest}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": SEEDED, "seed": self.seed, "recipe_sha256": self.digest}

    def write_weights(self, directory: Path, tensors: Iterable[TensorInit]) -> None:
        write_weights(directory / WEIGHTS_FILE, tensors, seed=self.seed)


@attrs.frozen
class _Trained(_Made):
    """Weights that ship with the suite; tensors unused by their task are seeded."""

    architecture: Architecture
    model_name: str

    @property
    def digest(self) -> str:
        return trained.weights_digest(self.model_name)

    @property
    def identity(self) -> str:
        return f"trained-{self.digest}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": trained.KIND, "weights_sha256": self.digest}

    def write_weights(self, directory: Path, tensors: Iterable[TensorInit]) -> None:
        from openxla.benchmark.models import checkpoint_tensors

        packed = directory / "packed"
        trained.unpack(self.model_name, packed)
        weights = checkpoint_tensors.SafetensorsFile(packed)
        by_name = {init.name: init for init in tensors}
        checkpoint_tensors.write_safetensors(
            directory / WEIGHTS_FILE,
            {name: (init.dtype, init.shape) for name, init in by_name.items()},
            lambda name: weights[name] if name in weights else generate(by_name[name], seed=0),
        )
        packed.unlink()


@attrs.frozen
class _Pretrained(_Checkpoint):
    repository: str
    revision: str

    @property
    def identity(self) -> str:
        return f"{self.repository}@{self.revision}"

    @property
    def directory(self) -> Path:
        name = self.repository.replace("/", "--")
        return root_dir() / "checkpoints" / f"{name}-{self.revision[:16]}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": PRETRAINED, "repository": self.repository, "revision": self.revision}

    def resolve(self) -> Path:
        target = self.directory
        if (target / MANIFEST_FILE).is_file():
            return target
        if (target / "config.json").is_file() and (target / WEIGHTS_FILE).is_file():
            # The user put the files there, as the message below suggests.
            _write_manifest(target, self.facts)
            return target
        try:
            from huggingface_hub import snapshot_download
        except ModuleNotFoundError as error:
            raise CheckpointError(
                f"pretrained checkpoint {self.identity}: huggingface_hub is not installed; "
                "run `pip install huggingface_hub`, or use the seeded checkpoint (the default)"
            ) from error
        wanted = ["config.json", "*.safetensors", "tokenizer*.json", "vocab*", "merges.txt"]
        try:
            with new_directory(target, whole_with=MANIFEST_FILE) as directory:
                snapshot_download(
                    self.repository,
                    revision=self.revision,
                    local_dir=directory,
                    allow_patterns=wanted,
                )
                shutil.rmtree(directory / ".cache", ignore_errors=True)
                if not (directory / WEIGHTS_FILE).is_file():
                    raise CheckpointError(f"the hub has no {WEIGHTS_FILE} for {self.identity}")
                _write_manifest(directory, self.facts)
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"pretrained checkpoint {self.identity} could not be fetched "
                f"({type(error).__name__}: {error}). Check the network and HF_ENDPOINT, put the "
                f"files into {target} by hand, or use the seeded checkpoint (the default)"
            ) from error
        return target


@attrs.frozen
class _Directory(_Checkpoint):
    """A user's directory, with its own configuration."""

    directory: Path
    source_sha256: str

    @property
    def identity(self) -> str:
        return f"{DIRECTORY}-{self.source_sha256}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": DIRECTORY, "source_sha256": self.source_sha256}

    def resolve(self) -> Path:
        return self.directory


def _checkpoint(architecture: Architecture, parameters: Parameters) -> _Checkpoint:
    kind, model_name = _kind(parameters), str(parameters["model_name"])
    if kind == DIRECTORY:
        return _Directory(Path(model_name), str(parameters["source_sha256"]))
    if kind == trained.KIND:
        return _Trained(architecture, model_name)
    if kind == SEEDED:
        return _Seeded(architecture, model_name, _seed(parameters))
    return _Pretrained(*_repository(architecture, model_name))


def _kind(parameters: Parameters) -> str:
    kind = parameters.get("checkpoint", SEEDED)
    if kind not in (known := (SEEDED, trained.KIND, PRETRAINED, DIRECTORY)):
        raise DefinitionError(f"checkpoint {kind!r} is not one of {', '.join(known)}")
    is_directory = base.is_directory(str(parameters["model_name"]))
    if (kind == DIRECTORY) != is_directory or (is_directory and "source_sha256" not in parameters):
        raise DefinitionError(
            f"checkpoint {DIRECTORY!r} and source_sha256 are required for models from a directory, "
            "and not allowed for others"
        )
    return str(kind)


def _seed(parameters: Parameters) -> int:
    seed = parameters.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DefinitionError(f"seed must be an integer >= 0, got {seed!r}")
    return seed


def _repository(architecture: Architecture, model_name: str) -> tuple[str, str]:
    if model_name not in architecture.pretrained:
        raise DefinitionError(f"{architecture.name} has no pretrained checkpoint for {model_name}")
    return architecture.pretrained[model_name]


def _write_manifest(directory: Path, facts: Mapping[str, Any]) -> None:
    files = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        files[path.relative_to(directory).as_posix()] = {
            "sha256": sha256_of(path),
            "size_bytes": path.stat().st_size,
        }
    manifest = {**facts, "files": files}
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
