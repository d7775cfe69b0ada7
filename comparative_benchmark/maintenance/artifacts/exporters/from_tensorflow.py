"""SavedModel and TFLite files of JAX and TensorFlow models.

Models are converted as by the backend `tflite`. Files are read back with TensorFlow's loader and
with LiteRT.
"""

import shutil
import tempfile
from pathlib import Path

from comparative_benchmark.backends.api import Array, UnsupportedError, untimed
from comparative_benchmark.maintenance.artifacts.exporters.job import Job
from comparative_benchmark.tflite.export import export_file, specs_of
from openxla.benchmark.artifacts import archives

_SAVED_MODEL = "tf-model.tgz"
_STABLEHLO = "stablehlo"
# Contains random numbers that distinguish two saves of a model, but exports must be reproducible.
_FINGERPRINT = "fingerprint.pb"


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
