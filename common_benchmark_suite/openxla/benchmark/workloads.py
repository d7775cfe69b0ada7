"""The workload of a case, i.e. the identity shared with cases in other frameworks."""

import functools
import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark import old_names
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    ModelTestData,
    Parameters,
    ParameterValue,
    TensorSpec,
    Workload,
)
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures.base import Architecture, digest_of
from openxla.benchmark.models.model_interfaces import TOKENS
from openxla.benchmark.testdata import file_digest
from openxla.benchmark.training import STEPS, optimizer_of

_PLACES = ("source", "base", "folder", "packages", "hub", "tree", "written")


def workload_of(case: BenchmarkCase) -> Workload:
    """Returns the identity under which a case may be compared with others.

    It is computed from definitions alone, without frameworks, weights or inputs.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    if case.model.model_impl.architecture is None:
        return _private_workload(case)
    architecture = architectures.get(case.model.model_impl.architecture)
    parameters = architecture.complete(case.model.model_parameters)
    if "model_name" not in parameters:
        raise DefinitionError(f"Model {case.model.name!r}: parameter 'model_name' is missing")
    # With types, because 1 and True are equal as keys, but different parameters.
    items = tuple((key, type(value), value) for key, value in sorted(parameters.items()))
    return _shared_workload(architecture, items, case.input_data)


@functools.cache
def _shared_workload(
    architecture: Architecture,
    items: tuple[tuple[str, type, ParameterValue], ...],
    input_data: ModelTestData,
) -> Workload:
    """Returns the workload of an architecture's parameters, once for all frameworks."""
    parameters = {key: value for key, _, value in items}
    inputs, outputs = architecture.input_specs(parameters), architecture.output_specs(parameters)
    fields = {
        "architecture": f"{architecture.name}/{architecture.version}",
        "config_digest": _config_digest(architecture, str(parameters["model_name"])),
        "checkpoint": checkpoints.identity(architecture, parameters),
        "data_type": parameters.get("data_type"),
        "input_digest": _input_digest(input_data, architecture.default_input_files()),
    }
    # Includes outputs: models that generate different numbers of tokens have the same inputs.
    specs: dict[str, Any] = {"inputs": list(map(str, inputs)), "outputs": list(map(str, outputs))}
    if (training := architecture.training(parameters)) is not None:
        specs["training"] = training
    if hidden := architecture.hidden_sizes(parameters):
        specs["hidden"] = hidden
    return Workload(
        label=architecture.label(parameters),
        inputs=inputs,
        digest=digest_of({**fields, **specs}),
        **fields,  # type: ignore[arg-type]  # texts all of them; data_type may be None
    )


def _described(case: BenchmarkCase) -> tuple[Architecture, Parameters] | None:
    """Returns a case's architecture and complete parameters; None without an architecture."""
    if (name := case.model.model_impl.architecture) is None:
        return None
    architecture = architectures.get(name)
    return architecture, architecture.complete(case.model.model_parameters)


def generated_tokens(case: BenchmarkCase) -> TensorSpec | None:
    """Returns the spec of the tokens that a case generates, i32[batch, new]; None without any.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    found = _described(case)
    return (
        found[0].output_specs(found[1])[TOKENS] if found and found[0].generates(found[1]) else None
    )


def has_weights(case: BenchmarkCase) -> bool:
    """Returns whether a case has any weights; True if unknown."""
    found = _described(case)
    return found is None or found[0].has_weights(found[1])


def trains(case: BenchmarkCase) -> bool:
    """Returns whether a case computes gradients in addition to its outputs.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    found = _described(case)
    return found is not None and found[0].trains(found[1])


def training_of(case: BenchmarkCase) -> Mapping[str, Any] | None:
    """Returns the settings of a case's training steps; None if it takes no steps.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    found = _described(case)
    return found[0].training(found[1]) if found else _user_training(case.model.model_parameters)


def _user_training(parameters: Parameters) -> Mapping[str, Any] | None:
    """Returns the training settings of a user's file, which has its own loss."""
    if "train" not in parameters or "callable" not in parameters:
        return None
    optimizer = attrs.asdict(optimizer_of(parameters))
    return {"task": "loss of the file", "steps": STEPS, "optimizer": optimizer}


@functools.cache
def _config_digest(architecture: Architecture, model_name: str) -> str:
    return digest_of(architecture.config(model_name))


@functools.cache
def _input_digest(data: ModelTestData, files: tuple[Path, ...]) -> str:
    """Digest of a user's arrays; else of the raw input's name and source files."""
    return data.content_sha256 or digest_of([data.name, [file_digest(path) for path in files]])


def _private_workload(case: BenchmarkCase) -> Workload:
    """A model without an architecture has a workload that no other model shares."""
    model, parameters = case.model, dict(case.model.model_parameters)
    # A user's model is identified by the content of its files, wherever they and their packages
    # are.
    digests = ("source_sha256", "folder_sha256", "tree_sha256")
    content = next((parameters[name] for name in digests if parameters.get(name)), None)
    if content is not None:
        parameters = {k: v for k, v in parameters.items() if k not in _PLACES}
    fields = {
        "architecture": f"{model.model_impl.name}",
        "config_digest": digest_of(parameters),
        "checkpoint": f"source-{content or source_digest(model.model_impl.module_path)}",
        "data_type": case.data_type,
        "input_digest": _input_digest(case.input_data, ()),
    }
    return Workload(label=model.name, inputs=(), digest=digest_of(fields), **fields)  # type: ignore[arg-type]


def source_digest(module_path: str | None) -> str:
    """Returns the sha256 of a module's source file; `unknown` without a file.

    Parent packages are imported to find it, but not the module itself.
    """
    if module_path is None:
        return "unknown"
    try:
        # Finding a former name would import the module itself, as its parent package.
        spec = importlib.util.find_spec(old_names.present_name(module_path))
    except (ImportError, ValueError):
        return "unknown"
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return "unknown"
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
