"""StableHLO and HLO of JAX and TensorFlow models, with the weights in a separate archive.

Models are exported as by the backend `xla_hlo`; here the result is converted with jaxlib's MLIR to
files for publication, without local paths. Files are read back with XLA's client in jaxlib, without
a framework.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from comparative_benchmark.backends import exported_programs
from comparative_benchmark.backends.api import Array, untimed
from comparative_benchmark.maintenance.artifacts.job import Job
from comparative_benchmark.xla_hlo.export import export_program
from comparative_benchmark.xla_hlo.exported_program import FORMS, ExportedProgram
from comparative_benchmark.xla_hlo.private_jaxlib import extension
from openxla.benchmark.artifacts import archives, array_files

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
    names = []

    def visit(operation: Any) -> Any:
        if operation.name == _COPY:
            names.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in names:
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


WEIGHTS, ARGUMENTS = "weights_npy.tgz", "xla_arguments.json"


def export_weights(job: Job) -> None:
    """Packs the weights in parameter order, and writes which parameter takes which array."""
    program = _exported(job, "stablehlo")
    paths = array_files.numbered(program.directory / "weights", exported_programs.STEM)
    members = {path.name: path for path in paths}
    archives.pack(job.directory / WEIGHTS, members, level=archives.FASTEST)
    document = json.dumps({"inputs": list(program.inputs)}, sort_keys=True) + "\n"
    (job.directory / ARGUMENTS).write_text(document, encoding="utf-8")


def export_stablehlo_mlir(job: Job) -> None:
    """Writes StableHLO as text."""
    with without_locations(_exported(job, "stablehlo").path.read_bytes()) as program:
        text = program.operation.get_asm()
    (job.directory / job.options["file"]).write_text(text, encoding="utf-8")


def export_stablehlo_bytecode(job: Job) -> None:
    """Writes StableHLO as a portable artifact: bytecode that later versions can read."""
    with without_locations(_exported(job, "stablehlo").path.read_bytes()) as program:
        content = portable(program)
    (job.directory / job.options["file"]).write_bytes(content)


def export_xla_hlo_dump(job: Job) -> None:
    """Writes unoptimised HLO as parsable text, including all constants."""
    from comparative_benchmark.xla_hlo.private_jaxlib import hlo

    module = hlo.hlo_module_from_text(_exported(job, "hlo-text").path.read_text(encoding="utf-8"))
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = False  # contains names of local files
    (job.directory / job.options["file"]).write_text(module.to_string(options), encoding="utf-8")


def run_program(job: Job) -> list[Array]:
    """Compiles and runs a program with the published weights; returns its outputs.

    The kind for weights alone uses the program that was exported with them.
    """
    from comparative_benchmark.xla_hlo.backend import stablehlo_of
    from comparative_benchmark.xla_hlo.pjrt import client

    form = job.options["form"]
    if file := job.options.get("file"):
        content = job.find(file).read_bytes()
    else:
        content = (job.scratch / "xla" / FORMS[form]).read_bytes()
    unpacked = job.scratch / "weights"
    places = exported_programs.unpack([job.find(WEIGHTS), job.find(ARGUMENTS)], unpacked)
    weights = iter(array_files.load_all(unpacked, exported_programs.STEM))
    xla, inputs = client("cpu"), job.arrays()
    arguments = [xla.put(next(weights) if index is None else inputs[index]) for index in places]
    module = stablehlo_of(content, form)
    is_text = isinstance(module, bytes) and job.options.get("file", "").endswith(".mlir")
    executable = xla.compile(module.decode() if is_text else module)  # type: ignore[union-attr]
    return [xla.fetch(output) for output in executable.run(arguments)]


def _exported(job: Job, form: str) -> ExportedProgram:
    directory = job.scratch / "xla"
    directory.mkdir(exist_ok=True)
    program, _ = export_program(job.definition, job.arrays(), form, directory, untimed)
    return program
