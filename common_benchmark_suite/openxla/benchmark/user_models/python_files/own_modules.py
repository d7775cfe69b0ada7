"""Cases of a Python file that makes a model."""

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from openxla.benchmark.artifacts.array_files import UserInputs
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)
from openxla.benchmark.text import did_you_mean
from openxla.benchmark.training import OPTIMIZERS
from openxla.benchmark.user_models import model_options
from openxla.benchmark.user_models.model_options import (
    ModelCases,
    ModelOptions,
    UserModelError,
    Variant,
    framework_of,
    model_name,
    variants,
)
from openxla.benchmark.user_models.places import OwnModule
from openxla.benchmark.user_models.python_files import outline as outlines
from openxla.benchmark.user_models.python_files.candidates import (
    EXAMPLE_BATCH,
    EXAMPLE_INPUTS,
    USUAL,
    Candidate,
    Definitions,
)
from openxla.benchmark.user_models.python_files.expected_inputs import UNKNOWN, expected
from openxla.benchmark.user_models.python_files.outline import Outline

_ROOM = "openxla.benchmark.user_models.python_files"
_MODULES = {
    ModelFrameworkType.PYTORCH: f"{_ROOM}.in_torch",
    ModelFrameworkType.JAX: f"{_ROOM}.in_jax",
    ModelFrameworkType.TF_V2: f"{_ROOM}.in_tensorflow",
}
_IMPORTS = {
    **dict.fromkeys(("torch", "torchvision", "transformers"), ModelFrameworkType.PYTORCH),
    **dict.fromkeys(("lightning", "pytorch_lightning", "timm"), ModelFrameworkType.PYTORCH),
    **dict.fromkeys(("jax", "flax", "equinox"), ModelFrameworkType.JAX),
    **dict.fromkeys(("tensorflow", "keras"), ModelFrameworkType.TF_V2),
}
# Earlier versions only chose classes with these bases.
_IS_MODEL = re.compile(r"(^|\.)(Module|Model|Layer|Sequential|InferenceModel)$")
# Common names of functions like `example_inputs`.
_SIMILAR = re.compile(r"(example|sample|dummy|get)_?inputs?$")


def cases_of(place: OwnModule, wanted: ModelOptions, given: UserInputs | None) -> ModelCases:
    """Returns the cases of a file's model.

    Raises:
      UserModelError: the file has no such callable, or its framework or inputs are unknown.
    """
    if wanted.task is not None:
        raise UserModelError("--task requires a Hugging Face directory")
    if wanted.base is not None:
        raise UserModelError("--base requires a LoRA adapter's directory")
    file = outlines.outline(place.file)
    search = _Search(place, file, wanted)
    name = search.callable()
    framework = _framework(place, file, wanted.framework)
    inputs = [model_options.parse_spec(text) for text in wanted.inputs]
    model_options.check_spec_names(inputs)
    train = _optimizer(place, file, framework, wanted, given) if wanted.test == "train" else None
    if not inputs and given is None and train is None:
        search.check_has_inputs(name)
    _check_sizes(inputs, wanted)
    implementation = ModelImplementation(
        name=model_name_of(place, name),
        tags=["brought"],
        framework_type=framework,
        module_path=_MODULES[framework],
        own_process=True,
    )
    digest = outlines.source_digest(place.file, place.root, place.package)
    shared = {
        "source": str(place.file),
        "module": place.module,
        "callable": name,
        "source_sha256": digest,
        **({"train": train} if train else {}),
    }
    every = [
        _case(implementation, shared, inputs, given, variant, (place, name))
        for variant in variants(wanted, file.constants.get("DATA_TYPE", "fp32"))
    ]
    return ModelCases(cases=every, remarks=search.remarks)


def model_name_of(place: OwnModule, name: str) -> str:
    """Returns the name of an implementation, e.g. `my_net.make_small`."""
    stem = place.module or place.file.stem
    return re.sub(r"[^A-Za-z0-9.]+", "_", f"{stem}.{name}").strip("_.") or "model"


def _case(
    implementation: ModelImplementation,
    shared: Mapping[str, str],
    inputs: Sequence[model_options.InputSpec],
    given: UserInputs | None,
    variant: Variant,
    called: tuple[OwnModule, str],
) -> BenchmarkCase:
    place, name = called
    filled = [spec.filled(variant.batch_size or 1, variant.seq_len) for spec in inputs]
    parameters: dict[str, Any] = {**shared, "data_type": variant.data_type}
    if filled:
        parameters |= model_options.recorded_specs(inputs, filled)
    parameters |= variant.sizes
    stem = place.file.stem if not place.module else place.module.rpartition(".")[2]
    is_usual = name in USUAL or name.lower() == stem.replace("_", "").lower()
    parts = [stem] if is_usual else [stem, name]
    if "train" in shared:
        parts += ["train", shared["train"]]
    model = Model(
        name=model_name(parts, implementation.framework_type, variant),
        model_impl=implementation,
        model_parameters=parameters,
    )
    return BenchmarkCase.build(model=model, input_data=model_options.input_data(filled, given))


