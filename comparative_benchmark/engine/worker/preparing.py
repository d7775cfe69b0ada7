"""Generates the artifacts of a workload before measurement: inputs, truth, reference, cost.

A worker that does this does nothing else; measuring workers need not import it.

Outputs of nearby models, in float64 if possible, show how far rounding alone can move an output. An
index, a rounded pixel or a comparison may flip if a value next to a tie is rounded differently. One
or a few numbers may be small only because large terms cancel. Neither the truth nor a single
reference run reveals this; a few runs on slightly different weights and inputs do.
"""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends.api import (
    Array,
    ModelDefinition,
    Reference,
    UnsupportedError,
    load_object,
)
from comparative_benchmark.backends.model_protocols import ForeignModel
from comparative_benchmark.backends.recipes.definition import Rounding
from comparative_benchmark.engine.worker.contributed_model import (
    check_arity,
    checked_array,
    mismatch,
)
from comparative_benchmark.engine.worker.phases import PhaseClock
from comparative_benchmark.engine.worker.protocol import Message
from openxla.benchmark import testdata
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import (
    FURTHER,
    NEIGHBOURS,
    SECOND,
    TruthCheck,
    WorkloadCost,
    remove_second,
)
from openxla.benchmark.models.model_interfaces import TOKENS, TrainingModel
from openxla.benchmark.models.second_input import further_inputs, second_inputs
from openxla.benchmark.models.shared_model import ArchitectureModel, as_tuple
from openxla.benchmark.user_models.programs.program_model import in_place_of_truth, rounded

NEIGHBOUR_COUNT = 8
# With so few numbers, the error of a single reference run is left to chance.
FEW_NUMBERS = 8
# Perturbation of weights and inputs, in spacings of their type: rounding moves by half of one.
SPACINGS = 2.0


def save(
    folder: Path,
    *,
    reference: str,
    compute: Reference,
    model: Any,
    inputs: Sequence[Array],
    truth: Sequence[Array],
) -> str | None:
    """Writes `output_<n>.npy`, stacked along a new first axis, for each output that needs it.

    Writes nothing if a perturbed model cannot be run; outputs are then verified without neighbours.

    Args:
      folder: folder for the files; created if there are any.
      reference: `module:function` that computes truth and reference; its module or the model may
        define `changed_weights(model, random, spacings)`, a context in which the weights differ.
      compute: that function.
      model: the model.
      inputs: inputs of the run.
      truth: float64 outputs of the run.

    Returns:
      Why a perturbed model could not be run; None if it could, or no output needs it.
    """
    wanted = [index for index, value in enumerate(truth) if _needs(np.asarray(value))]
    if not wanted:
        return None
    module = importlib.import_module(reference.partition(":")[0])
    unchanged = getattr(type(model), "changed_weights", lambda *_: contextlib.nullcontext())
    changed = getattr(module, "changed_weights", unchanged)
    own: Callable[..., Any] | None = getattr(model, "truth_and_reference", None)
    outputs_of: dict[int, list[Array]] = {index: [] for index in wanted}
    reason = "the output shapes change"
    # An exported program notes how a run was judged. This must be the run on the inputs themselves.
    noted = {name: getattr(model, name, None) for name in ("without_float64", "truth_check")}
    for seed in range(NEIGHBOUR_COUNT):
        random = np.random.Generator(np.random.Philox(seed))
        try:
            with changed(model, random, SPACINGS):
                moved = rounded(inputs, spacings=SPACINGS, seed=seed)
                outputs, _ = own(moved) if own is not None else compute(model, moved)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:300]
            continue
        if [np.shape(value) for value in outputs] != [np.shape(value) for value in truth]:
            continue
        for index in wanted:
            outputs_of[index].append(np.asarray(outputs[index]))
    if own is not None:
        for name, value in noted.items():
            setattr(model, name, value)
    for index, values in outputs_of.items():
        if values:
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"output_{index}.npy", np.stack(values), allow_pickle=False)
    return None if any(outputs_of.values()) else reason


