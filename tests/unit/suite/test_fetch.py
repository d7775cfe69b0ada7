"""Fetching: right files arrive once, and existing files are not fetched again."""

import hashlib
import itertools
import os
import shutil
import ssl
import subprocess
import threading

import attrs
import pytest
from artifact_support import content, make_model, manifest_of, serve_model
from fault_server import fault_server
from msgspec.structs import replace

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts import published_models as fetching
from openxla.benchmark.artifacts.cache import Cache, Usage, is_unchanged
from openxla.benchmark.artifacts.manifests import locked_model
from openxla.benchmark.artifacts.published_models import (
    FetchError,
    FetchOptions,
    Source,
    fetch,
    lock_published,
)
from openxla.benchmark.artifacts.stores import Meter, NoSpaceError

pytestmark = pytest.mark.slow

FILES = {
    "model.mlir": content(300_000, 1),
    "inputs/input_0.npy": content(70_000, 2),
    "empty.txt": b"",
}
QUICK = FetchOptions(backoff_s=0.01, deadline_s=20, read_timeout_s=5)


@pytest.fixture
def server():
    with fault_server() as running:
        yield running


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def assert_right(model, files):
    assert {name: path.read_bytes() for name, path in model.files.items()} == files


def test_a_model_is_fetched_under_its_names(server, cache):
    lock = serve_model(server, FILES)
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert_right(model, FILES)
    assert model.manifest_sha256 == lock.manifest_sha256
    assert model.directory.parent.name == "MODEL"
    assert manifests.read_manifest(model.directory) == model.manifest
    assert not list((cache.directory / "partial").iterdir())
    assert all(path.stat().st_mode & 0o222 == 0 for path in model.files.values())


def test_what_is_there_needs_no_network(server, cache):
    lock = serve_model(server, FILES)
    fetch([Source.locked(lock)], cache=cache, options=QUICK)
    server.requests.clear()
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert_right(model, FILES)
    assert not server.requests


def test_without_a_lock_the_manifest_that_is_there_now_counts(server, cache):
    serve_model(server, FILES)
    source = Source(url=f"{server.url}/MODEL")
    (first,) = fetch([source], cache=cache, options=QUICK)
    other = {**FILES, "model.mlir": content(1000, 9)}
    serve_model(server, other)
    (second,) = fetch([source], cache=cache, options=QUICK)
    assert_right(first, FILES)
    assert_right(second, other)
    assert first.manifest_sha256 != second.manifest_sha256


def test_a_manifest_other_than_the_locked_one_is_refused(server, cache):
    lock = serve_model(server, FILES)
    serve_model(server, {**FILES, "model.mlir": content(300_000, 9)})
    with pytest.raises(FetchError, match=r"MODEL/manifest\.json.*sha256"):
        fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert not list(cache.objects())


def test_only_the_types_that_are_asked_for(server, cache):
    files = {"a.mlir": b"a", "b.npy": b"b"}
    text = manifests.Manifest(
        model="MODEL",
        files=tuple(
            replace(file, artifact_type="inputs") if file.path == "b.npy" else file
            for file in manifest_of(files).files
        ),
    ).to_bytes()
    for path, data in {**files, "manifest.json": text}.items():
        server.put(f"MODEL/{path}", data)
    source = Source.locked(locked_model(f"{server.url}/MODEL", text)[1])
    only = attrs.evolve(QUICK, artifact_types=frozenset({"inputs"}))
    (model,) = fetch([source], cache=cache, options=only)
    assert_right(model, {"b.npy": b"b"})
    assert "/MODEL/a.mlir" not in [path for path, _ in server.requests]
    (model,) = fetch([source], cache=cache, options=QUICK)
    assert_right(model, files)


def test_what_models_share_is_fetched_once(server, cache):
    shared = content(50_000, 5)
    locks = [
        serve_model(server, {"shared.bin": shared, "own.bin": content(10, n)}, model=f"MODEL_{n}")
        for n in range(4)
    ]
    models = fetch([Source.locked(lock) for lock in locks], cache=cache, options=QUICK)
    assert [model.manifest.model for model in models] == [f"MODEL_{n}" for n in range(4)]
    paths = [path for path, _ in server.requests if path.endswith("shared.bin")]
    assert len(paths) == 1
    assert len({model.files["shared.bin"].stat().st_ino for model in models}) == 1


def test_a_lost_model_costs_no_other(server, cache):
    locks = [serve_model(server, {"x": content(10, n)}, model=f"MODEL_{n}") for n in range(3)]
    del server.objects["/MODEL_1/x"]
    with pytest.raises(FetchError, match="MODEL_1/x: no such object") as caught:
        fetch([Source.locked(lock) for lock in locks], cache=cache, options=QUICK)
    assert list(caught.value.errors) == [f"{server.url}/MODEL_1/x"]
    assert [model.manifest.model for model in caught.value.fetched] == ["MODEL_0", "MODEL_2"]


