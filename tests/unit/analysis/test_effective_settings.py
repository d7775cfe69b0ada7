"""Effective settings of a worker: in its process, its threads and its libraries."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import threading

import pytest

from comparative_benchmark.analysis.machine import worker_settings
from comparative_benchmark.analysis.machine.worker_settings import denormals, effective_settings
from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.host_settings import HostSettings, pool_size, threads_by_name

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="sets bits of MXCSR")
# Of `fenv_t` on x86-64: where MXCSR is, and its bits.
MXCSR, DAZ, FTZ = 28, 1 << 6, 1 << 15


@pytest.fixture
def mxcsr():
    """Sets bits of this thread's MXCSR, until the test is over."""
    library = ctypes.CDLL("libm.so.6")
    before = ctypes.create_string_buffer(32)
    assert library.fegetenv(before) == 0

    def set_bits(bits):
        changed = ctypes.create_string_buffer(before.raw, 32)
        word = ctypes.c_uint32.from_buffer(changed, MXCSR)
        word.value |= bits
        assert library.fesetenv(changed) == 0

    yield set_bits
    library.fesetenv(before)


@X86
@pytest.mark.parametrize(
    ("bits", "mode"), [(0, "kept"), (FTZ, "ftz"), (DAZ, "daz"), (FTZ | DAZ, "ftz+daz")]
)
def test_the_mode_of_subnormal_numbers_is_that_of_the_thread(mxcsr, bits, mode):
    mxcsr(bits)
    assert denormals() == mode


@X86
def test_a_mode_that_a_run_leaves_behind_shows(mxcsr):
    before = denormals()
    mxcsr(FTZ)
    found = effective_settings(None, denormals_before=before)
    assert (found.denormals_before, found.denormals_after) == ("kept", "ftz")


def test_the_stacks_own_answers_come_first_and_the_rest_is_the_processes():
    host = HostSettings(threads=3, inter_op_threads=2, threads_told_by="it", blas="MKL, AVX512")
    found = effective_settings(host, denormals_before="kept")
    assert (found.threads, found.inter_op_threads, found.threads_told_by) == (3, 2, "it")
    assert found.blas[0] == "MKL, AVX512"
    assert list(found.blas[1:]) == worker_settings.loaded_blas()
    assert set(found.affinity) == os.sched_getaffinity(0)


def test_malloc_is_glibcs_here_and_a_preloaded_librarys_there(tmp_path):
    if not (expected := os.confstr("CS_GNU_LIBC_VERSION")):
        pytest.skip("needs glibc")
    assert worker_settings.allocator() in (expected, f"{expected} with jemalloc")
    if not (compiler := shutil.which("cc")):
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "malloc.c", tmp_path / "libothermalloc.so"
    source.write_text(
        "#include <stddef.h>\nextern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t size) { return __libc_malloc(size); }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
                from comparative_benchmark.analysis.machine import worker_settings
                print(worker_settings.allocator())
            """),
        ],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "libothermalloc.so"


def test_openblas_tells_its_kernels():
    import numpy as np

    assert np.ones((2, 2)) @ np.ones(2) is not None
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in built:
        pytest.skip(f"numpy is built with {built}")
    assert any(told.startswith("OpenBLAS ") for told in worker_settings.loaded_blas())


def test_threads_are_counted_by_name(tmp_path):
    for number, name in enumerate(("pool-0", "pool-1", "other")):
        task = tmp_path / f"proc/self/task/{number}"
        task.mkdir(parents=True)
        (task / "comm").write_text(f"{name}\n")
    assert pool_size("pool-", tmp_path) == 2
    assert pool_size("nobody", tmp_path) is None
    assert sum(threads_by_name().values()) >= threading.active_count()


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (("1000", "900", "anon 300\ninactive_file 400\nactive_file 100\nshmem 50"), 600),
        (("1000", "900", "anon 900"), 100),
        (("max", "900", "inactive_file 400"), None),
        ((), None),
    ],
)
def test_the_page_cache_of_a_container_is_free_memory(tmp_path, monkeypatch, files, free):
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, text in zip(("max", "current", "stat"), files, strict=False):
        (group / f"memory.{name}").write_text(f"{text}\n")
    assert host_settings.container_free_bytes(tmp_path) == free
    # A nested group without a limit.
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/job.scope\n")
    assert host_settings.container_free_bytes(tmp_path) == free
    inner = group / "system.slice/job.scope"
    inner.mkdir(parents=True)
    for name, text in (("max", "90"), ("current", "40"), ("stat", "active_file 10")):
        (inner / f"memory.{name}").write_text(f"{text}\n")
    assert host_settings.container_free_bytes(tmp_path) == 60
    monkeypatch.setattr(host_settings, "container_free_bytes", lambda: free)
    assert (host_settings.free_bytes() == free) is (free is not None)
