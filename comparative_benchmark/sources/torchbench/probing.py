"""Checks whether a folder runs with a batch size, in a separate worker that may crash."""

from pathlib import Path
from typing import Any

from comparative_benchmark.sources.torchbench.loading import Request
from comparative_benchmark.sources.torchbench.model import FolderModel


def probe(folder: str, test: str, batch_size: int, packages: str | None = None) -> dict[str, Any]:
    """Runs a folder's test once as a trial and its truth do; returns the facts about its inputs.

    Raises:
      UnsupportedError: the folder does not take this batch size.
    """
    model = FolderModel(
        Request(
            folder=Path(folder),
            test=test,
            batch_size=batch_size,
            packages=Path(packages) if packages else None,
        )
    )
    inputs = model.preprocess(model.generate_default_inputs())
    model.judged_by(inputs)
    model.outputs_of(model.timed(*model.reside(inputs)))
    return {"elements": sum(value.size for value in inputs)}
