"""`cbs artifacts publish`, `lock`, `fetch`: directories, stores, lock files, the cache."""

import json

import attrs
import pytest
from artifact_support import content, make_model, serve_model
from fault_server import Fault, fault_server
from msgspec.structs import replace

from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine.fetching import Occasionally
from comparative_benchmark.maintenance.artifacts.screen import Screen
from openxla.benchmark import installation as root_module
from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts import published_models as fetching
from openxla.benchmark.artifacts import transfers as downloading
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.stores import Progress

FILES = {"model.mlir": content(30_000, 1), "inputs/input_0.npy": content(7_000, 2)}
BERT = "BERT_TINY_FP32_JAX_32XI32_BATCH1"


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    """The directory of the lock files; it does not exist yet."""
    monkeypatch.setenv(root_module.LOCKS_DIR_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def cbs(capsys, monkeypatch):
    """Runs `cbs` in this process; returns the exit code, stdout and stderr."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = leave.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def server():
    with fault_server() as running:
        yield running


@pytest.fixture
def lock_models(locks):
    """Writes a lock file."""

    def write(entries, name="models.json"):
        manifests.update_lock_file(locks / name, entries)

    return write


# publish


def test_a_model_is_published_once(cbs, tmp_path):
    source, store = make_model(tmp_path / "MODEL", FILES), tmp_path / "store"
    code, out, err = cbs("artifacts", "publish", source, store / "v1")
    assert (code, "3 uploaded" in out) == (0, True)
    assert f"cbs artifacts lock {store}/v1 -o" in err
    assert (store / "v1" / "model.mlir").read_bytes() == FILES["model.mlir"]
    again = cbs("artifacts", "publish", source, store / "v1")
    assert (again[0], "3 already present" in again[1]) == (0, True)


def test_a_dry_run_writes_and_removes_nothing(cbs, tmp_path):
    source, store = make_model(tmp_path / "MODEL", FILES), tmp_path / "store"
    code, out, err = cbs(
        "artifacts", "publish", source, store, "--dry-run", "--auto-upload",
        "--lock", tmp_path / "locks" / "x.json",
    )  # fmt: skip
    assert (code, "3 would upload" in out) == (0, True)
    assert "model.mlir" in err
    assert not store.exists()
    assert not (tmp_path / "locks").exists()
    assert (source / "model.mlir").is_file()


def test_each_model_of_a_directory_is_published(cbs, tmp_path):
    for name in ("A", "B"):
        make_model(tmp_path / "all" / name, FILES, name)
    (tmp_path / "all" / "models_version_info.txt").write_text("numpy 2\n")
    code, out, _ = cbs("artifacts", "publish", tmp_path / "all", tmp_path / "store")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        str(tmp_path / "store" / name) for name in ("A", "B")
    ]


def test_one_that_fails_costs_no_other(cbs, tmp_path):
    for name in ("A", "B", "C"):
        make_model(tmp_path / "all" / name, FILES, name)
    (tmp_path / "all" / "B" / "model.mlir").write_bytes(b"another")
    code, out, err = cbs("artifacts", "publish", tmp_path / "all", tmp_path / "store")
    assert code == 1
    assert len(out.splitlines()) == 2
    assert "B: " in err
    assert "model.mlir" in err
    assert "generate it again" in err
    assert not (tmp_path / "store" / "B" / "manifest.json").exists()


def test_other_content_under_the_same_url_is_refused(cbs, tmp_path):
    cbs("artifacts", "publish", make_model(tmp_path / "first", FILES), tmp_path / "store")
    other = make_model(tmp_path / "other", {"model.mlir": b"other"})
    code, _, err = cbs("artifacts", "publish", other, tmp_path / "store", "--auto-upload")
    assert code == 1
    assert "another version" in err
    assert (other / "model.mlir").read_bytes() == b"other"
    assert (tmp_path / "store" / "model.mlir").read_bytes() == FILES["model.mlir"]


def test_auto_upload_removes_what_the_store_has_confirmed(cbs, tmp_path):
    for name in ("A", "B"):
        make_model(tmp_path / "all" / name, FILES, name)
    (tmp_path / "all" / "B" / "notes.txt").write_text("mine")
    code, _, err = cbs(
        "artifacts", "publish", tmp_path / "all", tmp_path / "store", "--auto-upload"
    )
    assert code == 0
    assert "notes.txt is not in the manifest" in err
    left = [path for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert left == [tmp_path / "all" / "B" / "notes.txt"]


def test_what_was_published_can_be_locked_at_once(cbs, tmp_path, locks):
    source = make_model(tmp_path / "MODEL", FILES)
    code, out, _ = cbs(
        "artifacts", "publish", source, tmp_path / "store", "--lock", locks / "models.json"
    )
    assert (code, "locked  MODEL" in out) == (0, True)
    assert manifests.read_lock_files()["MODEL"].url == str(tmp_path / "store")


@pytest.mark.parametrize("there", [False, True])
def test_nothing_to_publish_explains_how_to_make_it(cbs, tmp_path, there):
    if there:
        (tmp_path / "empty").mkdir()
    code, _, err = cbs("artifacts", "publish", tmp_path / "empty", tmp_path / "store")
    assert code == 1
    assert str(tmp_path / "empty") in err
    assert ("cbs artifacts generate" in err) is there


# lock


def test_a_lock_file_names_what_is_published_now(cbs, server, tmp_path, locks):
    lock = serve_model(server, FILES)
    code, out, _ = cbs("artifacts", "lock", f"{server.url}/MODEL/", "-o", locks / "jax.json")
    assert code == 0
    assert lock.manifest_sha256[:16] in out
    assert manifests.read_lock_files() == {"MODEL": lock}
    again = cbs("artifacts", "lock", f"{server.url}/MODEL", "-o", locks / "jax.json")
    assert again[1].startswith("unchanged  MODEL")
    changed = serve_model(server, {"model.mlir": b"new"})
    later = cbs("artifacts", "lock", f"{server.url}/MODEL", "-o", locks / "jax.json")
    assert later[1].startswith("lock updated  MODEL")
    assert manifests.read_lock_files() == {"MODEL": changed}


def test_a_relative_path_is_locked_as_an_absolute_one(cbs, tmp_path, locks, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "store", FILES)
    code, _, err = cbs("artifacts", "lock", "store", "-o", locks / "x.json")
    assert code == 0
    assert manifests.read_lock_files()["MODEL"].url == str(tmp_path / "store")
    assert "other machines cannot access" in err


def test_a_lock_file_elsewhere_says_which_ones_are_read(cbs, tmp_path, locks):
    make_model(tmp_path / "store", FILES)
    _, _, err = cbs("artifacts", "lock", tmp_path / "store", "-o", tmp_path / "elsewhere.json")
    assert str(locks) in err
    assert (tmp_path / "elsewhere.json").is_file()


def test_two_lock_files_can_not_hold_one_model(cbs, tmp_path, locks):
    make_model(tmp_path / "one", FILES)
    make_model(tmp_path / "two", {"other": b"other"})
    cbs("artifacts", "lock", tmp_path / "one", "-o", locks / "a.json")
    code, _, err = cbs("artifacts", "lock", tmp_path / "two", "-o", locks / "b.json")
    assert code == 1
    assert f"{locks / 'a.json'} already locks MODEL" in err
    assert not (locks / "b.json").exists()


def test_a_url_that_is_gone_is_named(cbs, server, locks):
    code, _, err = cbs("artifacts", "lock", f"{server.url}/GONE", "-o", locks / "x.json")
    assert code == 1
    assert f"{server.url}/GONE/manifest.json" in err
    assert not locks.exists()


# fetch


def test_locked_models_are_fetched_by_name(cbs, server, lock_models):
    lock_models({name: serve_model(server, FILES, name) for name in ("A_1", "A_2", "B_1")})
    code, out, _ = cbs("artifacts", "fetch", "-name", "A_.")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["A_1", "A_2"]
    code, out, _ = cbs("artifacts", "fetch", "-name", "models/B_1/inputs/.+")
    assert [line.split()[0] for line in out.splitlines()] == ["B_1"]
    server.requests.clear()
    assert cbs("artifacts", "fetch")[0] == 0
    assert server.requests == []


def test_only_some_types_are_fetched(cbs, server, lock_models):
    lock_models({"MODEL": serve_model(server, FILES)})
    code, out, err = cbs("artifacts", "fetch", "--types", "onnx,checkpoint")
    assert code == 0
    assert "files: 2" in out  # all files of the made-up model are of that type
    assert "MODEL has no onnx" in err


def test_what_is_published_now_needs_no_lock(cbs, server):
    serve_model(server, FILES)
    code, out, _ = cbs("artifacts", "fetch", "--url", f"{server.url}/MODEL")
    assert (code, out.split()[0]) == (0, "MODEL")


def test_nothing_locked_explains_how_to_lock(cbs, locks):
    code, _, err = cbs("artifacts", "fetch")
    assert code == 3
    assert str(locks) in err
    assert "cbs artifacts lock" in err


def test_a_name_that_no_locked_model_has(cbs, server, lock_models):
    lock_models({"MODEL": serve_model(server, FILES)})
    code, _, err = cbs("artifacts", "fetch", "-name", "MODELL")
    assert (code, "'MODELL'" in err, "MODEL" in err.replace("'MODELL'", "")) == (3, True, True)
    code, _, err = cbs("artifacts", "fetch", "-name", "(")
    assert (code, "not a regular expression" in err) == (1, True)


def test_a_limit_on_size_is_kept_before_anything_is_transferred(cbs, server, lock_models, root):
    lock_models({"MODEL": serve_model(server, FILES)})
    code, _, err = cbs("artifacts", "fetch", "--max-size", "10K")
    assert code == 1
    assert "limit" in err
    assert not list((root / "artifact_cache" / "partial").glob("*"))


# definitions


def test_definitions_have_the_url_that_is_locked(cbs, server, lock_models):
    lock_models({BERT: serve_model(server, FILES, BERT)})
    code, out, _ = cbs("list", "--json", "-name", "models/BERT_TINY_FP32_JAX_.+")
    urls = {item["model"]: item["artifacts_dir_url"] for item in json.loads(out)}
    assert code == 0
    assert urls.pop(BERT) == f"{server.url}/{BERT}"
    assert urls
    assert set(urls.values()) == {None}


# faults, told by the command


def test_a_damaged_file_in_the_store_is_named_and_costs_no_other(cbs, server, lock_models):
    lock_models({name: serve_model(server, FILES, name) for name in ("GOOD", "BAD")})
    bad = {"model.mlir": content(30_000, 7), "inputs/input_0.npy": content(7_000, 8)}
    lock_models({"BAD": serve_model(server, bad, "BAD")})
    server.put("BAD/model.mlir", content(30_000, 9))
    code, out, err = cbs("artifacts", "fetch")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["GOOD"]
    assert f"{server.url}/BAD/model.mlir" in err
    assert "sha256" in err
    assert "lock another version" in err


def test_another_manifest_than_the_locked_one_is_refused(cbs, server, lock_models):
    lock_models({"MODEL": serve_model(server, FILES)})
    serve_model(server, {"model.mlir": b"published anew"})
    code, _, err = cbs("artifacts", "fetch")
    assert (code, "MODEL/manifest.json" in err) == (1, True)


@pytest.mark.parametrize("status", [403, 404])
def test_a_server_that_refuses_is_reported_with_the_object(cbs, server, lock_models, status):
    lock_models({"MODEL": serve_model(server, FILES)})
    server.always["/MODEL/model.mlir"] = Fault(kind=str(status), status=status)
    code, _, err = cbs("artifacts", "fetch")
    assert (code, f"{server.url}/MODEL/model.mlir" in err) == (1, True)


def test_no_network_is_one_sentence(cbs, server, lock_models, monkeypatch):
    lock = serve_model(server, FILES)
    with fault_server() as closed:
        url = f"{closed.url}/MODEL"
    lock_models({"MODEL": replace(lock, url=url)})
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)
    code, _, err = cbs("artifacts", "fetch")
    assert code == 1
    assert url in err
    assert "gave up after" in err
    assert len(err.splitlines()) <= 3


def test_a_full_disk_is_told_before_anything_is_begun(cbs, server, lock_models, monkeypatch, root):
    lock_models({"MODEL": serve_model(server, FILES)})
    full = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: full)
    code, _, err = cbs("artifacts", "fetch")
    assert code == 1
    assert "free some space" in err
    assert str(root) in err
    assert not list(Cache().objects())[1:]  # the manifest alone


def test_a_damaged_lock_file_stops_whoever_reads_it(cbs, locks, tmp_path):
    store = make_model(tmp_path / "store", FILES)
    locks.mkdir()
    (locks / "jax.json").write_text('{"lock_version": 1, "models": {"M": {"url": "u"}}}')
    for arguments in (
        ("list",),
        ("run", "--backend", "jax_xla", "-device", "host-cpu", "-o", tmp_path / "r.json"),
        ("artifacts", "fetch"),
        ("artifacts", "ls"),
        ("artifacts", "lock", store, "-o", locks / "other.json"),
    ):
        code, _, err = cbs(*arguments)
        assert (code, len(err.splitlines())) == (1, 1), err
        assert "jax.json" in err
    assert (locks / "jax.json").read_text().startswith('{"lock_version"')


# progress

HALF = Progress(
    done_bytes=3 << 20,
    total_bytes=6 << 20,
    done_files=1,
    total_files=2,
    rate_bytes_per_s=1 << 20,
    remaining_s=3.0,
)


def test_progress_tells_rate_and_remaining_time_but_seldom_in_a_log(capsys):
    shown = Screen()
    shown.progress(HALF)
    assert capsys.readouterr().err == ""
    shown._err._spoke_at -= 60
    shown.progress(HALF)
    shown.progress(HALF)
    assert capsys.readouterr().err == "1/2 files, 3 MiB of 6 MiB, 1 MiB/s, 3 s left\n"


def test_progress_is_one_line_that_is_written_over_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = Screen()
    shown.progress(HALF)
    shown.progress(attrs.evolve(HALF, done_files=2))
    shown.print("done")
    captured = capsys.readouterr()
    assert captured.out == "done\n"
    assert captured.err.count("1 MiB/s") == 2
    assert "\n" not in captured.err


def test_a_run_tells_of_progress_now_and_then():
    told = []
    listener = Occasionally(told.append)
    listener(HALF)
    assert told == []
    listener._told_at -= 60
    listener(HALF)
    listener(HALF)
    assert told == ["fetching published artifacts: 1/2 files, 3 MiB of 6 MiB, 1 MiB/s, 3 s left"]
