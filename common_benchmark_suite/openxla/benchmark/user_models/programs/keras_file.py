"""Reads the configuration in a Keras file, without Keras, and finds code in it."""

import importlib.util
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openxla.benchmark import bounded
from openxla.benchmark.user_models.model_options import UserModelError

_MAGIC = b"\x89HDF\r\n\x1a\n"
_CONFIG = "config.json"
_MOST_BYTES = 2**26
# Layers that hold code, or load it from elsewhere.
_CODE = ("Lambda", "__lambda__", "TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer")
_OWN_MODULES = ("keras", "builtins", "tf_keras", "numpy")


def check(path: Path, *, allow_code: bool) -> None:
    """Rejects files that are incomplete, hold only weights, or hold code; see `_read`.

    Raises:
      UserModelError: the model cannot be built from the file; the message names the layer.
    """
    config = _read(path)
    if config is None:  # only a worker can read it
        return
    for layer, name in _objects(config):
        label = f"the layer {name!r}" if name else "the model"
        if layer["class_name"] in _CODE and not allow_code:
            raise UserModelError(
                f"{path.name}: {label} is a {layer['class_name']}, which is code; pass "
                "--allow-code if you trust the file"
            )
        module = layer.get("module", "keras")
        if module is None or (module.partition(".")[0] not in _OWN_MODULES and not allow_code):
            where = f" from {module}" if module else ""
            raise UserModelError(
                f"{path.name}: {label} has the class {layer['class_name']}{where}, which is not "
                "in the file; pass a PATH.py that defines the class and has a function that "
                f"returns keras.saving.load_model({str(path)!r})"
            )


def is_hdf5(path: Path) -> bool:
    """Returns whether a file is HDF5, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _read(path: Path) -> dict[str, Any] | None:
    """Returns the model's configuration; None if reading it needs a package that is missing.

    Raises:
      UserModelError: the file is incomplete, or holds no model.
    """
    try:
        if not is_hdf5(path):
            return _parsed(path, _from_zip(path))
        if path.suffix.lower() == ".keras":
            raise UserModelError(f"{path} is HDF5; rename it to end in .h5")
        if importlib.util.find_spec("h5py") is None:
            return None
        # In a separate process, so that a crash of the HDF5 library ends only that.
        return _parsed(path, bounded.call(_from_hdf5, path))
    except (bounded.TooCostlyError, OSError) as error:
        raise UserModelError(f"{path} cannot be read: {error}") from error


def _from_zip(path: Path) -> str | bytes:
    if path.suffix.lower() != ".keras":
        raise UserModelError(f"{path} ends in {path.suffix}, but is not an HDF5 file")
    try:
        with zipfile.ZipFile(path) as archive:
            if _CONFIG not in archive.namelist():
                raise UserModelError(
                    f"{path} is a zip archive without {_CONFIG}, not a Keras model"
                )
            if archive.getinfo(_CONFIG).file_size > _MOST_BYTES:
                raise UserModelError(f"{path}: {_CONFIG} is larger than {_MOST_BYTES} bytes")
            if (broken := archive.testzip()) is not None:
                raise UserModelError(f"{path} is damaged: {broken} has changed since it was saved")
            return archive.read(_CONFIG)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UserModelError(
            f"{path} is not a complete Keras file ({error}); save or download it again"
        ) from error


def _from_hdf5(path: Path) -> str | bytes:
    import h5py  # only the bounded process loads the library

    try:
        with h5py.File(path, "r") as file:
            config = file.attrs.get("model_config")
            is_of_keras = "layer_names" in file.attrs or {"layers", "vars"} <= set(file)
    except OSError as error:
        raise UserModelError(
            f"{path} is not a complete HDF5 file ({error}); save or download it again"
        ) from error
    if config is None:
        holds = "only weights" if is_of_keras else "no Keras model"
        raise UserModelError(
            f"{path} contains {holds}: it has no model_config; pass the file that creates the "
            "model, PATH.py:CALLABLE, or save the whole model with model.save"
        )
    return bytes(config) if isinstance(config, bytes) else str(config)


def _parsed(path: Path, text: str | bytes) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserModelError(f"{path}: its configuration is not JSON: {error}") from error
    if not isinstance(config, dict) or "class_name" not in config:
        raise UserModelError(f"{path} is not a Keras model: its configuration names no class")
    return config


def _objects(config: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields each object in a configuration with the name of its layer."""
    waiting = [(config, "")]
    while waiting:
        item, name = waiting.pop()
        if isinstance(item, dict):
            inner = item.get("config")
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                # A data type policy has a name, too.
                name = name if item.get("class_name") == "DTypePolicy" else inner["name"]
            if isinstance(item.get("class_name"), str):
                yield item, name
            waiting += [(value, name) for value in reversed(item.values())]
        elif isinstance(item, list):
            waiting += [(value, name) for value in reversed(item)]
