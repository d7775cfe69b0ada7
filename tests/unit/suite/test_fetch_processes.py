"""Several processes at one cache, and processes that are killed in the middle."""

import hashlib
import signal
import subprocess
import sys

import attrs
import pytest
from artifact_support import content, serve_model
from fault_server import Fault, fault_server

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.published_models import FetchOptions, Source, fetch

pytestmark = pytest.mark.slow

FILES = {"model.mlir": content(3_000_000, 1), "x/input_0.npy": content(10_000, 2)}
OPTIONS = FetchOptions(backoff_s=0.01, deadline_s=30)

# Fetches; at the n-th time that it gets to a step, it kills itself.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.published_models import FetchOptions, Source, fetch
directory, url, step, count = sys.argv[1:]
left = int(count)
def notify(at, name):
    global left
    if at == step:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
options = FetchOptions(deadline_s=30, notify=notify, parallel=1)
(model,) = fetch([Source(url=url)], cache=Cache(Path(directory)), options=options)
print(sorted(model.files))
"""


@pytest.fixture
def server():
    with fault_server() as running:
        yield running


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def start(cache, url, step="never", count=1):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(cache.directory), url, step, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wrong_files(cache):
    """Files whose name is a digest but whose content differs, or that a view lacks."""
    digests = {hashlib.sha256(data).hexdigest(): name for name, data in FILES.items()}
    bad = [
        path
        for path in cache.objects()
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name
    ]
    for path in cache.directory.glob("models/*/*/**/*"):
        if path.is_file() and path.name != "manifest.json":
            name = digests.get(hashlib.sha256(path.read_bytes()).hexdigest())
            if name is None or not path.as_posix().endswith(name):
                bad.append(path)
    return bad


STAGES = [
    ("manifest", 1),
    ("locked", 1),
    ("chunk", 1),
    ("chunk", 6),
    ("received", 1),
    ("checked", 1),
    ("stored", 1),
    ("locked", 2),
    ("chunk", 13),
    ("stored", 2),
    ("locked", 3),
    ("chunk", 14),
    ("stored", 3),
    ("linked", 1),
    ("linked", 2),
]


def test_killed_at_every_stage_and_run_again(server, cache, capsys):
    lock = serve_model(server, FILES)
    killed = lost = 0
    for step, count in STAGES:
        for path in (*cache.objects(), *cache.directory.glob("models/*/*/**/*.*")):
            path.unlink()
        process = start(cache, lock.url, step, count)
        output, error = process.communicate(timeout=40)
        assert process.returncode == -signal.SIGKILL, (step, count, output, error)
        killed += 1
        lost += len(wrong_files(cache))
        # The lock of the killed process is free, and its partial file is completed.
        (model,) = fetch([Source(url=lock.url)], cache=cache, options=OPTIONS)
        assert {name: path.read_bytes() for name, path in model.files.items()} == FILES
        lost += len(wrong_files(cache))
    with capsys.disabled():
        print(f"\nprocesses killed while they fetched: {killed}, wrong files: {lost}")
    assert lost == 0


def test_what_a_killed_process_left_is_continued(server, cache):
    lock = serve_model(server, FILES)
    process = start(cache, lock.url, "chunk", 9)
    process.communicate(timeout=40)
    digest = hashlib.sha256(FILES["model.mlir"]).hexdigest()
    left = cache.partial_path(digest).stat().st_size
    assert 0 < left < len(FILES["model.mlir"])
    server.requests.clear()
    fetch([Source(url=lock.url)], cache=cache, options=OPTIONS)
    asked = [asked for path, asked in server.requests if path.endswith("model.mlir")]
    assert asked == [f"bytes={left}-"]


def test_rubbish_that_somebody_left_is_thrown_away(server, cache):
    lock = serve_model(server, FILES)
    digest = hashlib.sha256(FILES["model.mlir"]).hexdigest()
    cache.partial_path(digest).parent.mkdir(parents=True)
    for rubbish in (b"rubbish", b"r" * 4_000_000, b"r" * 3_000_000):
        cache.partial_path(digest).write_bytes(rubbish)
        (model,) = fetch([Source(url=lock.url)], cache=cache, options=OPTIONS)
        assert model.files["model.mlir"].read_bytes() == FILES["model.mlir"]
        cache.object_path(digest).unlink()
        model.files["model.mlir"].unlink()


def test_two_processes_fetch_each_file_once(server, cache):
    # Long enough for the second process to arrive while the first one works.
    server.inject("MODEL/model.mlir", Fault(kind="stall", stall_at=0.5, hang_s=0.7))
    lock = serve_model(server, FILES)
    processes = [start(cache, lock.url) for _ in range(2)]
    for process in processes:
        output, error = process.communicate(timeout=40)
        assert process.returncode == 0, error
        assert output.strip() == "['model.mlir', 'x/input_0.npy']"
    asked = [asked for path, asked in server.requests if path.endswith("model.mlir")]
    assert asked == ["", "bytes=1500000-"]
    assert not wrong_files(cache)


def test_who_waits_for_another_process_waits_no_longer_than_the_deadline(server, cache):
    lock = serve_model(server, FILES)
    digest = hashlib.sha256(FILES["model.mlir"]).hexdigest()
    options = attrs.evolve(OPTIONS, deadline_s=0.5)
    with cache.lock(digest), pytest.raises(Exception, match=r"model\.mlir \(another process"):
        fetch([Source(url=lock.url)], cache=cache, options=options)