def _needs(value: Array) -> bool:
    if value.dtype.kind in "iub":
        return value.size > 0
    return 0 < value.size <= FEW_NUMBERS


_PlainRun = Callable[[Any, Sequence[Array]], list[Array]]


def prepare(
    phases: PhaseClock,
    *,
    module_path: str,
    parameters: dict[str, Any],
    reference: str,
    directory: str,
    input_data: str = testdata.INPUT_DATA_MODEL_DEFAULT.name,
    input_files: Sequence[str] = (),
    generates: bool = False,
    second: bool = True,
) -> Message:
    """Generates inputs, truth and reference of a workload, also for its second input.

    In the answer, `without_second` is the reason for a missing second input, `remark` the reason
    for an inexact truth; both may be None. `takes_further` is whether `prepare_further` may
    generate other inputs.

    Args:
      phases: clock for the phases.
      module_path: module that defines `create_model`.
      parameters: arguments of `create_model`.
      reference: `module:function` that computes truth and reference.
      directory: folder for the artifacts.
      input_data: name of the raw input that the model preprocesses.
      input_files: array files to use as inputs instead.
      generates: whether the model continues prompts; the reference then follows the truth.
      second: whether to generate the second input.
    """
    target = Path(directory)
    with phases("import"):
        compute = load_object(reference)
        importlib.import_module(module_path)
    with phases("load"):
        model = ModelDefinition(module_path=module_path, parameters=parameters).create()
    with phases("preprocess"):
        inputs = make_inputs(model, input_data, input_files)
        check_arity(model, inputs)
        try_out(model, inputs)
    judged_by = _judged_by(reference, compute, model, generates=generates)
    with phases("reference"):
        files = judged_by.save(inputs, target)
        # Foreign code may be unable to compute in float64, and gives the reason.
        without_float64 = getattr(model, "without_float64", None)
        without_neighbours = judged_by.without_neighbours
        cost = count_cost(reference, model, inputs)
        # Only for user models: tests prove it for the suite's models, and exported programs
        # describe their own truth.
        is_brought = hasattr(model, "try_out") and not hasattr(model, "truth_and_reference")
        remark = remark_on_truth(reference, model, inputs) if is_brought else None
    without_second = None if second else "a second input was not requested"
    if second:
        with phases("second_reference"):
            without_second = judged_by.save_second(target, lambda: second_inputs(model, inputs))
    check: TruthCheck | None = getattr(model, "truth_check", None)
    return {
        "files": files,
        "cost": attrs.asdict(cost),
        "remark": remark,
        "without_second": without_second,
        "without_neighbours": without_neighbours,
        # Foreign code determines its own inputs.
        "takes_further": second and not isinstance(model, ForeignModel),
        "without_float64": without_float64 or getattr(model, "without_float64", None),
        "truth_check": attrs.asdict(check) if check else None,
    }


def prepare_further(
    phases: PhaseClock,
    *,
    module_path: str,
    parameters: dict[str, Any],
    reference: str,
    directory: str,
    attempt: int,
    generates: bool = False,
) -> Message:
    """Generates a further input from the first one, with its truth and reference.

    The answer's `without_second` is the reason if this failed, else None; `without_float64` the
    reason for a truth that is not a float64 run.

    Args:
      phases: clock for the phases.
      module_path: see `prepare`.
      parameters: see `prepare`.
      reference: see `prepare`.
      directory: folder filled by `prepare`.
      attempt: number of the rule, see `second_input.further_inputs`.
      generates: see `prepare`.
    """
    target = Path(directory)
    with phases("load"):
        compute = load_object(reference)
        model = ModelDefinition(module_path=module_path, parameters=parameters).create()
    judged_by = _judged_by(reference, compute, model, generates=generates)
    with phases("second_reference"):
        inputs = array_files.load_all(target / "inputs", "input")
        reason = judged_by.save_second(
            target, lambda: further_inputs(inputs, attempt), prefix=FURTHER
        )
    return {"without_second": reason, "without_float64": getattr(model, "without_float64", None)}


