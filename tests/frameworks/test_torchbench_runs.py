"""Model folders of TorchBench, run unmodified by `cbs`."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench_support import nothing_outside, processes_with
from framework_process import run_script

pytestmark = pytest.mark.frameworks

DATA = Path(__file__).parents[1] / "data" / "torchbench"
QUICK = ("-w", "1", "-iter", "3", "--threads", "1")
HEAD = """
import torch
from torchbenchmark.util.model import BenchmarkModel

class Model(BenchmarkModel):
    DEFAULT_EVAL_BSIZE = 2

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Linear(4, 4)
        self.x = torch.randn(self.batch_size, 4)
        {ctor}

    def get_module(self):
        return self.model, (self.x,)

    def eval(self):
        {eval}
"""
# One fault per folder: its constructor, its eval, and the end of the trial.
FAULTS = {
    "raises_at_import": (None, None, "failed", "ZeroDivisionError"),
    "not_parsed": (None, None, "failed", "SyntaxError"),
    "not_implemented": ("raise NotImplementedError('cuda only')", None, "unsupported", "cuda only"),
    "eval_not_implemented": ("", "raise NotImplementedError", "unsupported", "NotImplemented"),
    "needs_a_package": ("import cbs_not_there", None, "unsupported", "pip install cbs_not_there"),
    # As in transformers if a torchvision for another PyTorch is installed.
    "imports_late": (
        "raise ImportError('no BertModel') from RuntimeError('no operator')",
        None,
        "failed",
        r"ImportError: no BertModel \(caused by RuntimeError: no operator\)",
    ),
    "downloads": (
        "import urllib.request; urllib.request.urlopen('http://example.org/weights')",
        None,
        "unsupported",
        "network: the folder needs a connection",
    ),
    "forks": ("import os; os.fork()", None, "ok", None),
    # Results that arrive late must not write outputs that are being read.
    "forks_and_comes_back_late": (
        "import os, time; self.model = torch.nn.Linear(4, 1 << 20); os.fork() or time.sleep(0.2)",
        "import os; os.fork(); return (torch.relu(self.model(self.x)),)",
        "ok",
        None,
    ),
    "leaves_a_child": (
        "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)",
        None,
        "ok",
        None,
    ),
    "floods": ("print('x' * 1000000)", None, "ok", None),
    "writes_elsewhere": ("open('dropped', 'w').write('x')", None, "ok", None),
    "exits": ("import os; os._exit(3)", None, "crashed", "exit code 3"),
    "gives_nan": (
        "",
        "return (self.model(self.x) * float('nan'),)",
        "unsupported",
        "itself returns NaN or infinity",
    ),
    "never_the_same": (
        "",
        "import time; return (self.model(self.x) + (time.perf_counter_ns() % 999983),)",
        "unsupported",
        "a different output each time",
    ),
    "gives_nothing": ("self.model = None", "return None", "unsupported", "nothing can be verified"),
}


@pytest.fixture(scope="module")
def environment(session_environment):
    """Variables with a root of this session: the models are not the suite's."""
    return session_environment


def write(place, name, ctor, evaluated):
    (place / name).mkdir()
    text = HEAD.format(
        ctor=ctor or "", eval=evaluated or "return (torch.relu(self.model(self.x)),)"
    )
    if name == "raises_at_import":
        text += "\n1 / 0\n"
    if name == "not_parsed":
        text += "\nclass Model(:\n"
    (place / name / "__init__.py").write_text(text)


def records(run):
    return {r["definition"]["model"]: r for r in run.document["benchmarks"]}


def measured(record):
    return record["metrics"]["framework_level"]


