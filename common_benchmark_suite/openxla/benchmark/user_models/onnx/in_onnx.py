"""In a worker: a user's ONNX file, run plainly and in float64."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.user_models.inputs import Array, form_of, is_float
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.onnx import onnx_file, onnx_operators
from openxla.benchmark.user_models.onnx.onnx_routes import NodeRoutes
from openxla.benchmark.user_models.programs import program_model
from openxla.benchmark.user_models.programs.program_model import (
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import error_line, refusing

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_FLOATS = _NARROW | {TensorProto.DOUBLE}
# Attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype"})
_QUANTIZED = frozenset(
    {
        *("QuantizeLinear", "DynamicQuantizeLinear"),
        *("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"),
    }
)
_RANDOM = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Bernoulli", "Multinomial"),
    }
)
# Operators that take scales as numbers.
_SCALED = frozenset({"Resize", "Upsample"})

# Operators whose output shape depends on the values of their operands.
_BY_VALUE = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})
FILE = "program.onnx"
_Run = Callable[[onnx.ModelProto, Sequence[Array]], list[Array]]


def widened_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy whose floating-point numbers are all float64.

    Raises:
      NotWidenedError: the graph rounds intentionally, or has operators that are not ONNX's own.
    """
    kinds = {node.op_type for node in nodes(model)}
    if quantized := sorted(kinds & _QUANTIZED):
        raise NotWidenedError(f"the program is quantised ({quantized[0]})")
    foreign = sorted(f"{n.domain}.{n.op_type}" for n in nodes(model) if _is_foreign(n))
    if foreign:
        raise NotWidenedError(f"{foreign[0]} is not an ONNX operator")
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _retype_graph(wide.graph, TensorProto.DOUBLE)
    return wide


def rounded_model(
    model: onnx.ModelProto, *, spacings: float | None = None, seed: int = program_model.SEED
) -> onnx.ModelProto:
    """Returns a copy whose weights are perturbed, as by `program_model.rounded`.

    Whole numbers are exact: an exponent of 2.0000005 would turn a negative number into NaN.
    """
    other = onnx.ModelProto()
    other.CopyFrom(model)
    # Scales determine sizes: 1.9999999 times 3 gives 5, not 6.
    sizes = {
        name for node in nodes(model) if node.op_type in _SCALED for name in list(node.input)[1:]
    }
    weights = [
        tensor
        for tensor in other.graph.initializer
        if tensor.data_type in _NARROW and tensor.name not in sizes
    ]
    values = [numpy_helper.to_array(tensor) for tensor in weights]
    moved = program_model.rounded(values, spacings=spacings, seed=seed)
    for tensor, old, new in zip(weights, values, moved, strict=True):
        if (old % 1).any():
            _replace(tensor, new)
    return other


def random_operators(model: onnx.ModelProto) -> list[str]:
    """Returns the operators that draw random numbers."""
    return sorted({node.op_type for node in nodes(model)} & _RANDOM)


def run_graph(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of ONNX's reference evaluator: NumPy, operator by operator."""
    return _run(_evaluator(model), model, inputs)


def run_in_float64(
    model: onnx.ModelProto, inputs: Sequence[Array]
) -> tuple[list[Array], NodeRoutes]:
    """Returns the outputs of a graph in float64, and how they were checked.

    Raises:
      NotWidenedError: the graph cannot be run in float64.
    """
    wide = widened_model(model)
    routes = NodeRoutes(model, retype)
    evaluator = _evaluator(wide)
    for node, source in zip(evaluator.rt_nodes_, model.graph.node, strict=True):
        node.run = _routed(node, source, routes)
    values = [value.astype(np.float64) if is_float(value) else value for value in inputs]
    return _run(evaluator, wide, values), routes


def _evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    opsets = {item.domain: item.version for item in model.opset_import}
    version = opsets.get("", opsets.get("ai.onnx", 1))
    kinds = (node.op_type for node in nodes(model) if not node.domain)
    own = [*onnx_operators.operators(version), *onnx_operators.missing(kinds, version)]
    return ReferenceEvaluator(model, new_ops=own)


def _routed(node: Any, source: onnx.NodeProto, routes: NodeRoutes) -> Callable[..., Any]:
    original = node.run

    def run(*given: Any, **keywords: Any) -> Any:
        return tuple(routes.evaluate(source, type(node), original, given, keywords))

    return run


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields all nodes, including nested ones."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _nodes(graph: Any) -> Iterator[onnx.NodeProto]:
    for node in graph:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner.node)


