"""Publishing: written once, checked, the manifest last; never half of it visible."""

import errno
import json
import os
import signal
import subprocess
import sys

import attrs
import pytest
from artifact_support import content, make_model

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.publish import (
    Action,
    ConflictError,
    PublishError,
    PublishOptions,
    digested,
    publish,
)
from openxla.benchmark.artifacts.published_models import Source, fetch
from openxla.benchmark.artifacts.stores import AlreadyExistsError, LocalStore, StoreError
from openxla.benchmark.artifacts.strict_json import MalformedError

FILES = {"model.mlir": content(50_000, 1), "inputs/input_0.npy": content(7000, 2), "empty": b""}
OPTIONS = PublishOptions(deadline_s=30)

PROGRAM = """
import os, signal, sys
from pathlib import Path
from openxla.benchmark.artifacts.publish import ConflictError, PublishOptions, publish
directory, url, step, count = sys.argv[1:]
left = int(count)
def notify(at, name):
    global left
    if at == step:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
try:
    publish(Path(directory), url, PublishOptions(deadline_s=30, notify=notify, parallel=2))
except ConflictError as error:
    print("conflict:", error)
else:
    print("published")
"""


@pytest.fixture
def made(tmp_path):
    return make_model(tmp_path / "made", FILES)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "published" / "MODEL"


def start(directory, url, step="never", count=1):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory), str(url), step, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_visible(target):
    return (target / "manifest.json").exists()


def is_whole(target):
    """Whether all files in the manifest exist and are right."""
    return is_visible(target) and all(
        (target / file.path).exists() and digested(target / file.path).sha256 == file.sha256
        for file in manifests.read_manifest(target).files
    )


def test_what_was_published_is_fetched(made, target, tmp_path):
    report = publish(made, str(target), OPTIONS)
    assert [file.action for file in report.files] == [Action.UPLOADED] * 4
    assert report.files[-1].url == f"{target}/manifest.json"
    assert report.strays == ()
    source = Source.locked(report.lock)
    (model,) = fetch([source], cache=Cache(tmp_path / "cache"))
    assert {name: path.read_bytes() for name, path in model.files.items()} == FILES
    assert report.lock.size_bytes == 57_000
    assert report.lock.producers == {"jax": "0.10.2", "numpy": "2.4.0"}


def test_the_manifest_goes_last(made, target):
    seen = []

    def notify(step, name):
        seen.append((step, name, (target / "manifest.json").exists()))

    publish(made, str(target), attrs.evolve(OPTIONS, notify=notify))
    assert seen[0] == ("claimed", "claim.json", False)
    assert [step for step, _, _ in seen][-4:] == ["files", "upload", "confirmed", "manifest"]
    assert [visible for _, _, visible in seen] == [False] * (len(seen) - 2) + [True] * 2


def test_publishing_twice_changes_nothing(made, target):
    publish(made, str(target), OPTIONS)
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    report = publish(made, str(target), OPTIONS)
    assert {file.action for file in report.files} == {Action.PRESENT}
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == times


def test_other_content_is_refused_and_what_is_there_stays(made, target, tmp_path):
    publish(made, str(target), OPTIONS)
    other = make_model(tmp_path / "other", {**FILES, "model.mlir": b"other"})
    with pytest.raises(ConflictError, match=r"another publication .* under another version"):
        publish(other, str(target), OPTIONS)
    assert (target / "model.mlir").read_bytes() == FILES["model.mlir"]
    assert is_whole(target)


def test_a_file_of_unknown_origin_stops_the_publication(made, target):
    target.mkdir(parents=True)
    (target / "model.mlir").write_bytes(b"who knows")
    with pytest.raises(ConflictError, match=r"model\.mlir is already published with different"):
        publish(made, str(target), OPTIONS)
    assert not is_visible(target)
    assert (target / "model.mlir").read_bytes() == b"who knows"


def test_a_dry_run_writes_nothing_and_says_what_would_be(made, target):
    dry = attrs.evolve(OPTIONS, dry_run=True, remove_local=True)
    report = publish(made, str(target), dry)
    assert {file.action for file in report.files} == {Action.WOULD_UPLOAD}
    assert not target.exists()
    publish(made, str(target), OPTIONS)
    assert {file.action for file in publish(made, str(target), dry).files} == {Action.PRESENT}
    assert (made / "model.mlir").exists()
    (target / "model.mlir").write_bytes(b"other")
    with pytest.raises(ConflictError):
        publish(made, str(target), dry)


@pytest.mark.parametrize("change", ["changed", "missing", "link"])
def test_files_that_are_not_what_the_manifest_says_are_not_published(made, target, change):
    path = made / "model.mlir"
    path.rename(made / "moved")
    if change == "changed":
        path.write_bytes(FILES["model.mlir"][:-1] + b"!")
    if change == "link":
        path.symlink_to(made / "moved")
    with pytest.raises(PublishError, match=r"model\.mlir"):
        publish(made, str(target), OPTIONS)
    assert not target.exists()


def test_no_manifest_no_publication(tmp_path, target):
    (tmp_path / "made").mkdir()
    with pytest.raises(MalformedError, match=r"manifest\.json cannot be read"):
        publish(tmp_path / "made", str(target), OPTIONS)


def test_local_files_go_only_after_the_store_has_confirmed_each(made, target, monkeypatch):
    (made / "notes.txt").write_text("not in the manifest")
    removing = attrs.evolve(OPTIONS, remove_local=True)
    real = LocalStore.check

    def check(store, name, file):
        if name == "inputs/input_0.npy":
            (target / name).write_bytes(b"rotten")
        real(store, name, file)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "check", check)
        with pytest.raises(PublishError, match=r"input_0\.npy has sha256"):
            publish(made, str(target), removing)
    assert {name: (made / name).read_bytes() for name in FILES} == FILES
    assert not is_visible(target)
    (target / "inputs/input_0.npy").unlink()
    report = publish(made, str(target), removing)
    assert report.strays == ("notes.txt",)
    assert is_whole(target)
    assert [path.name for path in made.rglob("*")] == ["notes.txt"]
    (made / "notes.txt").unlink()


