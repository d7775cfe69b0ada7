"""A backend never judges itself or its rivals, and users' models share no process."""

import json

import pytest
from tests_support import python_path, run_cbs

from openxla.benchmark.installation import ROOT_DIR_VARIABLE

pytestmark = pytest.mark.frameworks

COUNTS = ("-w", "1", "-iter", "2")
INFO = """
from comparative_benchmark.backend_api import BackendInfo, CompilerInfo
from openxla.benchmark.def_types import ModelFrameworkType
BACKEND = BackendInfo(
    name="{name}", implementation="{package}.backend:Half", level="framework_level",
    modules={{ModelFrameworkType.{framework}: ("numpy",)}}, install="nothing",
    reference="{package}.backend:reference",
    compilers=(CompilerInfo(name="half", description="leaves out half of the layers"),),
)
"""
HALF = """
import copy
import torch
from comparative_benchmark.pt_inductor.backend import PtInductor
from comparative_benchmark.pt_inductor.reference import compute

def cut(model):
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            del module[len(module) // 2:]
    return model

class Half(PtInductor):
    def load(self, model, inputs):
        object.__setattr__(self.context, "compiler", "eager")
        super().load(cut(model), inputs)

def reference(model, inputs):
    return compute(cut(copy.deepcopy(model)), inputs)
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

def example_inputs():
    return torch.randn(4, 16)
"""
NUMPY_BACKEND = """
import numpy as np
from comparative_benchmark.backend_api import Backend, BackendFacts

class Half(Backend):
    def load(self, model, inputs):
        self.model, self.inputs = model, [value.copy() for value in inputs]
    def compile(self): pass
    def dispatch(self): return self.model.forward(*self.inputs)
    def synchronize(self, outputs): pass
    def fetch(self, outputs): return [np.asarray(outputs)]
    def facts(self): return BackendFacts()
    def replace_inputs(self, inputs):
        self.inputs = [value.copy() for value in inputs]
        return True

def reference(model, inputs):
    return [model.forward(*inputs).astype(np.float64)], [model.forward(*inputs)]
"""
GGML_SUITE = """
import numpy as np
from openxla.benchmark import def_types, testdata

class Model:
    def generate_default_inputs(self): return np.arange(12, dtype=np.float32).reshape(3, 4)
    def preprocess(self, raw): return (raw,)
    def forward(self, x): return np.tanh(x / 8)

def create_model(): return Model()

ALL_BENCHMARKS = [def_types.BenchmarkCase.build(
    model=def_types.Model(name="GGML_TOY", model_parameters={}, model_impl=def_types.
        ModelImplementation(name="GGML_TOY", module_path="ggml_suite",
                            framework_type=def_types.ModelFrameworkType.GGML)),
    input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]
"""