def test_folders_of_both_protocols_run_unchanged(cbs_run, tmp_path):
    copy = tmp_path / "models"
    shutil.copytree(DATA, copy)
    before = sorted(path for path in copy.rglob("*"))
    run = cbs_run("--torchbench", str(copy), *QUICK, "--backend", "pt_inductor:eager")
    assert run.code == 0, run.err + run.out
    found = records(run)
    assert list(found) == [
        "agent_net_EVAL_PT_BATCH8",
        "dict_net_EVAL_PT_BATCH2",
        "guide_mlp_EVAL_PT",
        "list_net_EVAL_PT_BATCH256",
        "meter_EVAL_PT_BATCH4",
        "staged_net_EVAL_PT_BATCH2",
    ]
    for name in ("dict_net_EVAL_PT_BATCH2", "guide_mlp_EVAL_PT", "staged_net_EVAL_PT_BATCH2"):
        metrics = measured(found[name])
        assert metrics["second_verification"]["passed"]
        assert "without_float64" not in metrics
    # It returns another tensor than it reads; PyTorch draws other random numbers in float64.
    assert "does not read" in measured(found["list_net_EVAL_PT_BATCH256"])["without_second"]
    assert "float64" in measured(found["meter_EVAL_PT_BATCH4"])["without_float64"]
    assert "proves less than a float64 run: pt_inductor:eager" in run.out
    assert sorted(path for path in copy.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["staged_net", pytest.param("agent_net", marks=pytest.mark.nightly)]
)
def test_training_is_verified_eager_and_compiled(cbs_run, name):
    run = cbs_run(
        *("--torchbench", str(DATA), "-name", name, "-t", "train"),
        *(*QUICK, "--backend", "pt_inductor:eager,pt_inductor:inductor"),
    )
    assert run.code == 0, run.err + run.out
    assert set(run.statuses.values()) == {"ok"}
    for record in run.document["benchmarks"]:
        metrics = measured(record)
        assert metrics["final_verification"]["passed"]
        assert metrics["program"]["notes"]["verified"] == "steps from the first state"


# Folders whose module is not compiled where it is called: of `eval` or `train`, and the reason.
UNCOMPILED = {
    # As `lennard_jones`: Dynamo drops what it compiled when the module is called in a transform.
    "transformed": (
        "eval",
        (
            "from torch.func import jacrev, vmap; module = self.model; "
            "return module(self.x), vmap(jacrev(lambda row: module(row).sum()))(self.x)"
        ),
        r"Inductor's program was not called in the first run: Unsupported functorch tracing",
    ),
    "only_transformed": (
        "eval",
        (
            "from torch.func import jacrev, vmap; module = self.model; "
            "return (vmap(jacrev(lambda row: module(row).sum()))(self.x),)"
        ),
        r"Inductor compiled nothing: Unsupported functorch tracing attempt",
    ),
    "counts_steps": (
        "train",
        (
            "self.model.steps = getattr(self.model, 'steps', 0) + 1; "
            "self.model(self.x).sum().backward()"
        ),
        r"Inductor's program was not called in 2 of 2 timed iterations: recompile limit \(8\)",
    ),
}
COUNTING = """
class Counting(torch.nn.Linear):
    steps = 0

    def forward(self, x):
        return super().forward(x) + 1e-30 * self.steps
"""


@pytest.mark.parametrize(
    "name",
    [
        "transformed",
        *(pytest.param(n, marks=pytest.mark.nightly) for n in UNCOMPILED if n != "transformed"),
    ],
)
def test_a_folder_whose_module_runs_uncompiled_is_unsupported(cbs_run, tmp_path, name):
    test, body, reason = UNCOMPILED[name]
    source = HEAD.format(ctor="self.model.__class__ = Counting", eval=body)
    if test == "train":
        source = source.replace("def eval", "def train").replace("EVAL_BSIZE", "TRAIN_BSIZE")
    source = source.replace("\nclass Model", COUNTING + "\nclass Model")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(source)
    run = cbs_run(
        *("--torchbench", str(tmp_path / name), "-t", test, "--threads", "1"),
        *("-w", "9", "-iter", "2", "--backend", "pt_inductor:eager,pt_inductor:inductor"),
    )
    assert sorted(run.statuses.values()) == ["ok", "unsupported"], run.out
    [record] = [r for r in run.document["benchmarks"] if r["status"] == "unsupported"]
    assert re.search(reason, record["reason"]), record["reason"]