class _Search:
    """Looks for the callable of a file that makes its model.

    Attributes:
      remarks: remarks for the user.
    """

    def __init__(self, place: OwnModule, file: Outline, wanted: ModelOptions) -> None:
        self.remarks: list[str] = []
        self._place, self._file, self._folder = place, file, wanted.folder
        is_jax = _frameworks(file) == {ModelFrameworkType.JAX} or "jax" in (
            file.constants.get("FRAMEWORK"),
            wanted.framework,
        )
        self._definitions = Definitions(file, functions_are_models=is_jax)
        self._script = self._definitions.script()

    def callable(self) -> str:
        """Returns the name of the callable or object.

        Raises:
          UserModelError: the file has no such name, or several candidates.
        """
        name = self._place.callable or self._default_name()
        if self._place.callable:
            first = name.partition(".")[0]
            if first not in self._file.names and not self._file.is_open:
                raise UserModelError(f"{self._place.file} has no {first!r}{self._near(first)}")
        name = name or self._only()
        if self._script.trains:
            self.remarks.append(self._script.hint(self._place.file.name))
        return name

    def check_has_inputs(self, name: str) -> None:
        """Raises UserModelError with a remedy if neither the file nor the user gives inputs."""
        if self._has_inputs:
            return
        candidate = self._definitions.candidate(name)
        takes = expected(self._definitions, candidate) if candidate else None
        text = model_options.EXAMPLES
        known = [given.spec for given in takes.inputs if given.spec] if takes else []
        if takes and known:
            words = " ".join(f"--input {shlex.quote(str(given))}" for given in takes.inputs)
            text = f"e.g. cbs run {self._place.named(name, self._folder)} {words}"
            if sizes := dict.fromkeys(size for spec in known for size in spec.open_sizes):
                text += f", with numbers for {' and '.join(sizes)}"
            if len(known) < len(takes.inputs):
                text += f", and with f32[1,16] or i32[1,16]<1000 or similar for {UNKNOWN}"
        similar = [n for n in self._file.names if _SIMILAR.search(n)]
        rename = f" (rename {similar[0]})" if similar else ""
        hint = f"; {self._script.hint(self._place.file.name)}" if self._script.trains else ""
        raise UserModelError(
            f"{self._place.file} does not define the model's inputs; add a function "
            f"{EXAMPLE_INPUTS}(){rename}, or pass --input{self._signature(name)}, {text}{hint}"
        )

    @property
    def _has_inputs(self) -> bool:
        file = self._file
        return EXAMPLE_INPUTS in file.names or file.has_interface or file.is_open

    def _signature(self, name: str) -> str:
        candidate = self._definitions.candidate(name)
        takes = expected(self._definitions, candidate) if candidate else None
        return f" ({name} takes {takes.signature})" if takes and takes.signature else ""

    def _default_name(self) -> str:
        """Returns the first usual name that is not a module; empty without one."""
        files = outlines.own_files(self._place.file, self._place.root, self._place.package)[1:]
        modules = {f.parent.name if f.name == "__init__.py" else f.stem for f in files}
        # `from . import model` may bind a module, too.
        modules = (modules - self._definitions.defined) | set(self._file.modules)
        modules |= set(self._file.constants)
        return next((n for n in USUAL if n in self._file.names and n not in modules), "")

    def _only(self) -> str:
        """Returns the only candidate's name."""
        every = self._definitions.candidates()
        direct = [
            c
            for c in every
            if c.module and c.module.name == c.name
            if any(_IS_MODEL.search(ast.unparse(base)) for base in c.module.bases)
        ]
        sure = [candidate for candidate in every if candidate.is_sure] or every
        whole = [c for c in self._definitions.unused(sure) if not c.needs]
        for chosen in (direct, whole):
            if len(chosen) == 1 and not chosen[0].needs:
                self._note_others(chosen[0], sure)
                return chosen[0].name
        beginning = f"cannot determine which callable in {self._place.file} creates the model; "
        if whole:
            offered = ", ".join(
                self._place.named(c.name, self._folder)
                + ("" if self._has_inputs else self._signature(c.name))
                for c in whole
            )
            raise UserModelError(
                f"{beginning}pass one of {offered}, or rename the callable to create_model"
            )
        if every:
            raise UserModelError(
                f"{beginning}none of these can be called without arguments: "
                f"{', '.join(map(str, every))}; write a function create_model() that returns the "
                f"model{self._hint()}"
            )
        if function := self._definitions.of_weights():
            raise UserModelError(
                f"{beginning}{function}() takes weights; write a function create_model() that "
                f"returns the pair ({function}, params)"
            )
        known = (EXAMPLE_INPUTS, "apply")
        others = [n for n in self._file.names if n not in (*known, *self._file.modules)]
        raise UserModelError(
            f"{beginning}pass {self._place.named('NAME', self._folder)}, or write a function "
            f"create_model() that returns the model (names in the file: "
            f"{', '.join(others) or 'none'}){self._hint()}"
        )

    def _note_others(self, chosen: Candidate, sure: Sequence[Candidate]) -> None:
        others = [c for c in sure if c.is_sure and c.module is not chosen.module and not c.needs]
        if others:
            offered = ", ".join(self._place.named(c.name, self._folder) for c in others)
            self.remarks.append(
                f"{self._place.file.name} has several models, and {chosen.name} is measured; to "
                f"measure another one, pass {offered}"
            )

    def _hint(self) -> str:
        hint = self._script.hint(self._place.file.name)
        return f"; {hint}" if hint else ""

    def _near(self, name: str) -> str:
        there = [n for n in self._file.names if n not in self._file.modules]
        return did_you_mean(name, there) or f"; names in the file: {', '.join(there) or 'none'}"


