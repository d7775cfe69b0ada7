"""The part of an environment that reaches a worker, and the part that a result records."""

import pytest

from comparative_benchmark.analysis.machine.worker_settings import for_worker, recorded_variables
from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine.messages import Called
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.devices import HOST_CPU

TELLING = (
    *("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "MKL_NUM_THREADS"),
    *("OMP_NUM_THREADS", "KMP_AFFINITY", "OPENBLAS_CORETYPE", "IREE_LOG", "ORT_X", "LD_PRELOAD"),
    *("MALLOC_ARENA_MAX", "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "GLIBC_TUNABLES"),
    *("TORCHINDUCTOR_MAX_AUTOTUNE", "JAX_PLATFORMS", "LD_LIBRARY_PATH"),
)
NEEDED = ("PATH", "HOME", "LANG", "LC_ALL", "CBS_ROOT_DIR", "HF_HOME", "PYTHONPATH", "https_proxy")
SECRET = (
    *("GITHUB_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "OPENAI_API_KEY"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "CUDA_TOKEN", "SSH_AUTH_SOCK", "MY_OWN_VARIABLE"),
)


@pytest.mark.parametrize("name", TELLING)
def test_what_changes_speed_or_numbers_reaches_the_worker_and_is_recorded(name):
    assert for_worker({name: "1"}) == recorded_variables({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", NEEDED)
def test_what_programs_need_reaches_the_worker(name):
    assert for_worker({name: "1"}) == {name: "1"}
    assert recorded_variables({name: "1"}) == {}


@pytest.mark.parametrize("name", SECRET)
def test_secrets_and_what_nobody_knows_do_not(name):
    assert for_worker({name: "1"}) == recorded_variables({name: "1"}) == {}


def test_what_is_recorded_comes_in_order():
    assert list(recorded_variables({"XLA_FLAGS": "", "A": "", "OMP_NUM_THREADS": ""})) == [
        "OMP_NUM_THREADS",
        "XLA_FLAGS",
    ]


@pytest.mark.parametrize(("inherits", "seen"), [(False, None), (True, "x")])
def test_a_worker_sees_no_secret_unless_it_is_to_inherit_all(tmp_path, monkeypatch, inherits, seen):
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    monkeypatch.setenv("OMP_SCHEDULE", "static")
    settings = RunSettings(device=HOST_CPU, inherit_environment=inherits)
    with settings.open_session(
        get_backend("test_numpy"),
        None,
        work_dir=tmp_path,
        cache_dir=tmp_path,
        log_file=tmp_path / "log",
    ) as session:
        found = [
            session.call(Called, function="os:getenv", arguments={"key": name}).value
            for name in ("GITHUB_TOKEN", "OMP_SCHEDULE", "CBS_ROOT_DIR")
        ]
    assert found[:2] == [seen, "static"]
    assert found[2]