@pytest.mark.nightly
def test_a_userbenchmark_takes_folders_with_the_batch_that_fits(environment, tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    # 16 MiB a row; the run in float64 and its inputs need some more.
    write(place, "wide", "self.x = torch.randn(self.batch_size, 1 << 20, 4)", None)
    shipped = Path(__file__).parents[2] / "userbenchmark"
    done = _cbs(
        environment,
        *("userbenchmark", "run", "--directory", str(shipped), "-o", str(tmp_path / "out")),
        *("comparative_suite", "--torchbench", str(place), "--auto-batch"),
        *("--memory-limit", "1G", *QUICK),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "ended with out_of_memory" in done.stdout + done.stderr
    (metrics,) = (tmp_path / "out" / "comparative_suite").glob("metrics-*.json")
    keys = json.loads(metrics.read_text())["metrics"]
    (found,) = {key.partition(", extra_args")[0] for key in keys}
    assert re.fullmatch(r"model=wide, test=eval, device=host-cpu, bs=[124]", found)


def test_what_the_folder_calls_is_exported_where_that_is_one_call(cbs_run):
    run = cbs_run(
        *("--torchbench", str(DATA), "-name", "dict_net|list_net"),
        *(*QUICK, "--backend", "onnxruntime,openvino:latency"),
    )
    assert run.statuses == {
        "dict_net_EVAL_PT_BATCH2 onnxruntime:default": "ok",
        "dict_net_EVAL_PT_BATCH2 openvino:latency": "ok",
        "list_net_EVAL_PT_BATCH256 onnxruntime:default": "unsupported",
        "list_net_EVAL_PT_BATCH256 openvino:latency": "unsupported",
    }
    assert "must call the module once and get tensors (calls: 3)" in run.out


SAMPLE = ("raises_at_import", "downloads", "forks_and_comes_back_late", "exits", "gives_nan")


@pytest.mark.parametrize(
    "names", [SAMPLE, pytest.param(tuple(FAULTS), marks=pytest.mark.nightly)], ids=("some", "all")
)
def test_a_bad_folder_costs_its_own_trial_alone(cbs_run, tmp_path, planted, names):
    planted(*names, "links_out")
    place = tmp_path / "bad"
    place.mkdir()
    for name in names:
        write(place, name, *FAULTS[name][:2])
    write(place, "links_out", "", None)
    (place / "links_out" / "x").symlink_to("/etc/passwd")
    write(place, "zz_good", "", None)
    with nothing_outside(place, "none"):
        run = cbs_run("--torchbench", str(place), *QUICK)
    found = {name.partition("_EVAL")[0]: record for name, record in records(run).items()}
    expected = {name: FAULTS[name][2] for name in names}
    got = {name: record["status"] for name, record in found.items()}
    assert got == {**expected, "links_out": "unsupported", "zz_good": "ok"}, (
        run.code,
        run.out,
        run.err,
    )
    for name in names:
        if reason := FAULTS[name][3]:
            assert re.search(reason, found[name]["reason"]), found[name]["reason"]
    assert not (tmp_path / "dropped").exists()
    assert processes_with(str(tmp_path)) == []


PLANTED = """
import sys
from pathlib import Path
import numpy as np, torch
from comparative_benchmark.analysis.verification.verification import verify
from comparative_benchmark.sources.torchbench.model import create_model

folder, scratch = sys.argv[1], Path(sys.argv[2])
torch.set_grad_enabled(False)

def saved(name, values):
    paths = [scratch / f"{name}-{place}.npy" for place in range(len(values))]
    for path, value in zip(paths, values):
        np.save(path, value)
    return paths

def verdict(model, name):
    outputs = [value.numpy() for value in model.outputs_of(model.timed())]
    return verify(saved(name, outputs), truth, reference)

model = create_model(folder=folder, test="train")
inputs = model.preprocess(model.generate_default_inputs())
truth, reference = (saved(name, values) for name, values in zip("tr", model.judged_by(inputs)))
assert model.without_float64 is None, model.without_float64
model.reside(inputs)
for _ in range(3):
    model.timed()  # weights move on, and what is judged does not
assert verdict(model, "right").passed

def faulty(plant):
    other = create_model(folder=folder, test="train")
    plant(other._running.made)
    other._running._state.__init__(
        other._running.made, other._running.modules, other._running.inputs
    )
    return verdict(other, plant.__name__)

def rate(made): made.optimizer.param_groups[0]["lr"] *= 1.01
def decay(made): made.optimizer.param_groups[0]["weight_decay"] = 0.0
def momentum(made): made.optimizer.param_groups[0]["betas"] = (0.0, 0.0)
def skipped(made): made.optimizer.param_groups[0]["params"].pop()
def stale(made):  # as a program that took the weights for constants
    module, kept = made.model, {n: p.detach().clone() for n, p in made.model.named_parameters()}
    def forward(x):
        now = {n: kept[n] + p - p.detach() for n, p in module.named_parameters()}
        del module.forward
        found = torch.func.functional_call(module, now, (x,))
        module.forward = forward
        return found
    module.forward = forward
def loss(made): made.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.01)
def target(made): made.target[0] = (made.target[0] + 1) % 10

for plant in (rate, decay, momentum, skipped, stale, loss, target):
    found = faulty(plant)
    assert not found.passed, plant.__name__
    print(plant.__name__, found.reason)
"""


COMPARED = """
import numpy as np
from comparative_benchmark.sources.torchbench import model
row, column = np.arange(4.0), np.arange(4.0)[:, None]
assert model._relative_errors([row], [row]) == [0.0]
assert model._relative_errors([column], [row]) == [np.inf]
assert model._relative_errors([np.arange(3)], [np.arange(4)]) == [np.inf]
assert model._relative_errors([row, row], [row]) == [np.inf]
assert model._relative_errors([row], [row, row]) == [np.inf, np.inf]
assert model._equal([row], [row.copy()])
assert not model._equal([row], [column])
assert not model._equal([row], [row, row])
"""


def test_outputs_of_another_shape_or_number_are_not_close(environment):
    run_script(COMPARED, [], environment, framework="folder")


ROUGHENED = """
import ml_dtypes, numpy as np
from comparative_benchmark.sources.torchbench import state
integers = np.arange(64)
(moved,) = state.roughened([integers])
assert moved is integers
for dtype in (np.float16, np.float32, ml_dtypes.bfloat16):
    values = np.linspace(0, 4, 64).astype(dtype)
    (moved,) = state.roughened([values])
    apart = np.abs(moved.astype(np.float64) - values.astype(np.float64))
    assert moved.dtype == dtype and moved[0] == 0
    assert (apart > 0).mean() > 0.4
    assert (apart <= 2 * float(ml_dtypes.finfo(dtype).eps) * values.astype(np.float64)).all()
"""


def test_inputs_of_every_float_type_move_by_a_rounding_step(environment):
    run_script(ROUGHENED, [], environment, framework="folder")


def test_planted_faults_of_training_are_wrong_outputs(tmp_path, environment, planted):
    planted("rate", "decay", "momentum", "skipped", "stale", "loss", "target")
    run_script(PLANTED, [str(DATA / "staged_net"), str(tmp_path)], environment, framework="folder")


def _cbs(environment, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.nightly
def test_a_new_folder_keeps_the_guides_promises_and_a_careless_one_does_not(environment, tmp_path):
    assert _cbs(environment, "new-model", "--torchbench", "my_net", cwd=tmp_path).returncode == 0
    again = _cbs(environment, "new-model", "--torchbench", "my_net", cwd=tmp_path)
    assert "already exists" in again.stderr
    place = tmp_path / "careless"
    place.mkdir()
    write(
        place,
        "zz_keeps",
        "import builtins; builtins.kept = self",
        "self.x.mul_(0.5); return (self.model(self.x),)",
    )
    done = _cbs(
        environment,
        "check-model",
        *("--torchbench", str(DATA / "guide_mlp")),
        *("--torchbench", "my_net"),
        *("--torchbench", "careless"),
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    of_2021, good, bad = done.stdout.split("checks ok\n")
    assert re.search(r"^jit +ok +n/a", of_2021, re.MULTILINE)
    assert "failed" not in good
    assert "inputs: a run modifies the inputs" in bad
    assert "memory: the object or its module outlives" in bad
    assert bad.count("fix: ") >= 2