def _is_foreign(node: onnx.NodeProto) -> bool:
    return node.domain not in ("", "ai.onnx", "ai.onnx.ml")


def _run(evaluator: Any, model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    names = [value.name for value in _inputs_of(model)]
    with np.errstate(all="ignore"):
        outputs = evaluator.run(None, dict(zip(names, inputs, strict=True)))
    for value, declared in zip(outputs, model.graph.output, strict=True):
        if not isinstance(value, np.ndarray | np.generic):
            raise UserModelError(
                f"output {declared.name!r} is a {type(value).__name__}, not an array"
            )
    return [np.asarray(value) for value in outputs]


def _retype_graph(graph: onnx.GraphProto, kind: int) -> None:
    for tensor in graph.initializer:
        _retype_tensor(tensor, kind)
    for sparse in graph.sparse_initializer:
        _retype_tensor(sparse.values, kind)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = kind
    retype(graph.node, kind)


def retype(nodes: Iterable[onnx.NodeProto], kind: int) -> None:
    """Converts all floating-point numbers inside nodes to a type, in place."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _FLOATS:
                attribute.i = kind
            # Reading an unset field creates it in some versions of protobuf.
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                _retype_tensor(tensor, kind)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _retype_graph(inner, kind)
        if node.op_type == "Constant":
            _retype_constant(node, kind)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            zero = onnx.helper.make_tensor("value", kind, [1], [0.0])
            node.attribute.append(onnx.helper.make_attribute("value", zero))


def _retype_constant(node: onnx.NodeProto, kind: int) -> None:
    """Converts scalar constants to tensors, because ONNX defines scalars as float32."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
            _retype_tensor(tensor, kind)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _retype_tensor(tensor: TensorProto, kind: int) -> None:
    if tensor.data_type in _FLOATS and tensor.data_type != kind:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        _replace(tensor, numpy_helper.to_array(tensor).astype(dtype))


def _replace(tensor: TensorProto, value: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


class OnnxModel(ProgramModel):
    """An ONNX file; `write_onnx` prepares it for runtimes."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._file = onnx_file.read(self.path)
        self._change: dict[str, Any] = {}
        self._check_versions()

    def signature(self) -> Signature:
        """Returns the program's signature."""
        return self._file.signature

    def forward(self, *inputs: Any) -> Any:
        """Runs the program with ONNX's reference evaluator."""
        return tuple(run_graph(self._complete_model(), inputs))

    def try_out(self, *inputs: Array) -> None:
        """Checks inputs and operators, and that output shapes follow from input shapes.

        Raises:
          UserModelError: the program cannot be verified; the message gives the reason.
        """
        super().try_out(*inputs)
        bare = self._bare()
        if drawing := random_operators(bare):
            raise UserModelError(f"the program draws random numbers ({', '.join(drawing)})")
        static = _static(bare, inputs, self.path)
        open_outputs = [value.name for value in static.graph.output if not _is_fixed(value)]
        by_value = {node.op_type for node in nodes(bare)} & _BY_VALUE
        if open_outputs and by_value:
            raise UserModelError(
                f"the shape of output {open_outputs[0]!r} depends on values "
                f"({', '.join(sorted(by_value))}); programs with dynamic outputs are not supported"
            )

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; several implementations must agree on each node of the truth."""
        model = self._complete_model()
        self.without_float64, truth = None, None
        # The evaluator runs functions of another opset with operators of the model's opset.
        is_overruled = bool(model.functions)
        try:
            truth, routes = run_in_float64(model, inputs)
            is_overruled = routes.is_overruled
            self.note_check(routes.check())
        except Exception as error:
            why = str(error) if isinstance(error, NotWidenedError) else error_line(error)
            self.without_float64 = f"the program has no float64 run: {why}"
        # An evaluator that is overruled or in doubt must not serve as reference either.
        own, plain = _plain_run(model, inputs, by_runtime=is_overruled)
        if truth is not None and self.without_float64 is None:
            return truth, own
        rough = plain(rounded_model(model), rounded(inputs))
        # A size may depend on a number that was perturbed.
        if [value.shape for value in rough] != [value.shape for value in own]:
            rough = own
        return in_place_of_truth(own), rough

    @contextlib.contextmanager
    def changed_weights(self, random: np.random.Generator, spacings: float) -> Iterator[None]:
        """Moves weights by up to `spacings` inside the block."""
        self._change = {"spacings": spacings, "seed": int(random.integers(1 << 32))}
        try:
            yield
        finally:
            self._change = {}

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
            outputs, _ = _plain_run(self._complete_model(), inputs)
            for declared, output in zip(static.graph.output, outputs, strict=True):
                _fix(declared, output.shape)
        files = [directory / file.relative_to(self.path.parent) for file in self._file.data_files]
        for source, target in zip(self._file.data_files, files, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)
        program = directory / FILE
        while program in files:  # a link to the user's file
            program = program.with_name(f"_{program.name}")
        program.write_bytes(static.SerializeToString())
        return [program, *files]

    def _bare(self) -> onnx.ModelProto:
        """Returns the model without its external weights."""
        return onnx.load(str(self.path), load_external_data=False)

    def _complete_model(self) -> onnx.ModelProto:
        model = onnx.load(str(self.path))
        # The evaluator does not find our operators inside functions. Those of another opset remain.
        model = onnx.inliner.inline_local_functions(model) if model.functions else model
        return rounded_model(model, **self._change) if self._change else model

    def _check_versions(self) -> None:
        """Raises UserModelError if ONNX is older than the file."""
        known = onnx.defs.onnx_opset_version()
        asked = max((self._file.opsets.get(name, 0) for name in ("", "ai.onnx")), default=0)
        if asked > known:
            raise UserModelError(
                f"{self.path.name} uses opset {asked}, but ONNX {onnx.__version__} supports at "
                f"most {known}; export it with opset_version={known}, or install a newer onnx"
            )


def create_model(**parameters: Any) -> OnnxModel:
    """Returns the program of a file.

    Raises:
      UserModelError: the file is incomplete, or newer than the installed ONNX.
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
      UserModelError: the model cannot be run.
    """
    runs: list[_Run] = [run_graph, _by_onnxruntime]
    errors: list[Exception] = []
    for run in reversed(runs) if by_runtime else runs:
        try:
            return run(model, inputs), run
        except UserModelError:
            raise
        except Exception as error:  # e.g. an operator that it lacks
            errors.append(error)
    forms = ", ".join(map(form_of, inputs))
    why, other = map(error_line, reversed(errors) if by_runtime else errors)
    raise UserModelError(
        f"the program cannot run with inputs {forms}; ONNX's reference evaluator: {why}; "
        f"ONNX Runtime: {other}"
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
    kinds = ValueError, onnx.shape_inference.InferenceError
    with refusing(f"the shapes in {file.name} are inconsistent", *kinds):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _is_fixed(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(
        dimension.HasField("dim_value") and dimension.dim_value > 0
        for dimension in tensor.shape.dim
    )


def _fix(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    kind = value.type.tensor_type.elem_type
    value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, list(shape)))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)  # otherwise, a link to the link
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
    outputs: list[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
    return outputs
