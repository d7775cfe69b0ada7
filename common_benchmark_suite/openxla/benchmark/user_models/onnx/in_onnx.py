"""In a worker: a user's ONNX file."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.user_models.inputs import Array, form_of
from openxla.benchmark.user_models.onnx import onnx_file, onnx_float64
from openxla.benchmark.user_models.programs.program_model import (
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import told
from openxla.benchmark.user_models.wanted import BroughtError

# Operators whose output shape depends on the values of their operands.
_BY_VALUE = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})
FILE = "program.onnx"
_Run = Callable[[onnx.ModelProto, Sequence[Array]], list[Array]]


class OnnxModel(ProgramModel):
    """An ONNX file; `write_onnx` prepares it for runtimes."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._file = onnx_file.read(self.path)
        self._check_versions()

    def signature(self) -> Signature:
        """Returns the program's signature."""
        return self._file.signature

    def forward(self, *inputs: Any) -> Any:
        """Runs the program with ONNX's reference evaluator."""
        return tuple(onnx_float64.run(self._whole(), inputs))

    def try_out(self, *inputs: Array) -> None:
        """Checks inputs and operators, and that output shapes follow from input shapes.

        Raises:
          BroughtError: the program cannot be verified; the message gives the reason.
        """
        super().try_out(*inputs)
        bare = self._bare()
        if drawing := onnx_float64.random_operators(bare):
            raise BroughtError(f"the program draws random numbers ({', '.join(drawing)})")
        static = _static(bare, inputs, self.path)
        open_outputs = [value.name for value in static.graph.output if not _is_fixed(value)]
        by_value = {node.op_type for node in onnx_float64.nodes(bare)} & _BY_VALUE
        if open_outputs and by_value:
            raise BroughtError(
                f"the shape of output {open_outputs[0]!r} depends on values "
                f"({', '.join(sorted(by_value))}); programs with dynamic outputs are not supported"
            )

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; several implementations must agree on each node of the truth."""
        model = self._whole()
        self.without_float64, truth, is_overruled = None, None, False
        try:
            truth, routes = onnx_float64.run_in_float64(model, inputs)
            is_overruled = routes.is_overruled
            self.note_check(routes.check())
        except Exception as error:
            why = str(error) if isinstance(error, NotWidenedError) else told(error)
            self.without_float64 = f"the program has no float64 run: {why}"
        # An evaluator that is overruled or in doubt must not serve as reference either.
        own, plain = _plain_run(model, inputs, by_runtime=is_overruled)
        if truth is not None and self.without_float64 is None:
            return truth, own
        rough = plain(onnx_float64.rounded(model), rounded(inputs))
        # A size may depend on a number that was perturbed.
        if [value.shape for value in rough] != [value.shape for value in own]:
            rough = own
        return in_place_of_truth(own), rough

    def write_onnx(self, directory: Path, inputs: Sequence[Array]) -> list[Path]:
        """Writes the file with shapes fixed to these inputs, and returns it and its weight files.

        If its shapes are fixed already, this is the user's own file.
        """
        bare = self._bare()
        values = [*_inputs_of(bare), *bare.graph.output]
        if all(map(_is_fixed, values)):
            return [self.path, *self._file.data_files]
        static = _static(bare, inputs, self.path)
        if not all(map(_is_fixed, static.graph.output)):
            outputs, _ = _plain_run(self._whole(), inputs)
            for declared, found in zip(static.graph.output, outputs, strict=True):
                _fix(declared, found.shape)
        files = [directory / file.relative_to(self.path.parent) for file in self._file.data_files]
        for source, target in zip(self._file.data_files, files, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)
        (directory / FILE).write_bytes(static.SerializeToString())
        return [directory / FILE, *files]

    def _bare(self) -> onnx.ModelProto:
        """Returns the model without its external weights."""
        return onnx.load(str(self.path), load_external_data=False)

    def _whole(self) -> onnx.ModelProto:
        model = onnx.load(str(self.path))
        # The evaluator does not find our operators inside functions.
        return onnx.inliner.inline_local_functions(model) if model.functions else model

    def _check_versions(self) -> None:
        """Raises BroughtError if ONNX is older than the file."""
        known = onnx.defs.onnx_opset_version()
        asked = max((self._file.opsets.get(name, 0) for name in ("", "ai.onnx")), default=0)
        if asked > known:
            raise BroughtError(
                f"{self.path.name} uses opset {asked}, but ONNX {onnx.__version__} supports at "
                f"most {known}; export it with opset_version={known}, or install a newer onnx"
            )


def create_model(**parameters: Any) -> OnnxModel:
    """Returns the program of a file.

    Raises:
      BroughtError: the file is incomplete, or newer than the installed ONNX.
    """
    return OnnxModel(parameters)


def _plain_run(
    model: onnx.ModelProto, inputs: Sequence[Array], *, by_runtime: bool = False
) -> tuple[list[Array], _Run]:
    """Returns the outputs of a plain run, and the function that ran it.

    Args:
      model: the model to run.
      inputs: arrays in order.
      by_runtime: prefer ONNX Runtime to the reference evaluator.

    Raises:
      BroughtError: the model cannot be run.
    """
    runs: list[_Run] = [onnx_float64.run, _by_onnxruntime]
    errors: list[Exception] = []
    for run in reversed(runs) if by_runtime else runs:
        try:
            return run(model, inputs), run
        except BroughtError:
            raise
        except Exception as error:  # e.g. an operator that it lacks
            errors.append(error)
    forms = ", ".join(map(form_of, inputs))
    why, other = map(told, reversed(errors) if by_runtime else errors)
    raise BroughtError(
        f"the program cannot run on {forms}: {why}; ONNX Runtime also failed: {other}"
    ) from errors[-1]


def _inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns the inputs to feed; old files list their weights among the inputs."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _static(model: onnx.ModelProto, inputs: Sequence[Array], file: Path) -> onnx.ModelProto:
    """Returns the graph with shapes inferred from the shapes of the inputs."""
    for declared, value in zip(_inputs_of(model), inputs, strict=True):
        _fix(declared, value.shape)
    # Shapes inferred for dynamic sizes no longer hold.
    del model.graph.value_info[:]
    for declared in model.graph.output:
        for dimension in declared.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.Clear()
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (ValueError, onnx.shape_inference.InferenceError) as error:
        raise BroughtError(f"the shapes in {file.name} are inconsistent: {told(error)}") from error


def _is_fixed(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(
        dimension.HasField("dim_value") and dimension.dim_value >= 0
        for dimension in tensor.shape.dim
    )


def _fix(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    kind = value.type.tensor_type.elem_type
    value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, list(shape)))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copyfile(source, target)


def _by_onnxruntime(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of ONNX Runtime, which runs the file node by node, unoptimised."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [node.name for node in session.get_inputs()]
    found: list[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found
