"""AOTInductor: a package that runs without Python, as a compiler of pt_inductor."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from tests_support import run_cbs

from comparative_benchmark.backend_api import BackendContext, UnsupportedError, get_backend
from comparative_benchmark.harness.trial import competitors_of
from openxla.benchmark.devices import HOST_CPU

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")

from comparative_benchmark.pt_inductor import aot  # noqa: E402
from comparative_benchmark.pt_inductor.backend import PtInductor  # noqa: E402

TINY = "models/(BERT|RESNET)_TINY_FP32_PT_.+_BATCH1/.+"


class Sums(torch.nn.Module):
    """A number of outputs, of more than one type."""

    def __init__(self, factor=3.0):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), factor))

    def forward(self, x, index):
        return x * self.scale, index + 1, x.to(torch.bfloat16)


class Choosing(torch.nn.Module):
    def forward(self, x, index):
        return x if index.sum() > 0 else -x


class Named(torch.nn.Module):
    def forward(self, x, index):
        return {"x": x * 2, "index": index}


@pytest.fixture
def load(tmp_path):
    """Loads a model into a backend; returns it and the phases that it enters."""

    def run(model, name="work"):
        entered = []

        @contextlib.contextmanager
        def phase(name):
            entered.append(name)
            yield

        (tmp_path / name).mkdir()
        context = BackendContext(
            compiler="aot-inductor",
            options=(),
            device=HOST_CPU,
            threads=1,
            work_dir=tmp_path / name,
            phase=phase,
        )
        backend = PtInductor(context)
        x = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
        backend.load(model.eval(), [x, np.array([1, -2], np.int32)])
        return backend, entered

    with torch.no_grad():
        yield run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, environment):
    return run_cbs(
        *("--backend", "pt_inductor:aot-inductor", "-name", TINY, "-w", "2", "-iter", "5"),
        directory=tmp_path_factory.mktemp("aot"),
        environment=environment,
    )


def test_packages_are_right_and_no_framework_is_measured(tiny):
    assert tiny.code == 0, tiny.out + tiny.err
    assert len(tiny.statuses) == 2
    digests = set()
    for record in tiny.document["benchmarks"]:
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
        weights_bytes = record["metrics"]["compiler_level"]["workload_cost"]["bytes"] / 2
        assert program["artifact_size_bytes"] > weights_bytes
        digests.add(program["artifact_sha256"])
    assert len(digests) == 2
    assert None not in digests


def test_it_runs_only_when_it_is_asked_for():
    backend = get_backend("pt_inductor")
    by_default = {str(item): item.level for item in competitors_of(backend, [], "cpu")}
    assert set(by_default.values()) == {"framework_level"}
    assert "pt_inductor:aot-inductor" not in by_default
    (ahead,) = competitors_of(backend, ["aot-inductor"], "cpu")
    assert ahead.level == "compiler_level"


def test_outputs_keep_their_order_and_types_and_the_same_code_its_digest(load):
    digests = set()
    for name, factor in (("one", 3.0), ("two", 5.0)):
        backend, entered = load(Sums(factor), name)
        backend.compile()
        assert entered == ["load", "h2d", "trace", "compile", "load"]
        scaled, index, narrow = backend.fetch(backend.dispatch())
        assert scaled[1].tolist() == [5 * factor, 6 * factor, 7 * factor, 8 * factor]
        assert (index.dtype, index.tolist()) == (np.int32, [2, -1])
        assert narrow.dtype.name == "bfloat16"
        assert narrow[0].tolist() == [1, 2, 3, 4]
        digests.add(backend.facts().artifact_sha256)
        # What was unpacked to load it is gone, though the program runs.
        assert not [folder for folder in aot._extracted() if folder.exists()]
    # Only the weights differ, and the folder.
    assert len(digests) == 1


def test_models_that_can_not_be_exported_are_unsupported_with_a_reason(load):
    backend, _ = load(Choosing())
    with pytest.raises(UnsupportedError, match=r"torch\.export .* can not take this model: \w+: ."):
        backend.compile()


def test_outputs_that_are_no_tuple_are_unsupported(load):
    backend, _ = load(Named())
    with pytest.raises(UnsupportedError, match="tuple of them are due"):
        backend.compile()


def test_without_a_compiler_it_is_unsupported(load, monkeypatch):
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (str(Path("/no/such/g++")),))
    backend, _ = load(Sums())
    with pytest.raises(UnsupportedError, match=r"install g\+\+"):
        backend.compile()
