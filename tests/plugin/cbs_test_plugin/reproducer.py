"""How a result of the toy model becomes a directory that runs without the suite."""

import numpy as np

from comparative_benchmark.backends.exported_programs import Exported, ExportTask


def export(task: ExportTask) -> Exported:
    """Writes `program.npz`: the weights are all that the toy model is."""
    model = task.model()
    np.savez(task.directory / "program.npz", first=model.first, second=model.second)
    return Exported(
        settings={"activation": "np.tanh"},
        packages=("numpy",),
        files={"program.npz": "the weights of the toy model"},
    )
