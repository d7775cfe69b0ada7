"""Inputs, expected outputs and checkpoint of a model; its ONNX, SavedModel and TFLite files."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.backends.api import Array, UnsupportedError, untimed
from comparative_benchmark.maintenance.artifacts.job import Job
from comparative_benchmark.tflite.backend import export_file, specs_of
from openxla.benchmark.artifacts import archives, array_files
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models import architectures, checkpoints

_ONNX = "model.onnx"
_SAVED_MODEL = "tf-model.tgz"
_STABLEHLO = "stablehlo"
# Contains random numbers that distinguish two saves of a model, but exports must be reproducible.
_FINGERPRINT = "fingerprint.pb"
SECOND_FILE = "second_npy.tgz"
_CHECKPOINT = "checkpoint"


def export_arrays(job: Job) -> None:
    """Packs arrays as `input_0.npy` or `output_0.npy` and so on, in the OpenXLA suite's format.

    The arrays are the model's inputs, its outputs in its own type, or the float64 outputs that all
    runs are verified against.
    """
    paths: Sequence[Path] = getattr(job, job.options["of"])
    members = {f"{job.options['stem']}_{index}.npy": path for index, path in enumerate(paths)}
    archives.pack(job.directory / job.options["file"], members)


def read_arrays(job: Job) -> list[Array]:
    """Unpacks the arrays as a reader of a published model does."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "unpacked"
        archives.unpack(job.find(job.options["file"]), target)
        return array_files.load_all(target, job.options["stem"])


def export_second(job: Job) -> None:
    """Packs the second input, and its truth and reference, each in its folder.

    Raises:
      UnsupportedError: there is no second input.
    """
    if not job.second:
        raise UnsupportedError(
            "the model has no second input; see the reason in the workload's manifest"
        )
    archives.pack(job.directory / SECOND_FILE, job.second)


def read_second(job: Job) -> list[Array]:
    """Unpacks the second input, and checks its files against the manifest.

    Raises:
      ValueError: a file differs from the manifest or is not listed in it.
    """
    files = json.loads(job.workload.read_text(encoding="utf-8"))["files"]
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "unpacked"
        for path in archives.unpack(job.find(SECOND_FILE), target):
            name = path.relative_to(target).as_posix()
            if files.get(name, {}).get("sha256") != sha256_of(path):
                raise ValueError(f"workload.json has no matching digest for {name}")
    return []


def export_workload(job: Job) -> None:
    """Writes the workload's manifest, which describes inputs and outputs, without its date."""
    manifest = json.loads(job.workload.read_text(encoding="utf-8"))
    del manifest["date"]
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (job.directory / "workload.json").write_text(text, encoding="utf-8")


def read_workload(job: Job) -> list[Array]:
    """Checks the digests in the manifest against the arrays.

    Raises:
      ValueError: a file differs from the manifest or is not listed in it.
    """
    files = json.loads(job.find("workload.json").read_text(encoding="utf-8"))["files"]
    for kind in ("inputs", "truth", "reference"):
        for path in getattr(job, kind):
            named = files.get(f"{kind}/{path.name}", {}).get("sha256")
            if named != sha256_of(path):
                raise ValueError(f"workload.json has no matching digest for {kind}/{path.name}")
    return []


def export_checkpoint(job: Job) -> None:
    """Copies the checkpoint that all frameworks load.

    Raises:
      UnsupportedError: the model has no checkpoint.
    """
    if job.architecture is None:
        raise UnsupportedError(
            "the model has no checkpoint: its own code creates the weights from a seed"
        )
    architecture = architectures.get(job.architecture)
    parameters = architecture.complete(job.definition.parameters)
    source = checkpoints.resolve(architecture, parameters)
    shutil.copytree(source, job.directory / _CHECKPOINT)


def read_checkpoint(job: Job) -> list[Array]:
    """Opens the checkpoint with the safetensors library, and checks its files against its manifest.

    Raises:
      ValueError: a file differs from the manifest, or contains no tensors.
    """
    from safetensors import safe_open

    directory = job.find(_CHECKPOINT)
    described = json.loads((directory / checkpoints.MANIFEST_FILE).read_text(encoding="utf-8"))
    for name, facts in described["files"].items():
        if sha256_of(directory / name) != facts["sha256"]:
            raise ValueError(f"checkpoint file {name} does not match the digest in its manifest")
    json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
        if not shapes:
            raise ValueError(f"{path.name} contains no tensors")
    return []