def plugin(folder, package, *, name=None, framework="PYTORCH", backend=HALF):
    """Makes a distribution that registers a backend."""
    name = name or package
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(
        INFO.format(name=name, package=package, framework=framework)
    )
    (folder / package / "backend.py").write_text(backend)
    registered = folder / f"{package}-1.dist-info"
    registered.mkdir()
    (registered / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (registered / "entry_points.txt").write_text(
        f"[comparative_benchmark.backends]\n{name} = {package}:BACKEND\n"
    )


def run(folder, environment, *arguments):
    """Runs with the folder on the path, and an artifact root in it."""
    variables = {"PYTHONPATH": python_path(folder), ROOT_DIR_VARIABLE: str(folder / "root")}
    return run_cbs(*arguments, directory=folder, environment={**environment, **variables})


def test_a_plugin_judges_neither_itself_nor_its_rivals(tmp_path, environment):
    plugin(tmp_path, "judgeme")
    plugin(tmp_path, "aa_first")  # installed, and not named
    plugin(tmp_path, "impostor", name="pt_inductor")
    (tmp_path / "net.py").write_text(NET)
    backends = ("--backend", "judgeme:half,pt_inductor:eager")
    done = run(tmp_path, environment, "net.py:Net", *backends, *COUNTS)
    assert done.statuses == {
        "NET_FP32_PT judgeme:half": "wrong_output",
        "NET_FP32_PT pt_inductor:eager": "ok",
    }
    (eager,) = (record for record in done.document["benchmarks"] if record["status"] == "ok")
    source = eager["metrics"]["framework_level"]["truth_source"]
    assert source["backend"] == "pt_inductor"
    assert source["built_in"]
    assert "Use pt_inductor:eager" in done.out
    assert "Truth computed by" not in done.out

    # A truth whose maker is unknown is made again.
    (manifest,) = (tmp_path / "root" / "workloads").glob("*/manifest.json")
    content = json.loads(manifest.read_text())
    del content["truth_source"]
    manifest.write_text(json.dumps(content))
    again = run(tmp_path, environment, "net.py:Net", "--backend", "pt_inductor:eager", *COUNTS)
    assert "inputs and truth for" in again.err
    assert json.loads(manifest.read_text())["truth_source"]["backend"] == "pt_inductor"


def test_a_plugin_that_judges_alone_agrees_and_has_no_rank(tmp_path, environment):
    for package in ("ggml_one", "ggml_two"):
        plugin(tmp_path, package, framework="GGML", backend=NUMPY_BACKEND)
    (tmp_path / "ggml_suite.py").write_text(GGML_SUITE)
    backends = ("--backend", "ggml_one:half,ggml_two:half", "--baseline", "ggml_two:half")
    done = run(tmp_path, environment, "--suite", "ggml_suite", *backends, *COUNTS)
    assert set(done.statuses.values()) == {"ok"}, done.out + done.err
    records = {r["definition"]["backend"]: r for r in done.document["benchmarks"]}
    found = {name: r["metrics"]["framework_level"] for name, r in records.items()}
    assert found["ggml_one"]["truth_source"] == {
        "backend": "ggml_one",
        "distribution": "ggml_one",
        "built_in": False,
    }
    assert "computed by ggml_one, the backend's own package" in found["ggml_one"]["not_ranked"]
    assert "not_ranked" not in found["ggml_two"]
    assert all("plug-in ggml_one" in metrics["without_float64"] for metrics in found.values())
    assert "agreed" in done.out
    assert "by the plug-in backend ggml_one (package ggml_one): ggml_one:half" in done.out
    assert "Use ggml_two:half" in done.out
    assert "Not ranked: ggml_one:half" in done.out


SCALED = """
import torch
import utils

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 8)

    def forward(self, x):
        return utils.SCALE * torch.tanh(self.up(x))

def example_inputs():
    return torch.randn({batch}, 16)
"""
DEFINITIONS = """
from pathlib import Path
from openxla.benchmark.user_models import ModelOptions, find_cases

FOLDER = Path(__file__).resolve().parents[1] / "{folder}"
ALL_BENCHMARKS = find_cases("net.py:{name}", ModelOptions(folder=FOLDER)).cases
"""


@pytest.fixture
def two_folders(tmp_path):
    """A suite of two folders, each with a file `net.py` and a `utils.py` of other content."""
    suite = tmp_path / "suite"
    suite.mkdir()
    for folder, name, scale, batch in (("one", "NetOne", 3.0, 8), ("two", "NetTwo", 1.0, 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(SCALED.format(name=name, batch=batch))
        (tmp_path / folder / "utils.py").write_text(f"SCALE = {scale}\n")
        (suite / f"{folder}_definitions.py").write_text(
            DEFINITIONS.format(folder=folder, name=name)
        )
    return suite


def truths(root):
    """Returns the bytes of each truth under an artifact root."""
    return {file.read_bytes() for file in (root / "workloads").glob("*/truth/output_0.npy")}


def test_models_of_two_folders_share_no_process(tmp_path, environment, two_folders):
    backend = ("--backend", "pt_inductor:eager")
    everything = ("--suite-dir", str(two_folders), *backend, *COUNTS, "--share-workers")
    done = run(tmp_path, environment, *everything)
    assert [record["status"] for record in done.document["benchmarks"]] == ["ok", "ok"]
    alone = set()
    for folder, name in (("one", "NetOne"), ("two", "NetTwo")):
        run(tmp_path / folder, environment, f"net.py:{name}", *backend, *COUNTS)
        alone |= truths(tmp_path / folder / "root")
    assert len(alone) == 2
    assert truths(tmp_path / "root") == alone
    refused = run(tmp_path, environment, *everything, "--run-in-process")
    assert "cannot share a process" in refused.err


MEMO = """
from comparative_benchmark.pt_inductor.backend import PtInductor

class Half(PtInductor):
    def load(self, model, inputs):
        object.__setattr__(self.context, "compiler", "eager")
        super().load(model, inputs)

    def dispatch(self):
        if not hasattr(self, "first"):
            self.first = super().dispatch()
        return self.first
"""
INVARIANT = """
import torch
import torch.nn.functional as F

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 1)
        self.bag = torch.nn.EmbeddingBag(50, 8, mode="sum")
        self.point = torch.nn.Linear(3, 8)

class Mean(Net):
    def forward(self, x): return x.mean(-1)

class Maximum(Net):
    def forward(self, x): return x.max()[None].repeat(3) * torch.arange(1, 4)

class LogSumExp(Net):
    def forward(self, x): return torch.logsumexp(x, (0, 1))[None] * torch.arange(1, 4)

class Pooled(Net):
    def forward(self, image): return self.conv(image).mean((2, 3))

class Bag(Net):
    def forward(self, ids): return self.bag(ids)

class PointNet(Net):
    def forward(self, points): return F.relu(self.point(points)).amax(-2)

class Cosine(Net):
    def forward(self, x): return F.cosine_similarity(x[:, None], x[None], dim=-1)

class Histogram(Net):
    def forward(self, x): return torch.histc(x, 8) + 0.0

class WithConstant(Net):
    def forward(self, x): return x.mean(-1), torch.linspace(0, 1, 5)

class Ignored(Net):
    def forward(self, x): return torch.arange(8.0) + 1e-9 * x.mean()

def example_inputs(): return torch.rand(16, 400)
"""
INPUTS = {"Pooled": "f32[2,3,8,8]", "Bag": "i64[4,9]<50", "PointNet": "f32[2,3]"}


@pytest.fixture
def memo_run(tmp_path, environment):
    """Races a program that returns what its first call returned against the honest one."""
    plugin(tmp_path, "memo", backend=MEMO)
    (tmp_path / "net.py").write_text(INVARIANT)

    def measured(name):
        inputs = ("--input", INPUTS[name]) if name in INPUTS else ()
        backends = ("--backend", "memo:half,pt_inductor:eager")
        done = run(tmp_path, environment, f"net.py:{name}", *inputs, *backends, *COUNTS)
        records = {r["definition"]["backend"]: r for r in done.document["benchmarks"]}
        assert records["pt_inductor"]["status"] == "ok", done.out
        return done, records["memo"], records["pt_inductor"]["metrics"]["framework_level"]

    return measured


def caught_on_the_second_input(memo, honest):
    assert memo["status"] == "wrong_output"
    assert memo["phase"] == "verify_second_input"
    assert honest["second_verification"]["passed"]
    assert "not_ranked" not in honest


def test_a_mean_has_a_second_input_that_changes_it(memo_run):
    _, memo, honest = memo_run("WithConstant")
    caught_on_the_second_input(memo, honest)
    assert "without_second" not in honest


def test_what_no_input_changes_is_not_ranked(memo_run):
    done, memo, honest = memo_run("Ignored")
    assert memo["status"] == "ok"
    assert "changes output 0" in honest["not_ranked"]
    assert "changes output 0" in honest["without_second"]
    assert "Use " not in done.out
    assert "Not ranked" in done.out


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["Mean", "Maximum", "LogSumExp", "Pooled", "Bag", "PointNet", "Cosine", "Histogram"]
)
def test_symmetric_models_have_a_second_input(memo_run, name):
    _, memo, honest = memo_run(name)
    caught_on_the_second_input(memo, honest)
