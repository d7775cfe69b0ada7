"""`cbs parity`, from the command line to the matrix: models that misbehave, workers that share."""

import json
import re
import subprocess
import sys

import attrs
import pytest
from tests_support import processes_of, python_path

NAMES = "models/TOY_({})/.+"
TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy,test_absent")
TOYS += ("--framework", "pytorch,jax")
KNOWN = """
[[expected]]
name = 'models/TOY_{model}/.+'
competitor = 'test_numpy:direct'
device = 'host-cpu'
status = "{status}"
reason = "the toy does it on purpose"
link = "https://example.org/toy"
expires = {expires}
"""


@attrs.frozen
class Parity:
    """A finished `cbs parity`."""

    code: int
    out: str
    err: str
    output: object

    @property
    def document(self):
        return json.loads(self.output.read_text())

    @property
    def cells(self):
        """Cells by model, of what test_numpy made of PyTorch models."""
        return {
            cell["case"].split("/")[1]: cell
            for cell in self.document["cells"]
            if cell["case"]
            and cell["framework"] == "pytorch"
            and cell["competitor"] == "test_numpy:direct"
        }


def run_parity(directory, environment, *arguments):
    output = directory / "matrix.json"
    done = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", "parity", "-o", output, *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Parity(done.returncode, done.stdout, done.stderr, output)


@pytest.fixture
def parity(tmp_path, environment):
    def run(*arguments):
        return run_parity(tmp_path, environment, *arguments)

    return run


@pytest.fixture(scope="module")
def zoo(tmp_path_factory, environment):
    """Good models among models that crash, hang and deceive."""
    directory = tmp_path_factory.mktemp("parity")
    models = "NONE|SEGFAULT|HANG|NAN|TRANSPOSED|RAISES|EXIT_CODE|FLOODS|ORPHANS|BUSY"
    return run_parity(
        directory,
        {**environment, "CBS_TEST_MARKER": str(directory)},
        *(*TOYS, "-name", NAMES.format(models), "--timeout", "8"),
    )


@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("TOY_NONE", "ok"),
        ("TOY_SEGFAULT", "crashed"),
        ("TOY_HANG", "timeout"),
        ("TOY_NAN", "wrong_output"),
        ("TOY_TRANSPOSED", "wrong_output"),
        ("TOY_RAISES", "failed"),
        ("TOY_EXIT_CODE", "crashed"),
        ("TOY_FLOODS", "ok"),
        ("TOY_ORPHANS", "ok"),
        ("TOY_BUSY", "ok"),
    ],
)
def test_each_model_costs_its_own_cell_alone(zoo, model, status):
    assert zoo.cells[model]["status"] == status, zoo.cells[model]


def test_every_combination_has_a_cell_with_a_status_and_the_impossible_ones_a_reason(zoo):
    cells = zoo.document["cells"]
    # Ten implementations of one workload, two frameworks, two backends.
    assert len(cells) == 10 * 2 * 2
    impossible = [cell for cell in cells if cell["status"] == "unsupported"]
    assert len(impossible) == 10 * 2 * 2 - 10
    assert all(cell["reason"] for cell in impossible)
    absent = [cell for cell in impossible if cell["framework"] == "pytorch"]
    assert all("pip install a-module-that-is-missing" in cell["reason"] for cell in absent)


def test_a_wrong_output_decides_the_exit_code(zoo):
    assert zoo.code == zoo.document["exit_code"] == 2, zoo.err


def test_the_matrix_shows_errors_and_reasons_and_counts(zoo):
    assert re.search(r"ok \d\.\de-\d\d", zoo.out)
    [line] = [line for line in zoo.out.splitlines() if " TOY_TRANSPOSED" in line][:1]
    assert "wrong_output" in line
    assert "40 cells: 4 ok, 30 unsupported" in zoo.out
    assert "again: cbs run --backend test_numpy:direct -name models/TOY_RAISES/" in zoo.out
    assert zoo.document["counts"]["ok"] == 4


def test_no_process_is_left(zoo):
    assert processes_of(str(zoo.output.parent)) == []


def test_good_cells_share_a_worker_and_each_failure_ends_one(parity):
    run = parity(*TOYS, "-name", NAMES.format("NONE|BUSY|FLOODS"))
    assert run.code == 0, run.err
    assert len({cell["log_file"] for cell in run.cells.values()}) == 1
    mixed = parity(*TOYS, "-name", NAMES.format("NONE|RAISES|BUSY"))
    logs = [mixed.cells[f"TOY_{name}"]["log_file"] for name in ("NONE", "RAISES", "BUSY")]
    assert len(set(logs)) == len(logs)