def test_a_changed_file_is_seen_and_fetched_again(server, cache):
    lock = serve_model(server, FILES)
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    path = model.files["model.mlir"]
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"other bytes, same length")
    server.requests.clear()
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert_right(model, FILES)
    assert [path for path, _ in server.requests] == ["/MODEL/model.mlir"]


def test_verify_finds_what_size_and_time_do_not_show(server, cache):
    lock = serve_model(server, FILES)
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    path = model.files["model.mlir"]
    facts = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"rotten")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    file = {file.path: file for file in model.manifest.files}["model.mlir"]
    assert is_unchanged(path, file.sha256, file.size_bytes)
    assert cache.verify() == [file.sha256]
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert_right(model, FILES)
    assert cache.verify() == []


def test_a_touched_file_is_trusted_again_after_verify(server, cache):
    lock = serve_model(server, FILES)
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    os.utime(model.files["model.mlir"])
    file = {file.path: file for file in model.manifest.files}["model.mlir"]
    assert not cache.holds(file.sha256, file.size_bytes)
    assert cache.verify() == []
    assert cache.holds(file.sha256, file.size_bytes)


def test_collect_frees_what_no_view_names(server, cache, monkeypatch):
    locks = [serve_model(server, {"x": content(500, n)}, model=f"MODEL_{n}") for n in range(2)]
    fetch([Source.locked(lock) for lock in locks], cache=cache, options=QUICK)
    assert cache.usage()["objects"].files == 4
    assert cache.collect().files == 0
    cache.remove_model("MODEL_1")
    assert cache.collect().files == 0, "too young: another process may be about to name it"
    monkeypatch.setattr("openxla.benchmark.artifacts.cache._YOUNG_S", -1.0)
    freed = cache.collect()
    assert freed.files == 2
    assert freed.size_bytes == 500 + locks[1].manifest_size_bytes
    left_by_a_kill = next((cache.directory / "models").glob("*/*")) / ".x.1.2"
    left_by_a_kill.write_bytes(b"")
    assert cache.collect().files == 0
    assert cache.views_besides([locks[0].manifest_sha256]) == []
    assert not left_by_a_kill.exists()
    for view in cache.views_besides([]):
        shutil.rmtree(view)
    assert cache.collect().files == 2
    assert list(cache.objects()) == []


