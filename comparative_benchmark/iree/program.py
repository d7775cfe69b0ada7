"""IREE programs whose weights are parameters of an archive instead of constants of the module.

All routes end in the same form: a module with one public function that takes the inputs only, and
one immutable global per weight, initialised from the parameter `"model"::"<key>"`. The compiled
program then contains only code: its size, its compile time and its memory do not include the
weights, and it runs as fast as with the weights inside.

The PyTorch route needs no torch-mlir wheel: IREE's compiler ships torch-mlir's importer of exported
programs. Only that route imports PyTorch.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy.typing as npt
from iree.compiler import ir, tools
from iree.compiler.dialects import func

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.iree.conventions import ENTRY, PARAMETER_SCOPE, type_of

if TYPE_CHECKING:
    import torch

Weight = npt.NDArray[Any]

_DEVICE_FLAGS: Mapping[str, Sequence[str]] = {
    "local": (
        "--iree-hal-local-target-device-backends=llvm-cpu",
        # The default of 32 KiB rejects kernels of large reductions and of --iree-opt-level=O3.
        "--iree-llvmcpu-stack-allocation-limit=262144",
        # Demotion changes the type of a parameter where it is read, but not where it is declared.
        "--iree-input-demote-f64-to-f32=false",
        # Symbols are a third of the file and hold the paths of this machine's model sources.
        "--iree-llvmcpu-debug-symbols=false",
    ),
    "cuda": (),
}


@attrs.frozen(kw_only=True)
class ImportedProgram:
    """A model ready for `compile_program`.

    Attributes:
        mlir: the module as MLIR bytecode, without weights. Holds source locations, so that the
            compiler's diagnostics name the model's line; not a fingerprint across machines.
        input_type: the dialect it is written in, "stablehlo", "torch" or "onnx".
        parameters: archive key to weight, any shape including 0-d, bfloat16 as `ml_dtypes`. May
            share memory with the model it came from.
    """

    mlir: bytes
    input_type: str
    parameters: Mapping[str, Weight]


def from_stablehlo(
    module: str | bytes, weight_names: Sequence[str], weights: Sequence[Weight], *, first: int = 0
) -> ImportedProgram:
    """Binds successive arguments of a StableHLO module's `main` to named parameters.

    Args:
        module: text or bytecode, for example `jax.jit(f, keep_unused=True).lower(...).as_text()`.
            Without `keep_unused` JAX drops arguments that the function does not read, and the
            names below would shift.
        weight_names: archive key of each of these arguments of `main`, in order.
        weights: the arrays, in the same order.
        first: the position of the first of them: 0 for JAX; TensorFlow's come after the inputs.

    Returns:
        A program whose `main` takes the remaining arguments.

    Raises:
        ValueError: if names, weights and arguments do not match in number, shape or element type.
    """
    with ir.Context(), ir.Location.unknown():
        parsed = ir.Module.parse(module)
        _wrap_main(parsed, weight_names, weights, first)
        return ImportedProgram(
            mlir=bytecode(parsed.operation),
            input_type="stablehlo",
            parameters=dict(zip(weight_names, weights, strict=True)),
        )


def from_torch(exported: torch.export.ExportedProgram) -> ImportedProgram:
    """Imports an exported PyTorch program with its parameters and buffers as named parameters.

    Args:
        exported: of a model in evaluation mode. Keys of the archive are its `state_dict` names;
            weights that the computation never reads (a batch norm's `num_batches_tracked`) are left
            out.

    Raises:
        NotImplementedError: if the program updates a buffer.
    """
    import torch  # the StableHLO route must not pay for this
    from iree.compiler.extras.fx_importer import FxImporter

    from comparative_benchmark.iree import decompositions

    with torch.no_grad():
        exported = exported.run_decompositions(decompositions.table())
    weights = _ExternalWeights()
    with ir.Context() as context:
        importer = FxImporter(context=context, hooks=weights)
        importer.import_program(exported, func_name=ENTRY)
        return ImportedProgram(
            mlir=bytecode(importer.module_op), input_type="torch", parameters=weights.parameters
        )


def compile_program(
    program: ImportedProgram,
    output: Path,
    *,
    data_tiling: bool,
    device: str = "local",
    target_cpu: str = "host",
    extra_flags: Sequence[str] = (),
) -> None:
    """Compiles a program to a VM module in `output`.

    The compiler runs as a child process: as fast as inside this one, and its memory stays out of
    this process's peak.

    Args:
        program: from one of the import routes.
        output: where to write; replaced as a whole, and left alone if compilation fails.
        data_tiling: whether weights and activations are packed for the matrix kernels; weights are
            packed once, at load time.
        device: "local" for the CPU; "cuda" for NVIDIA GPUs, with `conventions.cuda_flags` as extra.
        target_cpu: LLVM name, or "host"; ignored on other devices.
        extra_flags: appended, so they win over the flags above.

    Raises:
        ValueError: for an unknown device.
        UnsupportedError: the compiler does not know an operator of an ONNX file.
        RuntimeError: the compiler failed; the message is its first error, the log has all of them.
    """
    flags = compile_flags(data_tiling=data_tiling, device=device, target_cpu=target_cpu)
    partial = output.with_name(f"{output.name}.partial")
    try:
        tools.compile_str(
            program.mlir,
            input_type=program.input_type,
            output_file=str(partial),
            strip_source_map=True,
            extra_args=[*flags, *extra_flags],
        )
    except tools.CompilerToolError as error:
        # Hundreds of lines follow; the first error is the most informative, the log has the rest.
        print(error, flush=True)
        # The importer passes unknown operators on by name; lowering then fails.
        if unknown := re.search(r"failed to legalize .*\"onnx\.(\w+)\"", str(error)):
            raise UnsupportedError(
                f"IREE's ONNX importer does not support the operator {unknown[1]} in the form "
                "used here"
            ) from None
        # LLVM writes its own errors in capitals before it aborts.
        message = re.search(r"(?:error|ERROR): *(\S.*)", str(error))
        reason = message[1].strip() if message else "no message"
        raise RuntimeError(f"iree-compile failed: {reason}") from None
    partial.replace(output)


def compile_flags(
    *, data_tiling: bool, device: str = "local", target_cpu: str = "host"
) -> list[str]:
    """Returns the compiler's flags; see `compile_program`.

    Raises:
        ValueError: for an unknown device.
    """
    if device not in _DEVICE_FLAGS:
        raise ValueError(f"unknown device {device!r}, expected one of {sorted(_DEVICE_FLAGS)}")
    cpu = [f"--iree-llvmcpu-target-cpu={target_cpu}"] if device == "local" else []
    return [
        f"--iree-hal-target-device={device}",
        f"--iree-opt-data-tiling={str(data_tiling).lower()}",
        *_DEVICE_FLAGS[device],
        *cpu,
    ]


class _ExternalWeights:
    """Hooks for the importer: parameters and buffers become globals, constants stay inline.

    Has the methods of `FxImporterHooks` instead of being one, because importing that class imports
    PyTorch.
    """

    def __init__(self) -> None:
        self.parameters: dict[str, Weight] = {}
        self._block: Any = None

    def prepare_module(self, module: Any) -> None:
        self._block = module.regions[0].blocks[0]

    def resolve_literal(self, importer: Any, literal: Any, info: Any) -> None:
        """Keeps the importer's inline form: constants written in the model's code are small."""

    def resolve_input(self, importer: Any, value: Any, info: Any) -> Any:
        # Not at the top, so that the StableHLO route does not import PyTorch.
        from comparative_benchmark.backends.frameworks.torch_modules import to_numpy

        key = info.input_spec.target
        weight = to_numpy(value)
        self.parameters[key] = weight
        loaded = _load_global(_define_global(self._block, key, _tensor_type(weight)))
        return ir.Operation.create(
            "torch_c.from_builtin_tensor", results=[info.ir_type], operands=[loaded]
        ).result

    def store_produced_value(self, importer: Any, value: Any, produced: Any, info: Any) -> None:
        raise NotImplementedError(f"the model updates its buffer {info.input_spec.target}")


def _wrap_main(
    module: Any, weight_names: Sequence[str], weights: Sequence[Weight], first: int
) -> None:
    """Makes `main` private and calls it from a new `main` that loads the weights."""
    inner = next(op for op in module.body if isinstance(op, func.FuncOp) and op.name.value == ENTRY)
    argument_types = list(inner.type.inputs)
    after = first + len(weights)
    weight_types = argument_types[first:after]
    expected = [_tensor_type(weight) for weight in weights]
    if len(weight_names) != len(weights) or weight_types != expected:
        raise ValueError(
            f"{len(weight_names)} names and {len(weights)} weights do not match the arguments of "
            f"{ENTRY} starting at argument {first}: {_first_difference(weight_types, expected)}"
        )
    results = list(inner.type.results)
    callee = f"{ENTRY}.with_weights"
    inner.attributes["sym_name"] = ir.StringAttr.get(callee)
    inner.attributes["sym_visibility"] = ir.StringAttr.get("private")
    globals_ = [
        _define_global(module.body, name, tensor_type)
        for name, tensor_type in zip(weight_names, weight_types, strict=True)
    ]
    with ir.InsertionPoint(module.body):
        input_types = argument_types[:first] + argument_types[after:]
        signature = ir.FunctionType.get(input_types, results)
        outer = func.FuncOp(ENTRY, signature, visibility="public")
    with ir.InsertionPoint(outer.add_entry_block()):
        loaded = [_load_global(global_) for global_ in globals_]
        given = list(outer.entry_block.arguments)
        call = func.CallOp(results, callee, [*given[:first], *loaded, *given[first:]])
        func.ReturnOp(call.results)


def _first_difference(actual: Sequence[Any], expected: Sequence[Any]) -> str:
    for index, (argument, weight) in enumerate(zip(actual, expected, strict=False)):
        if argument != weight:
            return f"argument {index} is {argument}, but its weight is {weight}"
    return f"{len(actual)} arguments, {len(expected)} weights"


def _define_global(block: Any, key: str, tensor_type: Any) -> Any:
    """Prepends a global that is read from the archive when the program is loaded."""
    initial = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"{key}"> : {tensor_type}'
    with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
        return ir.Operation.create(
            "util.global",
            attributes={
                "sym_name": ir.StringAttr.get(f"weight.{key}"),
                "sym_visibility": ir.StringAttr.get("private"),
                "type": ir.TypeAttr.get(tensor_type),
                "initial_value": ir.Attribute.parse(initial),
            },
        )


def _load_global(global_: Any) -> Any:
    """Emits the load of a global at the current insertion point; returns the tensor value."""
    symbol = ir.StringAttr(global_.attributes["sym_name"]).value
    return ir.Operation.create(
        "util.global.load",
        results=[ir.TypeAttr(global_.attributes["type"]).value],
        attributes={"global": ir.FlatSymbolRefAttr.get(symbol)},
    ).result


def _tensor_type(weight: Weight) -> Any:
    return ir.Type.parse(f"tensor<{type_of(weight)}>")


def bytecode(module: Any) -> bytes:
    """Verifies and serialises a module."""
    module.verify()
    buffer = io.BytesIO()
    module.write_bytecode(buffer)
    return buffer.getvalue()