def quantised_run(
    phases: PhaseClock,
    *,
    module_path: str,
    parameters: dict[str, Any],
    reference: str,
    rounding: dict[str, Any],
    inputs: Sequence[str],
    directory: str,
) -> Message:
    """Saves the outputs of a plain run with the rounding of a recipe.

    The answer's `files` is None if the module of the reference has no `quantised`, or if that
    function does not support this kind of model.

    Args:
      phases: clock for the phases.
      module_path: see `prepare`.
      parameters: see `prepare`.
      reference: see `prepare`.
      rounding: fields of a `Rounding`.
      inputs: input files.
      directory: folder for the outputs.
    """
    with phases("load"):
        module = importlib.import_module(reference.partition(":")[0])
        run = getattr(module, "quantised", None)
        model = ModelDefinition(module_path=module_path, parameters=parameters).create()
    if run is None or isinstance(model, ForeignModel) or hasattr(model, "truth_and_reference"):
        return {"files": None}
    with phases("reference"):
        values = [array_files.load(Path(path)) for path in inputs]
        outputs = run(model, values, Rounding.read(rounding))
    return {"files": array_files.save_all(Path(directory), "output", outputs)}


def _judged_by(reference: str, compute: Reference, model: Any, *, generates: bool) -> "JudgedBy":
    module = importlib.import_module(reference.partition(":")[0])
    return JudgedBy(
        compute=compute,
        reference=reference,
        model=model,
        generates=generates,
        in_own_type=getattr(module, "in_own_type", None) if _may_lack_float64(model) else None,
        nearby=getattr(module, "nearby", None),
    )


def _may_lack_float64(model: Any) -> bool:
    """Returns whether a model may be verified by plain runs: user models, but not foreign code.

    Models with an architecture support float64; foreign code defines its own truth.
    """
    return not isinstance(model, ArchitectureModel | ForeignModel)


def _has_float64(model: Any) -> bool:
    return getattr(model, "without_float64", None) is None


def make_inputs(model: Any, input_data: str, files: Sequence[str]) -> list[Array]:
    """Loads the given array files, or else preprocesses the model's raw input."""
    if files:
        return [array_files.load(Path(path)) for path in files]
    if hasattr(model, "generate_inputs"):
        raw = model.generate_inputs(input_data)
    else:  # a model without a base class of ours
        raw = testdata.vary(model.generate_default_inputs(), input_data)
    # The OpenXLA suite's models take several raw inputs separately, ours take a tuple.
    are_apart = isinstance(raw, tuple) and mismatch(model.preprocess, [raw]) is not None
    made = model.preprocess(*raw) if are_apart else model.preprocess(raw)
    return [checked_array(value, "preprocess") for value in as_tuple(made)]


