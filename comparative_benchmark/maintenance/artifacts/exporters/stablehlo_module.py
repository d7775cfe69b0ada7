"""StableHLO modules in jaxlib's MLIR, without JAX."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from comparative_benchmark.xla_hlo.private_jaxlib import extension

_COPY = "mhlo.copy"


@contextmanager
def without_locations(content: bytes) -> Iterator[Any]:
    """Yields the module from a portable artifact, bytecode or text, without its locations.

    Locations contain paths of the models' sources, which differ between checkouts.
    """
    with _context() as context, ir.Location.unknown():
        try:
            module = stablehlo.deserialize_portable_artifact(context, content)
        except (ValueError, RuntimeError, ir.MLIRError):
            module = ir.Module.parse(content)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        _drop_copies(module)
        yield module


def portable(module: Any) -> bytes:
    """Returns a module as bytecode that this version of StableHLO and later ones can read."""
    version = stablehlo.get_current_version()
    artifact: bytes = extension.mlir.serialize_portable_artifact(module, version)
    return artifact


def _drop_copies(module: Any) -> None:
    """Replaces copies, which XLA leaves in programs with loops, by their operands.

    Copies do not change values, and StableHLO has no operation for them.
    """
    found = []

    def visit(operation: Any) -> Any:
        if operation.name == _COPY:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        operation.results[0].replace_all_uses_with(operation.operands[0])
        operation.erase()


def _context() -> Any:
    """Returns a context with the dialects of JAX's and TensorFlow's programs."""
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    mhlo.register_mhlo_dialect(context)
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    return context