def test_a_directory_is_not_published_to_itself(made, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(made)
    removing = attrs.evolve(OPTIONS, remove_local=True)
    for url in (str(made), made.as_uri(), str(link)):
        with pytest.raises(PublishError, match="made cannot be published to itself; give another"):
            publish(made, url, removing)
    assert is_whole(made)
    assert not (made / "claim.json").exists()


def test_a_directory_may_have_a_name_that_would_be_a_query_in_a_url(made, tmp_path):
    target = tmp_path / "what?#1"
    publish(made, str(target), OPTIONS)
    assert is_whole(target)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links_takes_publications(made, target, monkeypatch, number):
    def refuse(source, link):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    publish(made, str(target), OPTIONS)
    assert is_whole(target)
    names = {path.name for path in target.rglob("*") if path.is_file()}
    assert names == {*(name.rpartition("/")[2] for name in FILES), "manifest.json", "claim.json"}
    assert {file.action for file in publish(made, str(target), OPTIONS).files} == {Action.PRESENT}


def test_without_hard_links_a_name_taken_meanwhile_stays_as_it_is(made, tmp_path, monkeypatch):
    def refuse(source, link):
        link.write_bytes(b"from another process")
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore(tmp_path / "store")
    with pytest.raises(AlreadyExistsError):
        store.put("a", digested(made / "model.mlir"), lambda _: None)
    assert (tmp_path / "store" / "a").read_bytes() == b"from another process"
    assert list(store.sizes()) == ["a"]


def test_an_emptied_directory_goes_too(made, target):
    publish(made, str(target), attrs.evolve(OPTIONS, remove_local=True))
    assert not made.exists()
    assert is_whole(target)


def test_one_store_error_costs_no_half_publication(made, target, monkeypatch):
    real = LocalStore.put

    def put(store, name, file, advance):
        if name == "model.mlir":
            raise StoreError("model.mlir: the server returned HTTP 500")
        real(store, name, file, advance)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put", put)
        with pytest.raises(PublishError, match="HTTP 500; nothing is visible yet; run the same"):
            publish(made, str(target), OPTIONS)
    assert not is_visible(target)
    publish(made, str(target), OPTIONS)
    assert is_whole(target)


def test_a_full_disk_leaves_nothing_under_the_name(made, target, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(PublishError, match="No space left on device; free some space"):
            publish(made, str(target), OPTIONS)
    assert list(target.iterdir()) == []
    publish(made, str(target), OPTIONS)
    assert is_whole(target)


def test_https_is_read_only(made):
    with pytest.raises(StoreError, match="HTTPS is read-only; publish to gs://"):
        publish(made, "https://localhost:1/MODEL", OPTIONS)


def test_a_local_object_is_written_once(tmp_path, made):
    store = LocalStore(tmp_path / "store")
    store.put("a/b", digested(made / "model.mlir"), lambda _: None)
    with pytest.raises(AlreadyExistsError, match="a/b already exists"):
        store.put("a/b", digested(made / "inputs/input_0.npy"), lambda _: None)
    assert store.sizes() == {"a/b": 50_000}
    for name in ("../x", "/x", "a//b", "."):
        with pytest.raises(StoreError, match="not a valid object name"):
            store.open(name)


STAGES = [
    ("claimed", 1),
    ("upload", 1),
    ("upload", 3),
    ("confirmed", 1),
    ("confirmed", 3),
    ("files", 1),
    ("upload", 4),
    ("confirmed", 4),
    ("manifest", 1),
]


@pytest.mark.slow
def test_killed_at_every_stage_and_run_again(made, tmp_path, capsys):
    killed = half = 0
    for index, (step, count) in enumerate(STAGES):
        target = tmp_path / "published" / str(index)
        process = start(made, target, step, count)
        output, error = process.communicate(timeout=40)
        assert process.returncode == -signal.SIGKILL, (step, count, output, error)
        killed += 1
        half += is_visible(target) != is_whole(target)
        assert is_visible(target) == (step == "manifest" or (step, count) == ("confirmed", 4))
        publish(made, str(target), OPTIONS)
        assert is_whole(target)
    with capsys.disabled():
        print(f"\nprocesses killed while they published: {killed}, half-published models: {half}")
    assert half == 0


def test_of_two_that_publish_the_same_both_are_fine(made, target):
    processes = [start(made, target) for _ in range(2)]
    outputs = [process.communicate(timeout=40) for process in processes]
    assert [output.strip() for output, _ in outputs] == ["published"] * 2, outputs
    assert is_whole(target)


@pytest.mark.slow
def test_of_two_that_publish_different_things_one_wins_and_the_other_reports_it(made, tmp_path):
    other = make_model(tmp_path / "other", {**FILES, "model.mlir": b"other"})
    for attempt in range(3):
        target = tmp_path / "published" / str(attempt)
        processes = [start(directory, target) for directory in (made, other)]
        outputs = [process.communicate(timeout=40)[0].strip() for process in processes]
        assert sorted(output.split(":")[0] for output in outputs) == ["conflict", "published"]
        assert is_whole(target)
        winner = (made, other)[outputs.index("published")]
        assert (target / "manifest.json").read_bytes() == (winner / "manifest.json").read_bytes()
        claim = json.loads((target / "claim.json").read_text())
        assert claim["manifest_sha256"] == digested(winner / "manifest.json").sha256
