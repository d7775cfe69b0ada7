"""Programs outside their framework: digests, weights, stored truth, and reproducers.

`BackendInfo.reproducer` names a function `(ExportTask) -> Exported`, which runs in a worker: it
exports one program as the backend would for a measurement, to run without the suite. The folder
of its module contains `run.py.txt`, the template of the script that runs the program.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import (
    Array,
    BackendContext,
    ModelDefinition,
    UnsupportedError,
    backends,
    installed_versions,
    load_object,
    untimed,
)
from comparative_benchmark.backends.resident_programs import GenerationPlan
from openxla.benchmark.artifacts import archives, array_files


def digest_of_parts(*parts: str | bytes) -> bytes:
    """Returns the sha256 of parts; lengths are included, so that boundaries matter."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def digest_of_set(contents: Iterable[bytes]) -> str:
    """Returns the sha256 of several contents, independent of their order."""
    digests = sorted(hashlib.sha256(content).digest() for content in contents)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def joint_digest(digests: Sequence[str]) -> str:
    """Returns the digest of several programs, or of the only one."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


STEM = "weight"


def unpack(files: Sequence[Path], target: Path) -> list[int | None]:
    """Unpacks weights into a new directory, in the order of the parameters that take them.

    Args:
      files: files of the artifact `xla_weights`.
      target: directory for `weight_0.npy` and so on.

    Returns:
      For each parameter of the program, the index of its input; None for a weight.

    Raises:
      StoreError: the archive is damaged.
    """
    by_ending = {file.name.partition(".")[2]: file for file in files}
    archives.unpack(by_ending["tgz"], target)
    places: list[int | None] = json.loads(by_ending["json"].read_text(encoding="utf-8"))["inputs"]
    return places


def write_onnx(model: Any, work_dir: Path, inputs: Sequence[Array]) -> list[Path]:
    """Writes a user's ONNX model to a new folder, and returns the file and its weight files.

    The weight files may be links to the user's own. A backend that wrote a file of the same name
    next to them would overwrite the user's weights.
    """
    folder = Path(tempfile.mkdtemp(prefix="onnx-", dir=work_dir))
    written: list[Path] = model.write_onnx(folder, inputs)
    return written


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs in float64, and of a plain run in the program's own type.

    See `openxla.benchmark.user_models.programs.program_model`.
    """
    outputs: tuple[list[Any], list[Any]] = model.truth_and_reference(inputs)
    return outputs


_ONE = """\
program, inputs = opened("{name}"), check.inputs()


def run():
    return program(*inputs)
"""
_TWO = """\
from generate import generate  # noqa: E402

prefill, decode, inputs = opened("{prefill}"), opened("{decode}"), check.inputs()


def run():
    return generate(
        prefill, decode, inputs, steps={steps}, first_position={first}, changes={changes}
    )
"""


@attrs.frozen(kw_only=True)
class ExportTask:
    """The program to export.

    Attributes:
      context: context of the backend that compiles the program; its phases are not timed.
      definition: definition of the model.
      inputs: one array for each argument of the model.
      directory: the reproducer's existing directory.
    """

    context: BackendContext
    definition: ModelDefinition
    inputs: tuple[Array, ...]
    directory: Path

    def model(self) -> Any:
        """Creates the model, in its framework."""
        return self.definition.create()


@attrs.frozen(kw_only=True)
class Command:
    """A command line for an exported program.

    Attributes:
      comment: what it does, and where to get the tool if no wheel contains it.
      arguments: program and arguments, to be run in the reproducer's directory.
      is_packaged: whether the packages of `requirements.txt` include the tool.
    """

    comment: str
    arguments: tuple[str, ...]
    is_packaged: bool = True


@attrs.frozen(kw_only=True)
class Exported:
    """A program that was exported to a directory.

    Attributes:
      settings: values for `${NAME}` in the template of `run.py`: strings are inserted unchanged,
        other JSON values as Python literals.
      packages: distributions that `run.py` imports.
      files: description of each written file or folder, by name.
      modules: further templates that `run.py` imports: `generate.py` or files next to `run.py.txt`.
      commands: command lines that do what `run.py` does, or part of it.
      notes: differences from what was measured, for the reader.
      program_sha256: digest of the compiled program or the file, if it must equal the measured one.
    """

    settings: Mapping[str, Any]
    packages: tuple[str, ...]
    files: Mapping[str, str]
    modules: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    program_sha256: str | None = None


def program_names(plan: GenerationPlan | None) -> tuple[str, ...]:
    """Returns the names of a model's programs: one, or two if the model generates."""
    return ("model",) if plan is None else ("prefill", "decode")


def calls(plan: GenerationPlan | None, files: Sequence[str]) -> str:
    """Returns the lines of `run.py` that open and call programs of these files."""
    if plan is None:
        return _ONE.format(name=files[0])
    return _TWO.format(
        prefill=files[0],
        decode=files[1],
        steps=plan.steps,
        first=plan.first_position,
        changes=plan.changes,
    )


def modules(plan: GenerationPlan | None) -> tuple[str, ...]:
    """Returns the templates that these lines import."""
    return () if plan is None else ("generate.py",)


def export(
    *,
    reproducer: str,
    context: Mapping[str, Any],
    definition: Mapping[str, Any],
    inputs: Sequence[str],
    directory: str,
) -> dict[str, Any]:
    """Builds a model in a worker, and exports its program to a directory.

    Args:
      reproducer: `module:function` of the backend that exports the program.
      context: `compiler`, `options`, `device`, `threads` and `work_dir` of a `BackendContext`.
      definition: `module_path` and `parameters` of the model.
      inputs: files with its inputs.
      directory: existing directory of the reproducer.

    Returns:
      `exported`, an `Exported` as JSON; `versions` of the packages that its script needs.

    Raises:
      UnsupportedError: the backend does not support such a model, or cannot export it; or the
        options include a recipe, which exporters would leave out.
    """
    known = {name for info in backends().values() for one in info.compilers for name in one.options}
    if recipes := sorted(set(context["options"]) - known):
        raise UnsupportedError(
            f"reproducers do not include recipes ({', '.join(recipes)}): measure the case without "
            "the recipe, and export that result"
        )
    task = ExportTask(
        context=BackendContext.read(context, untimed),
        definition=ModelDefinition(**definition),
        inputs=tuple(array_files.load(Path(path)) for path in inputs),
        directory=Path(directory),
    )
    exported: Exported = load_object(reproducer)(task)
    versions = installed_versions(exported.packages)
    return {"exported": attrs.asdict(exported), "versions": versions}