@attrs.define(kw_only=True)
class JudgedBy:
    """Generates the artifacts that the outputs of a model are verified against.

    Attributes:
      compute: computes truth and reference; `reference` is its `module:function`.
      model: the model.
      generates: whether it continues prompts; the reference then follows the truth's tokens.
      in_own_type: computes outputs of a plain run, for a model that may not support float64: if its
        float64 run fails, two of these replace truth and reference.
      nearby: the same on rounded weights and inputs; None to round only the inputs.
      without_neighbours: why the last inputs have no neighbours; None if they have, or need none.
    """

    compute: Reference
    reference: str
    model: Any
    generates: bool
    in_own_type: _PlainRun | None = None
    nearby: _PlainRun | None = None
    without_neighbours: str | None = attrs.field(default=None, init=False)

    def save(self, inputs: Sequence[Array], target: Path, prefix: str = "") -> dict[str, Any]:
        """Writes inputs, truth and reference to folders of these names; returns their files."""
        truth, same_type = self._due(inputs)
        if self.generates:
            same_type = self._along_truth(inputs, truth)
        elif _has_float64(self.model) or not isinstance(self.model, ForeignModel):
            self.without_neighbours = save(
                target / f"{prefix}{NEIGHBOURS}",
                reference=self.reference,
                compute=self._as_truth,
                model=self.model,
                inputs=inputs,
                truth=truth,
            )
        return {
            kind: array_files.save_all(target / f"{prefix}{kind}", stem, values)
            for kind, stem, values in (
                ("inputs", "input", inputs),
                ("truth", "output", truth),
                ("reference", "output", same_type),
            )
        }

    def save_second(
        self, target: Path, make: Callable[[], Sequence[Array]], prefix: str = SECOND
    ) -> str | None:
        """Writes the artifacts of a second input; returns why it is missing, or None.

        A model that cannot run on a second input is verified on its first input only.
        """
        try:
            self.save([checked_array(value, "second_inputs") for value in make()], target, prefix)
        except Exception as error:
            remove_second(target, prefix)
            return f"{type(error).__name__}: {error}"[:300]
        return None

    def _due(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns truth and reference."""
        # An exported program defines its own verification, whatever framework runs it.
        own = getattr(self.model, "truth_and_reference", None)
        if own is not None:
            outputs: tuple[list[Any], list[Any]] = own(inputs)
            return outputs
        try:
            return self.compute(self.model, inputs)
        except (MemoryError, UnsupportedError):
            raise
        except Exception as error:
            if self.in_own_type is None:
                raise
            why = f"{type(error).__name__}: {error}"[:300]
        plain = self.in_own_type(self.model, inputs)
        self.model.without_float64 = f"the model has no float64 run: {why}"
        if self.nearby is not None:
            return in_place_of_truth(plain), self.nearby(self.model, inputs)
        return in_place_of_truth(plain), self.in_own_type(self.model, rounded(inputs))

    def _as_truth(self, model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns outputs by the method that computed the truth, and a reference or nothing."""
        if _has_float64(model) or self.in_own_type is None:
            return self.compute(model, inputs)
        return in_place_of_truth(self.in_own_type(model, inputs)), []

    def _along_truth(self, inputs: Sequence[Array], truth: Sequence[Any]) -> list[Any]:
        """Returns the outputs of the reference run that follows the truth's tokens.

        Raises:
          RuntimeError: the float64 run chooses other tokens when fed with its own: the model
            ignores its input, so it cannot be verified that way.
        """
        forced = self.model.verification_inputs(inputs, truth)
        again, same_type = self._due(forced)
        if not np.array_equal(again[TOKENS], truth[TOKENS]):
            raise RuntimeError("the float64 run chooses different tokens when its own are fed back")
        return same_type


def count_cost(reference: str, model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns the cost counted by `cost` in the reference's module, or why it is unknown.

    Models whose cost cannot be counted still get their truth.
    """
    if isinstance(model, TrainingModel):  # `forward` runs several steps and updates real weights
        return WorkloadCost.unknown("the cost of training steps is not counted")
    if reason := getattr(model, "not_countable", None):
        return WorkloadCost.unknown(reason)
    module = importlib.import_module(reference.partition(":")[0])
    count: Callable[..., WorkloadCost] | None = getattr(module, "cost", None)
    if count is None:
        return WorkloadCost.unknown(f"{module.__name__} does not define a cost")
    try:
        return count(model, inputs)
    except Exception as error:
        return WorkloadCost.unknown(f"not countable: {type(error).__name__}: {error}"[:300])


def remark_on_truth(reference: str, model: Any, inputs: Sequence[Array]) -> str | None:
    """Returns why a float64 run is not exact, from `remark` in the reference's module.

    None if it is exact, or if this is unknown.
    """
    module = importlib.import_module(reference.partition(":")[0])
    remark: Callable[..., str | None] | None = getattr(module, "remark", None)
    try:
        return remark(model, inputs) if remark is not None else None
    except Exception:  # models that depend on values cannot run without them
        return None


def try_out(model: Any, inputs: Sequence[Array]) -> None:
    """Calls a user model's `try_out`, if defined, which raises if the model is unsupported."""
    if (own := getattr(model, "try_out", None)) is not None:
        own(*inputs)