def partial(cache, data):
    """Writes a received object; returns its path and digest."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = cache.partial_path(sha256)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path, sha256


def test_a_kill_while_an_object_is_moved_leaves_a_writable_part(cache, monkeypatch):
    path, sha256 = partial(cache, b"data")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.keep(path, sha256)
    assert path.stat().st_mode & 0o200
    cache.keep(path, sha256)
    assert cache.holds(sha256, 4)
    assert cache.object_path(sha256).stat().st_mode & 0o222 == 0


def test_a_long_name_can_be_linked(cache):
    path, sha256 = partial(cache, b"data")
    cache.keep(path, sha256)
    name = cache.view("MODEL", sha256) / ("x" * 240)
    cache.link(sha256, 4, name)
    assert name.read_bytes() == b"data"


def test_files_that_vanish_meanwhile_are_not_counted(cache, monkeypatch):
    assert cache.missing_bytes("0" * 64, 10) == 10
    _, sha256 = partial(cache, b"data")
    assert cache.missing_bytes(sha256, 10) == 6
    unpacked = cache.directory / "unpacked" / sha256 / "inputs"
    unpacked.mkdir(parents=True)
    (unpacked / "input_0.npy").write_bytes(b"12345")
    monkeypatch.setattr(cache, "objects", lambda: iter([cache.object_path("0" * 64)]))
    assert cache.usage() == {
        "objects": Usage(files=0, size_bytes=0),
        "partial": Usage(files=1, size_bytes=4),
        "unpacked": Usage(files=1, size_bytes=5),
    }
    monkeypatch.setattr("openxla.benchmark.artifacts.cache._YOUNG_S", -1.0)
    assert cache.collectable() == Usage(files=1, size_bytes=4)


def test_what_does_not_fit_is_refused_before_it_begins(server, cache, monkeypatch):
    lock = serve_model(server, FILES)
    size = sum(map(len, FILES.values()))
    limited = attrs.evolve(QUICK, max_bytes=101_070)
    with pytest.raises(NoSpaceError, match=r"exceeds the limit of 98\.7 KiB; raise --max-size"):
        fetch([Source.locked(lock)], cache=cache, options=limited)
    free = fetching._SPARE_BYTES + size - 1
    usage = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(NoSpaceError, match="available; free some space"):
        fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert [path for path, _ in server.requests] == ["/MODEL/manifest.json"]
    usage = usage._replace(free=free + 1)
    assert fetch([Source.locked(lock)], cache=cache, options=QUICK)


def test_progress_ends_with_all_bytes_and_tells_rate_and_remaining_time(server, cache, monkeypatch):
    monkeypatch.setattr("openxla.benchmark.artifacts.stores._INTERVAL_S", 0.0)
    told, threads = [], set()

    def tell(progress):
        told.append(progress)
        threads.add(threading.get_ident())

    lock = serve_model(server, FILES)
    fetch([Source.locked(lock)], cache=cache, options=attrs.evolve(QUICK, on_progress=tell))
    total = sum(map(len, FILES.values()))
    assert told[-1].done_bytes == told[-1].total_bytes == total
    assert told[-1].done_files == told[-1].total_files == 3
    assert told[-1].rate_bytes_per_s > 0
    assert told[-1].remaining_s == 0.0
    assert all(a.done_bytes <= b.done_bytes for a, b in itertools.pairwise(told))
    assert "3/3 files, 361 KiB of 361 KiB" in str(told[-1])


def test_the_rate_is_that_of_the_last_seconds(monkeypatch):
    now, told = 100.0, []
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(total_bytes=10_000, total_files=1, on_progress=told.append)
    meter.present(1000)
    now += 0.5
    meter.moved(0)
    assert told[-1].remaining_s is None
    for _ in range(10):
        now += 1.0
        meter.moved(100)
    assert told[-1].rate_bytes_per_s == pytest.approx(100.0)
    assert told[-1].remaining_s == pytest.approx((10_000 - 2000) / 100)
    for _ in range(10):
        now += 1.0
        meter.moved(10)
    assert told[-1].rate_bytes_per_s == pytest.approx(10.0)


def test_https_needs_a_certificate_that_is_trusted(server, cache, tmp_path, monkeypatch):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=loopback", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    lock = serve_model(server, FILES)
    lock = replace(lock, url=lock.url.replace("http://", "https://"))
    with pytest.raises(FetchError, match="certificate is not trusted"):
        fetch([Source.locked(lock)], cache=cache, options=QUICK)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    (model,) = fetch([Source.locked(lock)], cache=cache, options=QUICK)
    assert_right(model, FILES)


def test_published_models_are_locked_as_they_are_now(server, cache):
    locks = {f"MODEL_{n}": serve_model(server, FILES, f"MODEL_{n}") for n in range(2)}
    assert lock_published([lock.url for lock in locks.values()], cache=cache) == locks
    with pytest.raises(FetchError, match="no such object"):
        lock_published([f"{server.url}/NONE"], cache=cache)
    server.put("v2/MODEL_0/manifest.json", manifest_of({}, "MODEL_0").to_bytes())
    with pytest.raises(FetchError, match="both publish MODEL_0; lock only one"):
        lock_published([locks["MODEL_0"].url, f"{server.url}/v2/MODEL_0"], cache=cache)


def test_a_task_that_hangs_where_no_timeout_reaches_holds_up_nobody(run_python):
    # A thread of the standard library's pools would be waited for at the end of the program.
    done = run_python(
        "import functools, time\n"
        "from openxla.benchmark.artifacts.transfers import run_all\n"
        "from openxla.benchmark.artifacts.stores import Deadline\n"
        "started = time.monotonic()\n"
        "tasks = {'quick': lambda: 1, 'stuck': functools.partial(time.sleep, 3600)}\n"
        "results, errors = run_all(tasks, parallel=2, deadline=Deadline(0.3))\n"
        "assert results == {'quick': 1}\n"
        "print(time.monotonic() - started, errors['stuck'])\n"
    )
    assert done.returncode == 0, done.stderr
    seconds, _, message = done.stdout.partition(" ")
    assert float(seconds) < 5
    assert message.startswith("stuck: not finished within 0.3 s")


def test_a_directory_is_a_source_too(tmp_path, cache):
    directory = make_model(tmp_path / "published" / "MODEL", FILES)
    (model,) = fetch([Source(url=str(directory))], cache=cache, options=QUICK)
    assert_right(model, FILES)
    (again,) = fetch([Source(url=directory.as_uri())], cache=cache, options=QUICK)
    assert again == model


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/models", "use https://; http:// is allowed only for localhost"),
        ("ftp://example.org/models", "ftp:// is not supported"),
        ("https://user:secret@example.org/m", "contains a user name or password"),
        ("https://example.org/m?token=1", "cannot have a query"),
        ("gs:///models", "has no bucket"),
    ],
)
def test_urls_that_are_never_read(url, message, cache, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=message) as caught:
        fetch([Source(url=url)], cache=cache, options=QUICK)
    if "secret" in url:
        assert "secret" not in str(caught.value.errors.popitem()[1])


def test_one_url_locked_at_different_times_is_two_models(server, cache):
    old = serve_model(server, FILES)
    fetch([Source.locked(old)], cache=cache, options=QUICK)
    other = {**FILES, "model.mlir": b"another"}
    new = serve_model(server, other)
    models = fetch([Source.locked(new), Source.locked(old)], cache=cache, options=QUICK)
    for model, files in zip(models, (other, FILES), strict=True):
        assert_right(model, files)