POISON = """
import sys
from cbs_test_plugin import model
from openxla.benchmark import def_types, testdata

IMPL = dict(name="IMPL", framework_type=def_types.ModelFrameworkType.PYTORCH,
            module_path="poison", architecture="cbs_test_plugin.architecture",
            reference="cbs_test_truth:reference")
ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
        model=def_types.Model(
            name=f"{kind}_POISON",
            model_impl=def_types.ModelImplementation(**IMPL),
            model_parameters={"model_name": "toy", "data_type": "fp32", "kind": kind}))
    for kind in ("A", "B", "C")
]


def create_model(*, kind, **parameters):
    made = model.ToyModel(**parameters)
    if kind == "A":  # what it leaves behind breaks the next one
        sys.poisoned = True
    elif kind == "B" and hasattr(sys, "poisoned"):
        raise RuntimeError("poisoned by the model before")
    return made
"""


def test_a_cell_that_fails_because_of_another_is_run_again_alone(tmp_path, environment):
    (tmp_path / "poison.py").write_text(POISON)
    run = run_parity(
        tmp_path,
        {**environment, "PYTHONPATH": python_path(tmp_path)},
        *("--suite", "poison", "--backend", "test_numpy", "--framework", "pytorch"),
        *("-name", "models/._POISON/.+"),
    )
    assert run.code == 0, run.out + run.err
    assert run.cells["B_POISON"]["status"] == "ok"
    assert "poisoned by the model before" in run.cells["B_POISON"]["note"]
    assert run.cells["C_POISON"]["note"] is None


def test_resume_leaves_out_what_is_settled(parity):
    first = parity(*TOYS, "-name", NAMES.format("NONE|RAISES"))
    assert first.code == 1
    again = parity(*TOYS, "-name", NAMES.format("NONE|RAISES|FLOODS"), "--resume")
    assert "TOY_NONE" not in again.err
    assert "[1/2] failed" in again.err
    assert set(again.cells) == {"TOY_NONE", "TOY_RAISES", "TOY_FLOODS"}
    assert again.cells["TOY_NONE"]["wall_s"] == first.cells["TOY_NONE"]["wall_s"]
    # The matrix also shows resumed cells.
    assert "12 cells: 2 ok" in again.out


def _known(tmp_path, model, status, expires="2999-12-31"):
    path = tmp_path / "known.toml"
    path.write_text(KNOWN.format(model=model, status=status, expires=expires))
    return ("--expected-failures", str(path))


def test_resume_tells_implementations_of_one_workload_apart(parity):
    parity(*TOYS, "-name", NAMES.format("NONE"))
    again = parity(*TOYS, "-name", NAMES.format("TRANSPOSED"), "--resume")
    assert again.code == 2
    assert again.cells["TOY_TRANSPOSED"]["status"] == "wrong_output"


def test_a_known_failure_is_expected_and_leaves_the_exit_code(parity, tmp_path):
    known = _known(tmp_path, "NAN", "wrong_output")
    run = parity(*TOYS, "-name", NAMES.format("NONE|NAN"), *known)
    assert run.code == 0, run.out
    assert "1 expected" in run.out
    assert "the toy does it on purpose" in run.out
    assert run.cells["TOY_NAN"]["expected"] == "the toy does it on purpose"


def test_a_pass_that_was_not_expected_is_reported(parity, tmp_path):
    known = _known(tmp_path, "NONE", "wrong_output")
    run = parity(*TOYS, "-name", NAMES.format("NONE"), *known)
    assert run.code == 1
    assert "unexpected pass" in run.out


def test_an_expired_entry_is_named(parity, tmp_path):
    known = _known(tmp_path, "NONE", "crashed", "2020-01-31")
    run = parity(*TOYS, "-name", NAMES.format("NONE"), *known)
    assert run.code == 1
    assert "expired on 2020-01-31" in run.out
    assert "https://example.org/toy" in run.out


@pytest.mark.parametrize(
    ("status", "code", "words"), [("failed", 0, "expected"), ("crashed", 1, "failed")]
)
def test_known_failures_hold_for_runs_too(cbs_run, tmp_path, status, code, words):
    known = _known(tmp_path, "RAISES", status)
    run = cbs_run(
        *("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy"),
        *("-name", NAMES.format("NONE|RAISES"), "-w", "0", "-iter", "1", *known),
    )
    assert run.code == code, run.out + run.err
    [row] = [line for line in run.out.splitlines() if line.startswith(f"{words}  TOY_RAISES")]
    assert ("the toy does it on purpose" in row) is (code == 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "nope"], ["'nope'", "jax_xla"]),
        (["-device", "host-tpu"], ["'host-tpu'", "host-cpu"]),
        (["-name", "models/("], ["not a regular expression"]),
        (["-name", "models/NOPE"], ["cbs list"]),
        (["--framework", "mxnet"], ["torch", "pytorch"]),
        (["--expected-failures", "none.toml"], ["none.toml", "cannot be read"]),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(parity, arguments, words):
    run = parity(*TOYS[:2], *arguments)
    assert run.code == 1
    assert "Traceback" not in run.err
    for word in words:
        assert word in run.err
    assert not run.output.exists()


def test_resuming_needs_a_file(tmp_path, environment):
    done = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", "parity", "--resume"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "-o" in done.stderr
