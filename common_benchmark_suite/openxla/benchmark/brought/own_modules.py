"""Cases of a Python file that makes a model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from openxla.benchmark import testdata
from openxla.benchmark.artifacts.user_inputs import UserInputs
from openxla.benchmark.brought import outline as outlines
from openxla.benchmark.brought import specs
from openxla.benchmark.brought.outline import Outline
from openxla.benchmark.brought.places import OwnModule
from openxla.benchmark.brought.variants import Variant, framework_of, model_name, variants
from openxla.benchmark.brought.wanted import BroughtError, Wanted
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ModelTestData,
)
from openxla.benchmark.nearest import did_you_mean
from openxla.benchmark.training.optimizers import OPTIMIZERS

_ROOM = "openxla.benchmark.brought"
_MODULES = {
    ModelFrameworkType.PYTORCH: f"{_ROOM}.in_torch",
    ModelFrameworkType.JAX: f"{_ROOM}.in_jax",
    ModelFrameworkType.TF_V2: f"{_ROOM}.in_tensorflow",
}
_IMPORTS = {
    **dict.fromkeys(("torch", "torchvision", "transformers"), ModelFrameworkType.PYTORCH),
    **dict.fromkeys(("jax", "flax", "equinox"), ModelFrameworkType.JAX),
    **dict.fromkeys(("tensorflow", "keras"), ModelFrameworkType.TF_V2),
}
# What is meant where a file is named without a callable.
_USUAL = ("create_model", "model", "make_model", "get_model", "build_model")
_IS_MODEL = re.compile(r"(^|\.)(Module|Model|Layer|Sequential|InferenceModel)$")
EXAMPLE_INPUTS, EXAMPLE_BATCH = "example_inputs", "example_batch"


def cases(place: OwnModule, wanted: Wanted, given: UserInputs | None) -> list[BenchmarkCase]:
    """Returns the cases of a file's model.

    Raises:
      BroughtError: the file has no such callable, or it cannot be told which framework or which
        inputs it takes.
    """
    if wanted.task is not None:
        raise BroughtError("--task requires a Hugging Face directory")
    file = outlines.outline(place.file)
    name = _callable(place, file)
    framework = _framework(place, file, wanted.framework)
    inputs = [specs.parse(text) for text in wanted.inputs]
    specs.check_names(inputs)
    train = _optimizer(place, file, framework, wanted, given) if wanted.test == "train" else None
    if not inputs and given is None and train is None:
        _check_has_inputs(place, file)
    _check_sizes(inputs, wanted)
    implementation = ModelImplementation(
        name=model_name_of(place, name),
        tags=["brought"],
        framework_type=framework,
        module_path=_MODULES[framework],
        own_process=True,
    )
    digest = outlines.source_digest(place.file, place.root, place.module.partition(".")[0])
    shared = {
        "source": str(place.file),
        "module": place.module,
        "callable": name,
        "source_sha256": digest,
        **({"train": train} if train else {}),
    }
    return [
        _case(implementation, shared, inputs, given, variant, (place, name))
        for variant in variants(wanted, file.constants.get("DATA_TYPE", "fp32"))
    ]


def model_name_of(place: OwnModule, name: str) -> str:
    """Returns what an implementation is called, e.g. `my_net.make_small`."""
    stem = place.module or place.file.stem
    return re.sub(r"[^A-Za-z0-9.]+", "_", f"{stem}.{name}").strip("_.") or "model"


def _case(
    implementation: ModelImplementation,
    shared: Mapping[str, str],
    inputs: Sequence[specs.InputSpec],
    given: UserInputs | None,
    variant: Variant,
    called: tuple[OwnModule, str],
) -> BenchmarkCase:
    place, name = called
    filled = [spec.filled(variant.batch_size or 1, variant.seq_len) for spec in inputs]
    parameters: dict[str, Any] = {**shared, "data_type": variant.data_type}
    if filled:
        parameters |= specs.recorded(inputs, filled)
    if variant.batch_size is not None:
        parameters["batch_size"] = variant.batch_size
    if variant.seq_len is not None:
        parameters["seq_len"] = variant.seq_len
    stem = place.file.stem if not place.module else place.module.rpartition(".")[2]
    is_usual = name in _USUAL or name.lower() == stem.replace("_", "").lower()
    parts = [stem] if is_usual else [stem, name]
    if "train" in shared:
        parts += ["train", shared["train"]]
    model = Model(
        name=model_name(parts, implementation.framework_type, variant),
        model_impl=implementation,
        model_parameters=parameters,
    )
    return BenchmarkCase.build(model=model, input_data=_input_data(filled, given))


def _input_data(inputs: Sequence[specs.InputSpec], given: UserInputs | None) -> ModelTestData:
    if given is not None:
        return given.data
    if not inputs:
        return testdata.INPUT_DATA_MODEL_DEFAULT
    return ModelTestData(
        name="_".join(str(spec.spec).upper() for spec in inputs),
        source_url="",
        source_info="Random numbers described by --input.",
    )


def _callable(place: OwnModule, file: Outline) -> str:
    """Returns the name of what makes the model."""
    if place.callable:
        first = place.callable.partition(".")[0]
        if first not in file.names and not file.is_open:
            raise BroughtError(f"{place.file} has no {first!r}{_near(first, file)}")
        return place.callable
    for usual in _USUAL:
        if usual in file.names:
            return usual
    found = [n for n, bases in file.classes.items() if any(map(_IS_MODEL.search, bases))]
    if len(found) == 1:
        return found[0]
    # Of several, the one that the others are parts of cannot be told from outside.
    offered = ", ".join(found or file.functions or file.names) or "nothing"
    raise BroughtError(
        f"cannot determine which callable in {place.file} makes the model; pass "
        f"{place.file.name}:NAME (it has {offered}), or rename the callable to create_model"
    )


def _framework(place: OwnModule, file: Outline, asked: str | None) -> ModelFrameworkType:
    said = file.constants.get("FRAMEWORK")
    if said is not None:
        return framework_of(said, str(place.file))
    found = {_IMPORTS[name] for name in file.imports if name in _IMPORTS}
    if len(found) == 1:
        return found.pop()
    if asked is not None:
        return framework_of(asked, "--framework")
    several = " and ".join(sorted(framework.value for framework in found))
    imports = f"imports {several}" if several else "imports no framework"
    raise BroughtError(
        f'{place.file} {imports}; add FRAMEWORK = "pt" (or "jax", "tf") to it, or pass --framework'
    )


def _check_has_inputs(place: OwnModule, file: Outline) -> None:
    known = EXAMPLE_INPUTS in file.names or file.has_interface or file.is_open
    if not known:
        raise BroughtError(
            f"{place.file} does not define the model's inputs; add a function "
            f"{EXAMPLE_INPUTS}(), or pass --input, {specs.EXAMPLES}"
        )


def _optimizer(
    place: OwnModule,
    file: Outline,
    framework: ModelFrameworkType,
    wanted: Wanted,
    given: UserInputs | None,
) -> str:
    """Returns the name of the optimizer that trains the model.

    Raises:
      BroughtError: the file lacks what a training step needs, or options do not go with one.
    """
    if wanted.inputs or given is not None:
        raise BroughtError(
            f"-t train: {EXAMPLE_BATCH}() of the file returns the batches; omit --input and "
            "--inputs"
        )
    if other := [name for name in wanted.data_types if name != "fp32"]:
        raise BroughtError(f"--dtype {other[0]}: your own models are trained in fp32")
    has_loss = "loss" in file.names or (framework is ModelFrameworkType.TF_V2 and file.has_loss)
    if not has_loss and not file.is_open:
        raise BroughtError(
            f"-t train: {place.file} defines no loss; add a function loss(model, *inputs) that "
            "returns one number" + (" or compile the Keras model with one" * _is_keras(file))
        )
    if not {EXAMPLE_BATCH, EXAMPLE_INPUTS} & set(file.names) and not file.is_open:
        raise BroughtError(
            f"-t train: {place.file} defines no batch; add a function {EXAMPLE_BATCH}() that "
            "returns the arguments of loss() after the model"
        )
    name = file.constants.get("OPTIMIZER", "adamw")
    if name not in OPTIMIZERS:
        raise BroughtError(
            f"{place.file}: unknown OPTIMIZER {name!r}; choices are {', '.join(OPTIMIZERS)}"
        )
    return name


def _is_keras(file: Outline) -> bool:
    return "keras" in file.imports or "tensorflow" in file.imports


def _check_sizes(inputs: Sequence[specs.InputSpec], wanted: Wanted) -> None:
    used = {size for spec in inputs for size in spec.sizes}
    for option, name, values in (
        ("--batch", specs.BATCH, wanted.batch_sizes),
        ("--seq-len", specs.SEQ, wanted.seq_lens),
    ):
        if values and name not in used:
            raise BroughtError(f"{option}: no --input has a size {name!r}, {specs.EXAMPLES}")


def _near(name: str, file: Outline) -> str:
    return did_you_mean(name, file.names) or f"; it has {', '.join(file.names) or 'nothing'}"
