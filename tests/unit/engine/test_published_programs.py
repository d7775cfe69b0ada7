"""Trials that start from published programs: what they need, and for which devices."""

from pathlib import Path

import attrs
import pytest
from artifact_support import artifact_file

from comparative_benchmark.backends import api as backend_api
from comparative_benchmark.backends.api import backends
from comparative_benchmark.engine import fetching
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import Environment
from comparative_benchmark.engine.trial import parse_competitors
from openxla.benchmark import devices
from openxla.benchmark.artifacts.manifests import Manifest
from openxla.benchmark.artifacts.published_models import FetchedModel
from openxla.benchmark.def_types import ModelFrameworkType

JAX = ModelFrameworkType.JAX


@pytest.fixture
def installed(monkeypatch):
    def only(*names):
        monkeypatch.setattr(backend_api, "is_installed", lambda name: name in names)

    return only


def competitor(name):
    (found,) = parse_competitors(name, "gpu")
    return found


def missing(name, *, from_program):
    return competitor(name).missing_modules(JAX, from_program=from_program)


def test_a_compiled_program_needs_the_runtime_alone(installed):
    installed("iree.runtime")
    assert missing("iree:cuda", from_program=True) == []
    assert missing("iree:cuda", from_program=False) == ["iree.compiler", "jax", "flax"]
    assert missing("iree:llvm-cpu", from_program=True) == ["iree.compiler"]
    installed()
    assert missing("iree:cuda", from_program=True) == ["iree.runtime"]


def test_a_backend_that_starts_from_no_program_needs_what_it_always_does(installed):
    installed("iree.runtime")
    assert missing("jax_xla:xla", from_program=True) == missing("jax_xla:xla", from_program=False)


def test_what_lacks_in_another_environment_is_asked_of_it():
    lacking = frozenset({"iree.compiler", "jax", "flax"})
    there = Environment(
        name="x", python="python", python_version="3.12.1", packages=(), missing=lacking
    )
    found = attrs.evolve(competitor("iree:cuda"), environment=there)
    assert found.missing_modules(JAX, from_program=True) == []
    assert found.missing_modules(JAX) == ["iree.compiler", "jax", "flax"]


def test_modules_are_named_of_compilers_that_start_from_programs():
    for backend in backends().values():
        assert set(backend.program_modules) <= set(backend.starts_from)
        assert set(backend.starts_from) <= {compiler.name for compiler in backend.compilers}


@pytest.fixture
def trial(make_trial):
    def make(name, device):
        return attrs.evolve(make_trial(), competitor=competitor(name), device=device)

    return make


@pytest.mark.parametrize(
    ("name", "device", "types"),
    [
        ("iree:cuda", devices.HOST_GPU, {"vmfb_cuda", "irpa"}),
        ("iree:cuda", devices.HOST_CPU, set()),
        ("iree:llvm-cpu", devices.HOST_GPU, set()),
        ("xla_hlo:stablehlo", devices.HOST_GPU, set()),
        ("xla_hlo:stablehlo", devices.HOST_CPU, {"stablehlo_bytecode", "xla_weights"}),
    ],
)
def test_programs_are_for_the_accelerator_of_their_compiler(trial, name, device, types):
    assert fetching.types_for(trial(name, device)) == types


def fetched(*kinds):
    files = [artifact_file(f"file_{kind}", kind.encode(), kind) for kind in kinds]
    return FetchedModel(
        directory=Path("/cache"),
        manifest=Manifest(model="MODEL", files=tuple(files)),
        manifest_sha256="0" * 64,
        files={file.path: Path("/cache") / file.sha256 for file in files},
    )


def test_a_program_for_a_gpu_comes_with_its_weights(trial):
    found = fetching.program_of(
        trial("iree:cuda", devices.HOST_GPU), fetched("vmfb_cuda", "irpa", "inputs"), "file:///x"
    )
    assert set(found.files) == {"vmfb_cuda", "irpa"}


@pytest.mark.parametrize(
    ("name", "device", "said"),
    [
        ("iree:cuda", devices.HOST_CPU, "from programs for GPUs, but the device is host-cpu"),
        ("iree:llvm-cpu", devices.HOST_GPU, "from programs for CPUs, but the device is host-gpu"),
        ("iree:cuda", devices.HOST_GPU, "was published without vmfb_cuda with irpa"),
    ],
)
def test_a_program_that_there_is_not_is_reported(trial, name, device, said):
    with pytest.raises(SessionEnded, match=said):
        fetching.program_of(trial(name, device), fetched("irpa"), "file:///x")