def _framework(place: OwnModule, file: Outline, asked: str | None) -> ModelFrameworkType:
    said = file.constants.get("FRAMEWORK")
    if said is not None:
        return framework_of(said, str(place.file))
    used = _frameworks(file)
    if not used and asked is None:
        own = outlines.own_files(place.file, place.root, place.package)[1:]
        used = {framework for path in own for framework in _frameworks(outlines.outline(path))}
    if len(used) == 1:
        return used.pop()
    if asked is not None and "," not in asked:
        return framework_of(asked, "--framework")
    several = " and ".join(sorted(framework.value for framework in used))
    imports = f"imports {several}" if several else "imports no framework"
    raise UserModelError(
        f'{place.file} {imports}; add FRAMEWORK = "pt" (or "jax", "tf") to it, or pass --framework'
    )


def _frameworks(file: Outline) -> set[ModelFrameworkType]:
    return {_IMPORTS[name] for name in file.imports if name in _IMPORTS}


def _optimizer(
    place: OwnModule,
    file: Outline,
    framework: ModelFrameworkType,
    wanted: ModelOptions,
    given: UserInputs | None,
) -> str:
    """Returns the name of the optimizer that trains the model.

    Raises:
      UserModelError: the file lacks a part of a training step, or options conflict with training.
    """
    if wanted.inputs or given is not None:
        raise UserModelError(
            f"-t train: {EXAMPLE_BATCH}() in the file provides the batches; omit --input/--inputs"
        )
    types = wanted.data_types or (file.constants.get("DATA_TYPE", "fp32"),)
    if other := [name for name in types if name != "fp32"]:
        raise UserModelError(
            f"-t train: only fp32 training is supported, not {other[0]}; pass --dtype fp32"
        )
    has_loss = "loss" in file.names or (framework is ModelFrameworkType.TF_V2 and file.has_loss)
    if not has_loss and not file.is_open:
        raise UserModelError(
            f"-t train: {place.file} defines no loss; add a function loss(model, *inputs) that "
            "returns one number" + (", or compile the Keras model with a loss" * _is_keras(file))
        )
    if not {EXAMPLE_BATCH, EXAMPLE_INPUTS} & set(file.names) and not file.is_open:
        raise UserModelError(
            f"-t train: {place.file} defines no batch; add a function {EXAMPLE_BATCH}() that "
            "returns the arguments of loss() after the model"
        )
    name = file.constants.get("OPTIMIZER", "adamw")
    if name not in OPTIMIZERS:
        raise UserModelError(
            f"{place.file}: unknown OPTIMIZER {name!r}; choices are {', '.join(OPTIMIZERS)}"
        )
    return name


def _is_keras(file: Outline) -> bool:
    return "keras" in file.imports or "tensorflow" in file.imports


def _check_sizes(inputs: Sequence[model_options.InputSpec], wanted: ModelOptions) -> None:
    used = {size for spec in inputs for size in spec.sizes}
    for option, name, values in (
        ("--batch", model_options.BATCH, wanted.batch_sizes),
        ("--seq-len", model_options.SEQ, wanted.seq_lens),
    ):
        if values and name not in used:
            raise UserModelError(f"{option}: no --input has a size {name!r}, e.g. f32[{name},16]")
