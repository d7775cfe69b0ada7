"""The Python API as the documents show it: as a script, and in the kernel of a notebook."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from results_support import write

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# The lines are unchanged except for the duration and number of trials.
QUICK = """
import comparative_benchmark as cb
_run, _cases = cb.run, "(JAX|PT)_32XI32_BATCH1/.+DEFAULT"
def run(name, backends, **options):
    options |= {{"warmup_iterations": 1, "iterations": 3}}
    return _run(name.replace(".+", _cases), backends=backends + {compiler!r}, **options)
cb.run = run
"""


def five_lines():
    block, *_ = re.findall(
        r"^```python\n(.*?)^```",
        (DOCS / "guides/python-api.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert len([line for line in block.splitlines() if line]) == 5
    return block


# Compiling takes most of the time.
@pytest.mark.parametrize("compiler", [":eager", pytest.param("", marks=pytest.mark.nightly)])
def test_the_five_lines_run_as_a_script(tmp_path, environment, compiler):
    write(tmp_path / "before.json")
    script = tmp_path / "script.py"
    competitors = 2 if compiler else 3
    check = f"\nassert len(results) == {competitors}, results\n"
    check += "assert not results.failures, results.failures\n"
    script.write_text(QUICK.format(compiler=compiler) + five_lines() + check)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "jax_xla:xla" in done.stdout
    assert ("pt_inductor:eager" if compiler else "pt_inductor:inductor") in done.stdout


def execute(notebook, folder):
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()


def test_the_notebook_of_the_documentation_gives_its_stored_outputs(
    tmp_path, environment, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = DOCS / "examples" / "races.ipynb"
    before = outputs_of(path)
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    command = [sys.executable, ROOT / "scripts" / "run_notebook.py", copy]
    subprocess.run(command, check=True, timeout=600)
    after = outputs_of(copy)
    assert [sorted(output) for output in after] == [sorted(output) for output in before]
    headings = [re.findall(r"<th>(.*?)</th>", out.get("text/html", "")) for out in after]
    assert headings == [re.findall(r"<th>(.*?)</th>", o.get("text/html", "")) for o in before]
    shown, failures, frame, verdicts, exit_code = after
    assert "pt_inductor:eager" in shown["text/html"]
    assert "jax_xla:xla" not in failures["text/plain"]
    assert "latency_ms" in frame["text/html"]
    assert "unclear" in verdicts["text/html"]
    assert exit_code["text/plain"] == "0"
    assert tempfile.gettempdir() not in copy.read_text()


def outputs_of(path):
    """Data of the outputs of a notebook; each code cell of this one has one."""
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [len(cell.outputs) for cell in code] == [1] * len(code)
    return [cell.outputs[0].data for cell in code]


def test_the_five_lines_run_in_a_notebook(tmp_path, environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    write(tmp_path / "before.json")
    quick = QUICK.format(compiler=":eager")
    lines = five_lines().strip().splitlines()
    cells = [quick, "\n".join(lines[:-2]), lines[-2], lines[-1], "results"]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    execute(notebook, tmp_path)
    frame, regressions, shown = (cell.outputs[-1].data for cell in notebook.cells[-3:])
    assert "verdict" in frame["text/html"]
    assert regressions["text/html"].startswith("<table>")
    assert "jax_xla:xla" in shown["text/html"]
