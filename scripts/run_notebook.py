#!/usr/bin/env python3
"""Executes the notebook in the documentation, and stores the outputs in it.

    python scripts/run_notebook.py [docs/examples/races.ipynb]

Only results are stored, as HTML if there is any: progress, times of execution and paths of this
machine are not. Run nothing else at the same time, because the notebook measures.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "examples" / "races.ipynb"


def main() -> int:
    """Executes the notebook; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebook", type=Path, nargs="?", default=NOTEBOOK)
    path = parser.parse_args().notebook
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="cbs-notebook-") as folder:
        metadata = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=600, resources=metadata).execute()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [stored(output) for output in cell.outputs if "data" in output]
    nbformat.write(notebook, path)
    return 0


def stored(output: Any) -> Any:
    """Returns an output with HTML only; with its text if it has no HTML."""
    kind = "text/html" if "text/html" in output.data else "text/plain"
    output.data = {kind: output.data[kind]}
    output.metadata.clear()
    return output


if __name__ == "__main__":
    sys.exit(main())
