"""AOTInductor: a package that runs without Python, as a compiler of pt_inductor."""

import json
import subprocess
import sys

import pytest
from agreement_support import need
from tests_support import run_cbs

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine.trial import competitors_of

pytestmark = pytest.mark.frameworks

TINY = "models/RESNET_TINY_FP32_PT_.+_BATCH1/.+"

# In a separate process: the backend sets global state of torch.
SCRIPT = """
import contextlib, json, sys, tempfile
from pathlib import Path
import numpy as np
import torch
from comparative_benchmark.backends.api import BackendContext, UnsupportedError
from comparative_benchmark.pt_inductor import exports
from comparative_benchmark.pt_inductor.backend import PtInductor
from openxla.benchmark.devices import HOST_CPU


X, INDEX = np.array([np.arange(16)] * 2, np.float32), np.array([1, -2], np.int32)


class Sums(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        # A weight of up to 8 elements, or with all elements equal, would be written into the code.
        self.scale = torch.nn.Parameter(factor * torch.arange(16.0))

    def forward(self, x, index):
        return x * self.scale, index + 1, x.to(torch.bfloat16)


class Differences(Sums):
    def forward(self, x, index):
        return x - self.scale, index, x.to(torch.bfloat16)


class Choosing(torch.nn.Module):
    def forward(self, x, index):
        return x if index.sum() > 0 else -x


class Named(torch.nn.Module):
    def forward(self, x, index):
        return {"x": x * 2, "index": index}


def run(model):
    entered = []

    @contextlib.contextmanager
    def phase(name):
        entered.append(name)
        yield

    backend = PtInductor(
        BackendContext(compiler="aot-inductor", options=(), device=HOST_CPU, threads=1,
                       work_dir=Path(tempfile.mkdtemp()), phase=phase)
    )
    backend.load(model.eval(), [X, INDEX])
    try:
        backend.compile()
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    outputs = backend.fetch(backend.dispatch())
    facts = backend.facts()
    return {
        "phases": entered,
        "outputs": [[value.dtype.name, value.tolist()] for value in outputs],
        "facts": [facts.artifact_sha256, facts.artifact_size_bytes],
        "left": [str(folder) for folder in exports._extracted() if folder.exists()],
        "unpacked": len(list(exports._extracted())),
    }


def digest(model):
    # Generated only, not compiled: that takes most of the time.
    exported = torch.export.export(model, (torch.from_numpy(X), torch.from_numpy(INDEX)))
    package = torch._inductor.aoti_compile_and_package(
        exported,
        package_path=tempfile.mkdtemp() + "/model.pt2",
        inductor_configs={"aot_inductor.package_cpp_only": True},
    )
    return exports._digest(Path(package))


found = {
    "sums": run(Sums(3.0)),
    "digests": [digest(Sums(3.0)), digest(Sums(5.0)), digest(Differences(3.0))],
    "choosing": run(Choosing()),
    "named": run(Named()),
}
torch._inductor.config.cpp.cxx = ("/no/such/g++",)
found["compiler"] = run(Sums(3.0))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory, environment):
    need("torch")
    directory = tmp_path_factory.mktemp("aot-programs")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**environment, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, environment):
    need("torch")
    return run_cbs(
        *("--backend", "pt_inductor:aot-inductor", "-name", TINY, "-w", "2", "-iter", "5"),
        directory=tmp_path_factory.mktemp("aot"),
        environment=environment,
    )


@pytest.mark.nightly
def test_packages_are_right_and_no_framework_is_measured(tiny):
    assert tiny.code == 0, tiny.out + tiny.err
    [record] = tiny.document["benchmarks"]
    assert record["status"] == "ok"
    assert record["definition"]["level"] == "compiler_level"
    metrics = record["metrics"]["compiler_level"]
    assert metrics["verification"]["passed"]
    phases, program = metrics["phases"], metrics["program"]
    assert phases["lower"] == "not_measurable"
    for name in ("load", "trace", "compile", "first_run"):
        assert phases[name]["ms"] > 0
    assert program["weights"] == "parameters"
    assert program["cache_hits"] is program["cache_misses"] is None
    # A package holds its weights, which are most of what a tiny model reads.
    assert program["artifact_size_bytes"] > metrics["workload_cost"]["bytes"] / 2
    assert len(program["artifact_sha256"]) == 64


def test_it_runs_only_when_it_is_asked_for():
    backend = get_backend("pt_inductor")
    by_default = {str(item): item.level for item in competitors_of(backend, [], "cpu")}
    assert set(by_default.values()) == {"framework_level"}
    assert "pt_inductor:aot-inductor" not in by_default
    (ahead,) = competitors_of(backend, ["aot-inductor"], "cpu")
    assert ahead.level == "compiler_level"


def test_outputs_keep_their_order_and_types(programs):
    assert programs["sums"]["outputs"] == [
        ["float32", [[3 * index**2 for index in range(16)]] * 2],
        ["int32", [2, -1]],
        ["bfloat16", [list(range(16))] * 2],
    ]


def test_phases_are_those_that_can_be_told_apart(programs):
    assert programs["sums"]["phases"] == ["load", "h2d", "trace", "compile", "load"]


def test_a_digest_tells_code_apart_but_not_weights_and_folders(programs):
    three, five, differences = programs["digests"]
    assert three == five != differences


def test_what_was_unpacked_to_load_a_package_is_gone(programs):
    assert programs["sums"]["unpacked"] >= 1
    assert programs["sums"]["left"] == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [("choosing", "torch.export"), ("named", "or a tuple of tensors"), ("compiler", "install g++")],
)
def test_what_can_not_be_packaged_is_unsupported_with_a_reason(programs, name, reason):
    assert reason in programs[name]["unsupported"]
