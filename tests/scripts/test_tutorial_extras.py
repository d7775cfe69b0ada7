"""Pages that name extras work in an environment that has only these."""

import os
import re
import shutil

import pytest
import results_support
from documents_support import ROOT, blocks, run_bash

pytestmark = pytest.mark.nightly

NAMED = re.compile(r"pip install -e '\.\[([\w,-]+)\]'`?")
TUTORIAL = "docs/getting-started/own-model.md"
INSTALL = """
source scripts/environment.sh
python3 -m venv "${TARGET}"
install "${TARGET}" --constraint requirements/dev.txt ".[${EXTRAS}]"
"""


def parts(page):
    """Yields extras of a page, with the commands that follow them up to the next extras."""
    _, *pieces = NAMED.split((ROOT / page).read_text())
    for extras, text in zip(pieces[::2], pieces[1::2], strict=True):
        # If the extras are in a block, the piece begins with the rest of it.
        begun = text.partition("```")[0] if text.startswith("\n") else ""
        yield extras, "".join([begun, *blocks(text, "sh")])


CASES = [
    pytest.param(page, extras, commands, id=f"{page}-{extras}")
    for page in (TUTORIAL, "docs/guides/report.md", "docs/guides/history.md")
    for extras, commands in parts(page)
]


def test_the_pages_name_extras():
    extras = [case.values[1] for case in CASES]
    assert extras == [
        "pt-inductor,onnxruntime",
        "pt-inductor,onnxruntime,openvino,iree",
        "report",
        "history",
    ]


@pytest.mark.parametrize(("page", "extras", "commands"), CASES)
def test_the_extras_suffice(page, extras, commands, environment, tmp_path):
    clean = {k: v for k, v in environment.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    target = tmp_path / "environment"
    made = run_bash(INSTALL, ROOT, {**clean, "TARGET": str(target), "EXTRAS": extras})
    assert made.returncode == 0, made.stderr[-3000:]
    folder = tmp_path / "folder"
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
    (folder / "results").mkdir()
    results_support.write(folder / "results.json")
    results_support.write(folder / "results" / "one.json")
    commands = commands.replace("source .venv/bin/activate", "")
    path = os.pathsep.join([str(target / "bin"), clean["PATH"]])
    done = run_bash(commands, folder, {**clean, "PATH": path, "XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
