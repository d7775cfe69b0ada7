"""ONNX files of PyTorch models, read back with ONNX Runtime."""

from pathlib import Path

from comparative_benchmark.backends.api import Array, UnsupportedError, untimed
from comparative_benchmark.backends.frameworks import torch_export, torch_modules
from comparative_benchmark.maintenance.artifacts.exporters.job import Job

_FILE = "model.onnx"


def export_onnx(job: Job) -> None:
    """Writes the graph, and the weights next to it.

    Raises:
      UnsupportedError: the model cannot be exported, or has more than one graph.
    """
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
    opened = session.open_session(job.find(_FILE), "cpu", chosen)
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
