"""Exports live models to files: a torch.nn.Module, a JAX function or a Keras model.

A framework is imported only if the model belongs to it; the user's process has then imported it
already.
"""

import importlib
import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from comparative_benchmark.errors import UsageError
from openxla.benchmark.artifacts.array_files import save_all

_KINDS = "a model path, a torch.nn.Module, a JAX function or a Keras model"
_WAY_OUT = "instead, pass the Python file that creates the model (PATH.py:CALLABLE)"
# Keras records the time of saving; without it, the same model has the same digest.
_KERAS_METADATA, _KERAS_TIME = "metadata.json", "date_saved"


class LiveModel(NamedTuple):
    """An exported live model.

    Attributes:
      path: path of the program.
      inputs: folder with `input_0.npy`, `input_1.npy` ...
    """

    path: Path
    inputs: Path


def export(model: Any, inputs: Any, folder: Path) -> LiveModel:
    """Exports a model of this process and its example inputs.

    The file is named after the class or function of the model.

    Args:
      model: a torch.nn.Module, a JAX function or a Keras model.
      inputs: a tuple or list of positional arguments, a dict of keyword arguments, or one array.
      folder: folder for the files.

    Raises:
      UsageError: the model has an unsupported type, has no inputs, or cannot be exported.
    """
    save: Callable[[Any, Any, Path], tuple[Path, Sequence[Any]]]
    stem = type(model).__name__
    if _is_instance(model, "keras", "Model"):
        save, tool = _save_keras, "Keras"
        stem = model.name if stem in ("Functional", "Sequential") else stem
    elif _is_instance(model, "torch.nn", "Module"):
        save, tool = _save_torch, "torch.export"
        model = getattr(model, "_orig_mod", model)  # unwrap torch.compile
        stem = type(model).__name__
    elif callable(model) and "jax" in sys.modules:
        save, tool = _save_jax, "jax.export"
        stem = getattr(model, "__name__", stem)
    else:
        hint = "; import jax before you pass a function" if callable(model) else ""
        raise UsageError(f"expected {_KINDS}, got {type(model).__name__}{hint}")
    stem = re.sub(r"\W+", "_", stem).strip("_") or "model"
    if inputs is None:
        raise UsageError(f"no example inputs were given for {stem}; call cb.run(model, inputs)")
    target = folder / stem
    target.mkdir(parents=True, exist_ok=True)
    try:
        path, arrays = save(model, inputs, target / stem)
    except UsageError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = ": ".join([type(error).__name__, *lines[:1]])
        raise UsageError(f"{tool} cannot export {stem}: {reason}; {_WAY_OUT}") from error
    shutil.rmtree(target / "inputs", ignore_errors=True)  # an earlier call may have had more
    save_all(target / "inputs", "input", arrays)
    return LiveModel(path, target / "inputs")


def _is_instance(model: Any, module: str, name: str) -> bool:
    """Returns whether the module has been imported and the model is an instance of its class."""
    return isinstance(model, getattr(sys.modules.get(module), name, ()))


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def _save_torch(model: Any, inputs: Any, stem: Path) -> tuple[Path, Sequence[Any]]:
    """Exports in evaluation mode, then restores the mode of each layer."""
    torch = sys.modules["torch"]
    pytree = importlib.import_module("torch.utils._pytree")
    if away := {str(p.device) for p in model.parameters() if p.device.type != "cpu"}:
        raise UsageError(
            f"{type(model).__name__} is on {', '.join(sorted(away))}; move it and its inputs to "
            "the CPU first: model.cpu()"
        )

    def as_tensor(value: Any) -> Any:
        return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

    def as_array(tensor: Any) -> Any:
        if tensor.dtype is torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    arguments, keywords = pytree.tree_map(as_tensor, _arguments(inputs))
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            program = torch.export.export(model, arguments, keywords)
    finally:
        for layer, mode in modes:
            layer.training = mode
    path = stem.with_suffix(".pt2")
    torch.export.save(program, path)
    leaves = pytree.tree_leaves((arguments, keywords))
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return path, [as_array(tensor) for tensor in tensors]


def _save_jax(model: Any, inputs: Any, stem: Path) -> tuple[Path, Sequence[Any]]:
    """Exports for CPUs; arguments and results become flat tuples of arrays."""
    jax = sys.modules["jax"]
    jax_export = importlib.import_module("jax.export")
    leaves, structure = jax.tree.flatten(_arguments(inputs))
    values = [jax.numpy.asarray(leaf) for leaf in leaves]

    def flat(*values: Any) -> Any:
        arguments, keywords = jax.tree.unflatten(structure, values)
        return tuple(jax.tree.leaves(model(*arguments, **keywords)))

    program = jax_export.export(
        jax.jit(flat, keep_unused=True),
        platforms=("cpu",),
        disabled_checks=(jax_export.DisabledSafetyCheck.platform(),),
    )(*values)
    path = stem.with_suffix(".jax_export")
    path.write_bytes(program.serialize())
    return path, [np.asarray(value) for value in values]


def _save_keras(model: Any, inputs: Any, stem: Path) -> tuple[Path, Sequence[Any]]:
    """Saves a model; calls it once first if it has not been built."""
    keras = sys.modules["keras"]
    if not model.built:
        model(inputs[0] if isinstance(inputs, tuple | list) and len(inputs) == 1 else inputs)
    taken = keras.tree.flatten(getattr(model, "inputs", ()))  # subclassed models declare none
    given = inputs
    if isinstance(inputs, Mapping) and {tensor.name for tensor in taken} == set(inputs):
        given = [inputs[tensor.name] for tensor in taken]
    leaves = keras.tree.flatten(given)
    arrays = [keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(leaf)) for leaf in leaves]
    if len(arrays) == len(taken):  # Keras casts inputs, too
        arrays = [a.astype(tensor.dtype) for a, tensor in zip(arrays, taken, strict=True)]
    path = stem.with_suffix(".keras")
    model.save(path)
    _remove_times(path)
    return path, arrays


def _remove_times(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(entries[_KERAS_METADATA])
    entries[_KERAS_METADATA] = json.dumps(metadata | {_KERAS_TIME: ""}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)
