"""Programs of `torch.export`: compiled by AOTInductor into a package, or written to a reproducer.

Unlike with `torch.compile`, an AOTInductor program contains no Python: it is a shared library that
includes the weights, as a C++ program would load it. A reproducer holds its weights in the same
archives as the programs.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.utils import _pytree as pytree

from comparative_benchmark.backends import exported_programs
from comparative_benchmark.backends.api import BackendContext, BackendFacts, UnsupportedError
from comparative_benchmark.backends.exported_programs import Exported, ExportTask, digest_of_set
from comparative_benchmark.backends.frameworks import torch_export, torch_modules
from openxla.benchmark.models.shared_model import as_tuple


class AotProgram:
    """A compiled and loaded package.

    Args:
      model: the model, on the device.
      inputs: tensors of the shapes and types that the program will take.
      context: context whose phases `trace`, `compile` and `load` are timed.

    Raises:
      UnsupportedError: `torch.export` refuses the model, or there is no C++ compiler.
    """

    def __init__(self, model: Any, inputs: Sequence[torch.Tensor], context: BackendContext) -> None:
        _require_compiler()
        exported = torch_export.export(model, inputs, context.phase)
        _check_outputs(exported)
        # Separate from that of another backend in this worker.
        directory = Path(tempfile.mkdtemp(prefix="aot-", dir=context.work_dir))
        self._package = directory / "model.pt2"
        with context.phase("compile"):
            torch._inductor.aoti_compile_and_package(  # noqa: SLF001  # the documented name
                exported, package_path=str(self._package)
            )
        del exported
        with context.phase("load"):
            before = set(_extracted())
            model = torch._inductor.aoti_load_package(str(self._package))  # noqa: SLF001
            self._unpacked = set(_extracted()) - before
            # On a GPU, the first run loads kernels from there.
            if context.device.accelerator_type == "cpu":
                self._remove_unpacked()
        # The model's own call parses its signature from JSON each time.
        self._run = model.loader.run

    def run(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Runs the program; on the CPU its outputs are complete."""
        outputs: list[torch.Tensor] = self._run(list(inputs))
        return outputs

    def describe(self, facts: BackendFacts) -> None:
        """Records facts about the package; called after the first run."""
        self._remove_unpacked()
        facts.weights = "parameters"
        facts.not_measurable = ("lower",)
        facts.artifact_sha256 = _digest(self._package)
        facts.artifact_size_bytes = self._package.stat().st_size
        facts.notes["artifact"] = (
            "the digest covers the generated code; the size includes the weights"
        )
        facts.notes["weights"] = "in the package; small or constant ones are in the generated code"
        facts.notes["cache"] = "Inductor does not cache programs that it compiles ahead of time"

    def _remove_unpacked(self) -> None:
        # The libraries stay mapped, and the worker exits without running their destructors.
        for folder in self._unpacked:
            shutil.rmtree(folder, ignore_errors=True)


def _check_outputs(exported: Any) -> None:
    """Raises UnsupportedError if `forward` returns anything but tensors or a tuple of them."""
    spec = exported.call_spec.out_spec
    places = tuple(range(spec.num_leaves))
    if as_tuple(pytree.tree_unflatten(places, spec)) != places:
        raise UnsupportedError(f"forward returns {spec}, expected a tensor or a tuple of tensors")


def _require_compiler() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UnsupportedError(
            "no C++ compiler found for AOTInductor: install g++, or set CXX"
        ) from error


def _digest(package: Path) -> str:
    """Returns the sha256 of the generated code in a package.

    Comments, empty lines and the compiled library are left out: compiler commands, which each
    compilation adds, and debug information contain the paths of this trial.
    """
    contents = []
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            if name.endswith(".cpp"):
                lines = map(bytes.strip, archive.read(name).splitlines())
                code = (line for line in lines if line and not line.startswith(b"//"))
                contents.append(b"\n".join(code))
    if not contents:
        raise RuntimeError(f"{package.name} contains no generated C++ code")
    return digest_of_set(contents)


def _extracted() -> Iterator[Path]:
    """Yields the temporary folders of unpacked packages, found by their mapped files."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        head, marker, _ = line.partition("/data/aotinductor/")
        if marker and (start := head.find("/")) >= 0:
            yield Path(head[start:])


# Description of what was measured, by compiler.
_MEASURED = {
    "eager": "the model's Python, op by op",
    "inductor": "`torch.compile` on the model, traced by Dynamo",
    "aot-inductor": "AOTInductor on a `torch.export` program",
}


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `model.pt2`; for a model that generates, `prefill.pt2` and `decode.pt2`."""
    torch.set_grad_enabled(False)
    context = task.context
    programs, plan = torch_modules.export_programs(task.model(), task.inputs, context.phase)
    names, files = [f"{name}.pt2" for name in exported_programs.program_names(plan)], {}
    for name, program in zip(names, programs, strict=True):
        torch.export.save(program, str(task.directory / name))
        text = name.replace(".pt2", ".txt")
        (task.directory / text).write_text(f"{program}\n", encoding="utf-8")
        files[name] = (
            "the program to compile and its weights: a zip archive for `torch.export.load`"
        )
        files[text] = f"{name} as text"
    note = (
        f"The measurement ran {_MEASURED[context.compiler]}. The reproducer runs the graph from "
        "`torch.export`, which includes neither Dynamo's tracing nor graph breaks. "
        "The reproducer uses your Inductor cache: for a cold compilation, set "
        "TORCHINDUCTOR_CACHE_DIR to an empty folder."
    )
    if plan is not None:
        note += " The token loop is not included: prefill and decode are separate programs."
    return Exported(
        settings={
            "compiler": context.compiler,
            "options": list(context.options),
            "threads": context.threads,
            "call": exported_programs.calls(plan, names),
        },
        packages=("torch", "numpy", "ml_dtypes"),
        files=files,
        modules=exported_programs.modules(plan),
        notes=(note,),
    )
