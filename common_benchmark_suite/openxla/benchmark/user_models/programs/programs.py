"""Cases of exported programs, from a file or a folder; nothing is executed."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from openxla.benchmark.artifacts.array_files import UserInputs
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)
from openxla.benchmark.files import sha256_of
from openxla.benchmark.user_models.model_options import (
    InputSpec,
    ModelOptions,
    UserModelError,
    Variant,
    input_data,
    model_name,
    parse_spec,
    recorded_specs,
    variants,
)
from openxla.benchmark.user_models.onnx import onnx_file
from openxla.benchmark.user_models.programs import keras_file, torch_archives
from openxla.benchmark.user_models.programs.signature import NamedInputs, Signature

_PACKAGE = "openxla.benchmark.user_models.programs"


@attrs.frozen
class Kind:
    """A format of exported programs.

    Attributes:
      name: name for messages.
      framework: the framework that backends declare support for.
      module: module that builds the program in a worker.
    """

    name: str
    framework: ModelFrameworkType
    module: str


ONNX = Kind("ONNX", ModelFrameworkType.ONNX, "openxla.benchmark.user_models.onnx.in_onnx")
STABLEHLO = Kind("StableHLO", ModelFrameworkType.STABLEHLO, f"{_PACKAGE}.in_stablehlo")
JAX_EXPORT = Kind("jax.export", ModelFrameworkType.JAX, f"{_PACKAGE}.in_stablehlo")
TORCH_EXPORT = Kind("torch.export", ModelFrameworkType.PYTORCH, f"{_PACKAGE}.in_torch_export")
SAVED_MODEL = Kind("SavedModel", ModelFrameworkType.TF_V2, f"{_PACKAGE}.in_saved_model")
TORCHSCRIPT = Kind("TorchScript", ModelFrameworkType.PYTORCH, f"{_PACKAGE}.in_torchscript")
KERAS = Kind("Keras", ModelFrameworkType.TF_V2, f"{_PACKAGE}.in_keras")
TFLITE = Kind("TFLite", ModelFrameworkType.TFLITE, f"{_PACKAGE}.in_tflite")
# Format by file name suffix.
KINDS: Mapping[str, Kind] = {
    ".onnx": ONNX,
    ".mlir": STABLEHLO,
    ".mlirbc": STABLEHLO,
    ".jax_export": JAX_EXPORT,
    ".pt2": TORCH_EXPORT,
    ".tflite": TFLITE,
    ".keras": KERAS,
    ".h5": KERAS,
    ".hdf5": KERAS,
    ".torchscript": TORCHSCRIPT,
}
ALL_KINDS = (*KINDS.values(), SAVED_MODEL)
# Formats whose files can hold code.
_WITH_CODE = (TORCH_EXPORT, TORCHSCRIPT, KERAS)


@attrs.frozen(kw_only=True)
class ProgramFile:
    """An exported program.

    Attributes:
      path: absolute path of the file or folder.
      kind: its format.
    """

    path: Path
    kind: Kind


@attrs.frozen(kw_only=True)
class _Outline:
    """A program as read without a framework; signature and type are None if unknown."""

    digest: str
    signature: Signature | NamedInputs | None = None
    data_type: str | None = None


def digest_of(path: Path, kind: Kind) -> str:
    """Returns the sha256 of all files of a program.

    Raises:
      UserModelError: the program is incomplete.
    """
    if kind is ONNX:
        return onnx_file.digest_of(path, onnx_file.read(path).data_files)
    return _digest(path)


def cases(
    program: ProgramFile, wanted: ModelOptions, given: UserInputs | None
) -> list[BenchmarkCase]:
    """Returns the cases of a program, one for each batch size and length.

    Raises:
      UserModelError: the program is incomplete, or takes other inputs.
    """
    if wanted.task is not None:
        raise UserModelError("--task requires a Hugging Face directory")
    if wanted.base is not None:
        raise UserModelError("--base requires a LoRA adapter's directory")
    if wanted.allow_code and program.kind not in _WITH_CODE:
        raise UserModelError(f"--allow-code: {program.kind.name} programs run no code when loaded")
    outline = _outline(program.path, program.kind, wanted)
    own = outline.data_type or "fp32"
    if other := [name for name in wanted.data_types if outline.data_type not in (None, name)]:
        raise UserModelError(
            f"--dtype {other[0]}: {program.path.name} computes in {own}, and exported programs "
            "run unmodified"
        )
    return [_case(program, outline, wanted, given, item) for item in variants(wanted, own)]


def _outline(path: Path, kind: Kind, wanted: ModelOptions) -> _Outline:
    if kind is ONNX:
        file = onnx_file.read(path)
        return _Outline(
            digest=onnx_file.digest_of(path, file.data_files),
            signature=file.signature,
            data_type=file.data_type,
        )
    if kind is TORCHSCRIPT:
        script = torch_archives.read_torchscript(path)
        torch_archives.refuse_code(path.name, script.code, allowed=wanted.allow_code)
        return _Outline(digest=_digest(path), signature=script.takes)
    if kind is KERAS:
        keras_file.check(path, allow_code=wanted.allow_code)
    return _Outline(digest=_digest(path))


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(item for item in path.rglob("*") if item.is_file())
        lines = [f"{item.relative_to(path)} {sha256_of(item)}" for item in files]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    try:
        return sha256_of(path)
    except OSError as error:
        raise UserModelError(f"{path} cannot be read: {error}") from error


def _case(
    program: ProgramFile,
    outline: _Outline,
    wanted: ModelOptions,
    given: UserInputs | None,
    variant: Variant,
) -> BenchmarkCase:
    path, kind = program.path, program.kind
    has_sizes = (variant.batch_size, variant.seq_len) != (None, None)
    if given is not None and has_sizes and not wanted.recorded:
        raise UserModelError("--inputs determines all sizes; omit --batch and --seq-len")
    parameters: dict[str, str | int | bool] = {
        "source": str(path),
        "program": kind.name,
        "source_sha256": outline.digest,
        "data_type": variant.data_type,
    }
    if wanted.allow_code:
        parameters["pickled"] = True
    inputs = _inputs(outline.signature, wanted, variant) if given is None else ()
    if given is not None and outline.signature is not None:
        outline.signature.check(
            [InputSpec(element_type=spec.dtype, sizes=spec.shape) for spec in given.specs]
        )
    if inputs:
        written = [parse_spec(text) for text in wanted.inputs]
        parameters |= recorded_specs(written or inputs, inputs)
    parameters |= variant.sizes
    stem = re.sub(r"[^A-Za-z0-9_.+-]", "_", path.stem).lstrip("_.+-")
    implementation = ModelImplementation(
        name=f"{stem or 'model'}.{kind.name}",
        tags=["brought", "program"],
        framework_type=kind.framework,
        module_path=kind.module,
        own_process=True,
    )
    model = Model(
        name=model_name([path.stem], kind.framework, variant),
        model_impl=implementation,
        model_parameters=parameters,
    )
    return BenchmarkCase.build(
        model=model, input_data=input_data(inputs if wanted.inputs else (), given)
    )


def _inputs(
    signature: Signature | NamedInputs | None, wanted: ModelOptions, variant: Variant
) -> tuple[InputSpec, ...]:
    """Returns the inputs with all sizes as numbers; none if only a worker can determine them."""
    if signature is not None:
        return signature.inputs(wanted.inputs, variant.batch_size, variant.seq_len)
    written = [parse_spec(text) for text in wanted.inputs]
    return tuple(spec.filled(variant.batch_size or 1, variant.seq_len) for spec in written)
