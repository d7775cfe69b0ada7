"""Programs that are wrong in one way each, in real workers: none may be taken for right.

Whether an error of a size is found is for `test_verification_adversarial.py`; here are programs.
"""

import json
import subprocess
import sys

import pytest
from cbs_test_plugin.adversarial_suite import MODELS
from cbs_test_plugin.adversaries import KEEPING

pytestmark = pytest.mark.frameworks

# Right on the input that is timed: what of a second one finds them.
SECOND = {fault.upper().replace("-", "_") for fault in KEEPING}
NAMES = sorted(model.name for model in MODELS)


@pytest.fixture(scope="module")
def cells(tmp_path_factory, environment):
    """All of them through the backend of their framework, by the model's name."""
    directory = tmp_path_factory.mktemp("adversaries")
    output = directory / "matrix.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "parity"),
            *("--suite", "cbs_test_plugin.adversarial_suite", "--tag", "adversary"),
            *("--backend", "pt_inductor:eager,jax_xla:xla", "--no-drift", "-o", output),
        ],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    cells = json.loads(output.read_text())["cells"]
    return {
        cell["case"].split("/")[1]: cell
        for cell in cells
        if cell["case"] and cell["status"] != "unsupported"
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_adversary_is_wrong_and_what_is_right_is_right(cells, name):
    cell = cells[name]
    if "_NONE_" in name:
        assert cell["status"] == "ok", cell["reason"]
        return
    assert cell["status"] == "wrong_output", (cell["reason"], cell["relative_error"])
    fault = name.removeprefix("BERT_").rsplit("_", 2)[0]
    assert cell["phase"] == ("verify_second_input" if fault in SECOND else "verify_first_run")


def test_zz_adversarial_count(cells, capsys):
    planted = [name for name in NAMES if "_NONE_" not in name]
    caught = [name for name in planted if cells[name]["status"] == "wrong_output"]
    with capsys.disabled():
        print(f"\n{len(planted)} planted, {len(caught)} caught")
    assert len(planted) >= 40
    assert planted == caught
