"""`cbs artifacts ls`, `verify`, `gc`, `rm`: content of the cache, checks, and removal."""

import json
import os

import pytest
from artifact_support import content, make_model

from comparative_benchmark.cli import command as cli
from openxla.benchmark import installation as root_module
from openxla.benchmark.artifacts import cache as caching
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.files import sha256_of

SHARED, OWN_A, OWN_B = content(50_000, 1), content(20_000, 2), content(10_000, 3)


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setenv(root_module.LOCKS_DIR_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def cbs(capsys, monkeypatch):
    """Runs `cbs artifacts` in this process; returns the exit code, stdout and stderr."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        try:
            code = cli.main(["artifacts", *(str(argument) for argument in arguments)])
        except SystemExit as leave:
            code = leave.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def two_models(cbs, tmp_path, locks):
    """A is locked, B is not; they share a file."""
    for name, own in (("A", OWN_A), ("B", OWN_B)):
        make_model(tmp_path / name, {"shared.bin": SHARED, "own.bin": own}, name)
    cbs("lock", tmp_path / "A", "-o", locks / "a.json")
    assert cbs("fetch", "--url", tmp_path / "A", "--url", tmp_path / "B")[0] == 0
    return Cache()


def listed(cbs):
    code, out, _ = cbs("ls", "--json")
    assert code == 0
    return json.loads(out)


def damage(path):
    """Changes one bit and the modification time, like any write."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_an_empty_cache_can_be_looked_at(cbs, root):
    document = listed(cbs)
    assert document["models"] == []
    assert document["directory"] == str(root / "artifact_cache")
    assert cbs("verify")[0] == 0
    assert cbs("gc")[1].startswith("objects: 0")
    code, out, _ = cbs("ls")
    assert (code, out.startswith(str(root))) == (0, True)


def test_ls_tells_sizes_and_locks(cbs, two_models, tmp_path):
    document = listed(cbs)
    a, b = document["models"]
    assert (a["model"], a["locked"], a["url"]) == ("A", True, str(tmp_path / "A"))
    assert (b["model"], b["locked"], b["url"]) == ("B", False, None)
    assert a["size_bytes"] == len(SHARED) + len(OWN_A)
    assert a["complete"]
    assert a["files"] == ["own.bin", "shared.bin"]
    # Shared files exist once; the other two are the manifests.
    assert document["usage"]["objects"]["files"] == 5
    lines = cbs("ls")[1].splitlines()
    assert len(lines) == 3
    assert "2/2 files" in lines[0]
    assert "not locked" in lines[1]
    assert "objects: 5" in lines[2]


def test_ls_tells_what_was_not_fetched(cbs, tmp_path):
    make_model(tmp_path / "A", {"own.bin": OWN_A}, "A")
    cbs("fetch", "--url", tmp_path / "A", "--types", "onnx")
    (a,) = listed(cbs)["models"]
    assert (a["complete"], a["files"], a["size_bytes"]) == (False, [], 0)
    assert "0/1 files" in cbs("ls")[1]


def test_ls_tells_what_is_damaged(cbs, two_models):
    (view,) = two_models.directory.glob("models/A/*")
    damage(view / "own.bin")
    a, b = listed(cbs)["models"]
    assert (a["complete"], a["files"]) == (False, ["shared.bin"])
    assert b["complete"]


def test_verify_finds_one_bit_names_it_and_fetch_mends_it(cbs, two_models, tmp_path):
    code, out, _ = cbs("verify")
    assert (code, "5 objects" in out, ": 0 damaged" in out) == (0, True, True)
    (view,) = two_models.directory.glob("models/A/*")
    path, facts = view / "shared.bin", (view / "shared.bin").stat()
    damage(path)
    # Even if its time was set back.
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert listed(cbs)["models"][0]["complete"]
    code, out, _ = cbs("verify", "--json")
    removed = json.loads(out)["removed"]
    assert code == 2
    assert list(removed.values()) == [["A/shared.bin", "B/shared.bin"]]
    assert cbs("fetch", "--url", tmp_path / "A", "--url", tmp_path / "B")[0] == 0
    assert path.read_bytes() == SHARED
    assert cbs("verify")[0] == 0


def test_verify_looks_at_workloads_and_checkpoints_too(cbs, root):
    folder = root / "workloads" / "some-1x8"
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "input_0.npy").write_bytes(b"other")
    facts = {"sha256": "0" * 64, "size_bytes": 5}
    (folder / "manifest.json").write_text(json.dumps({"files": {"inputs/input_0.npy": facts}}))
    (root / "checkpoints" / "bert").mkdir(parents=True)
    (root / "checkpoints" / "bert" / "manifest.json").write_text("{")
    code, out, err = cbs("verify")
    assert code == 2
    assert f"damaged  {folder / 'inputs' / 'input_0.npy'}" in out
    assert f"damaged  {root / 'checkpoints' / 'bert' / 'manifest.json'}" in out
    assert "--generate-artifacts" in err


def test_rm_frees_what_nobody_else_uses(cbs, two_models):
    code, out, err = cbs("rm", "B")
    assert code == 0
    assert out.startswith("removed  B")
    assert "objects kept for other models, workloads or checkpoints: 1" in err  # what A has, too
    assert [model["model"] for model in listed(cbs)["models"]] == ["A"]
    assert listed(cbs)["usage"]["objects"]["files"] == 3
    assert cbs("verify")[0] == 0


def test_rm_of_what_is_not_there_says_what_is(cbs, two_models):
    code, _, err = cbs("rm", "C")
    assert (code, "'C'" in err, "A, B" in err) == (1, True, True)
    code, _, err = cbs("rm", "A", "../..")
    assert code == 1
    assert len(listed(cbs)["models"]) == 2


def keep(cache, content):
    path = cache.directory / "content"
    path.write_bytes(content)
    cache.keep(path, sha256_of(path))


def test_gc_keeps_models_and_what_is_young(cbs, two_models):
    keep(two_models, b"of nobody")
    assert cbs("gc")[1].startswith("objects: 0")
    assert listed(cbs)["usage"]["objects"]["files"] == 6


def test_gc_frees_what_no_model_names(cbs, two_models, monkeypatch):
    keep(two_models, b"of nobody")
    later = caching.time.time() + 7200
    monkeypatch.setattr(caching.time, "time", lambda: later)
    dry = cbs("gc", "--dry-run")
    assert dry[1] == "objects: 1, 9 bytes would be freed\n"
    assert listed(cbs)["usage"]["objects"]["files"] == 6
    assert cbs("gc")[1] == "objects: 1, 9 bytes freed\n"
    assert listed(cbs)["usage"]["objects"]["files"] == 5


def test_gc_of_what_is_not_locked(cbs, two_models):
    dry = cbs("gc", "--unlocked", "--dry-run")
    assert "would be removed  B" in dry[1]
    assert len(listed(cbs)["models"]) == 2
    code, out, _ = cbs("gc", "--unlocked")
    assert code == 0
    assert "removed  B" in out
    # The same numbers: the files that only B has, and its manifest.
    assert out.splitlines()[-1] == dry[1].splitlines()[-1].replace("would be ", "")
    assert out.splitlines()[-1].startswith("objects: 2")
    assert [model["model"] for model in listed(cbs)["models"]] == ["A"]
    assert cbs("verify")[0] == 0


def test_another_root_is_another_cache(cbs, two_models, tmp_path):
    code, out, _ = cbs("ls", "--json", "--root-dir", tmp_path / "other")
    assert (code, json.loads(out)["models"]) == (0, [])