def export_onnx(job: Job) -> None:
    """Writes the graph, and the weights next to it.

    Raises:
      UnsupportedError: the model cannot be exported, or has more than one graph.
    """
    from comparative_benchmark.backends.frameworks import torch_export, torch_modules

    model = job.model()
    if torch_modules.is_generator(model):
        raise UnsupportedError(
            "a generative model (two graphs and a loop on the host) cannot be exported to ONNX; "
            "export the model that scores its input instead"
        )
    [path], _ = torch_export.write_onnx(model, job.arrays(), job.directory, untimed)
    _strip(path)


def run_onnx(job: Job) -> list[Array]:
    """Runs the unoptimised graph in a session.

    Raises:
      UnsupportedError: ONNX Runtime lacks a kernel.
    """
    from comparative_benchmark.backends.resident_programs import SingleProgram
    from comparative_benchmark.onnxruntime import session

    chosen = session.options("disabled", job.threads)
    opened = session.open_session(job.find(_ONNX), "cpu", chosen)
    bound = SingleProgram(session.SessionProgram(opened, "cpu"), job.arrays())
    bound.run()
    return bound.fetch()


def _strip(path: Path) -> None:
    """Removes source paths and lines recorded by the exporter."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    parts = [model.graph, *model.functions]
    for part in parts:
        nodes = list(part.node)
        values = [*part.value_info, *getattr(part, "input", ()), *getattr(part, "output", ())]
        for item in (part, *nodes, *(v for v in values if not isinstance(v, str))):
            item.ClearField("metadata_props")
            item.ClearField("doc_string")
    model.ClearField("metadata_props")
    path.write_bytes(model.SerializeToString(deterministic=True))


def export_saved_model(job: Job) -> None:
    """Writes an archive with a SavedModel that has the weights as variables."""
    from openxla.benchmark.models.tflite import conversion

    directory = job.scratch / "saved-model"
    conversion.save(job.model(), specs_of(job.arrays()), directory)
    (directory / _FINGERPRINT).unlink(missing_ok=True)
    archives.pack_directory(job.directory / _SAVED_MODEL, directory, level=archives.FASTEST)


def run_saved_model(job: Job) -> list[Array]:
    """Loads the SavedModel with TensorFlow and calls its signature."""
    import tensorflow as tf

    directory = job.scratch / "loaded-model"
    archives.unpack(job.find(_SAVED_MODEL), directory)
    signature = tf.saved_model.load(str(directory)).signatures["serving_default"]
    values = {f"input_{index:02d}": tf.constant(v) for index, v in enumerate(job.arrays())}
    outputs = signature(**values)
    return [outputs[name].numpy() for name in sorted(outputs)]


def export_tflite(job: Job) -> None:
    """Converts a model, or copies the file of a TFLite case.

    Raises:
      UnsupportedError: TFLite cannot represent the model in that form.
    """
    compiler, target = job.options["compiler"], job.directory / job.options["file"]
    if compiler == _STABLEHLO:
        target.write_bytes(_converted_through_stablehlo(job))
    else:
        shutil.copyfile(_converted(job, compiler), target)


def run_tflite(job: Job) -> list[Array]:
    """Runs the file in LiteRT's interpreter.

    Raises:
      UnsupportedError: LiteRT has no kernel for one of its operations.
    """
    from openxla.benchmark.models.tflite.program import Program

    try:
        program = Program(job.find(job.options["file"]), threads=job.threads)
        program.set_inputs(job.arrays())
        program.invoke()
    except (RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise UnsupportedError(f"LiteRT rejects the file: {first}") from error
    return program.outputs()


def _converted(job: Job, compiler: str) -> Path:
    """Returns the TFLite file, converted from the model in another process."""
    # A separate directory, because the process keeps its files there.
    directory = Path(tempfile.mkdtemp(prefix="tflite-", dir=job.scratch))
    return Path(export_file(job.definition, job.arrays(), compiler, directory, untimed)["path"])


def _converted_through_stablehlo(job: Job) -> bytes:
    from openxla.benchmark.models.tflite import conversion

    directory = job.scratch / "stablehlo-model"
    directory.mkdir()
    try:
        return conversion.convert(
            job.model(), specs_of(job.arrays()), "fp32", directory, keeps_stablehlo=True
        )
    except conversion.NotConvertibleError as error:
        raise UnsupportedError(str(error)) from error
