"""ONNX files of PyTorch models, SavedModel and TFLite files of JAX and TensorFlow models.

SavedModel and TFLite files are converted as by the backend `tflite`. Files are read back with ONNX
Runtime, TensorFlow's loader and LiteRT.
"""

import shutil
import tempfile
from pathlib import Path

from comparative_benchmark.backends.api import Array, UnsupportedError, untimed
from comparative_benchmark.maintenance.artifacts.job import Job
from comparative_benchmark.tflite.backend import export_file, specs_of
from openxla.benchmark.artifacts import archives

_ONNX = "model.onnx"
_SAVED_MODEL = "tf-model.tgz"
_STABLEHLO = "stablehlo"
# Contains random numbers that distinguish two saves of a model, but exports must be reproducible.
_FINGERPRINT = "fingerprint.pb"


def export_onnx(job: Job) -> None:
    """Writes the graph, and the weights next to it.

    Raises:
      UnsupportedError: the model cannot be exported, or has more than one graph.
    """
    from comparative_benchmark.backends.frameworks import torch_export, torch_modules

    model = job.model()
    if torch_modules.is_generator(model):
        raise UnsupportedError(
            "a generative model consists of two graphs and a loop on the host; export the model "
            "that scores its input instead"
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
