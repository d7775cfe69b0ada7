"""Manifests and lock files: the same content gives the same bytes; nothing malformed is read."""

import contextlib
import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from artifact_support import DATE, artifact_file, manifest_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from openxla.benchmark.artifacts import manifests, strict_json
from openxla.benchmark.artifacts.manifests import ExportFailure, Manifest
from openxla.benchmark.artifacts.stores import human_bytes
from openxla.benchmark.artifacts.strict_json import MalformedError
from openxla.benchmark.installation import locks_dir

FILES = {"b/model.mlir": b"module", "a.npy": b"array"}
MANIFEST = replace(
    manifest_of(FILES),
    failures=(
        ExportFailure(
            artifact_type="tosa_mlir", reason="no lowering of erf", producers={"z": "1"}, date=DATE
        ),
    ),
)


def document():
    return json.loads(MANIFEST.to_bytes())


def parsed(found):
    return manifests.parse_manifest(json.dumps(found).encode(), where="m.json")


def test_a_manifest_survives_the_round_trip_and_is_deterministic():
    assert manifests.parse_manifest(MANIFEST.to_bytes(), where="m.json") == MANIFEST
    shuffled = replace(
        MANIFEST,
        files=tuple(
            replace(file, producers=dict(reversed(file.producers.items())))
            for file in reversed(MANIFEST.files)
        ),
    )
    assert shuffled.to_bytes() == MANIFEST.to_bytes()
    assert [file["path"] for file in document()["files"]] == ["a.npy", "b/model.mlir"]
    assert MANIFEST.to_bytes().endswith(b"}\n")
    assert MANIFEST.size_bytes == 11
    assert MANIFEST.producers == {"jax": "0.10.2", "numpy": "2.4.0"}
    assert MANIFEST.date == DATE


def test_the_latest_date_is_the_latest_moment():
    earlier = "2026-11-21T13:00:00+05:00"
    files = (artifact_file("a", b"1", date=earlier), artifact_file("b", b"2"))
    assert Manifest(model="M", files=files).date == DATE


def test_a_file_that_was_not_run_says_so_and_others_nothing():
    first, second = MANIFEST.files
    found = replace(MANIFEST, files=(first, replace(second, not_run="no such device")))
    written = json.loads(found.to_bytes())["files"]
    assert "not_run" not in written[0]
    assert written[1]["not_run"] == "no such device"
    assert manifests.parse_manifest(found.to_bytes(), where="m.json") == found
    with pytest.raises(MalformedError, match=r"Expected `str \| null`, got `int`.*not_run"):
        parsed(changed(not_run=5))


def changed(**fields):
    found = document()
    found["files"][1].update(fields)
    return found


def without(key):
    found = document()
    del found["files"][1][key]
    return found


def twice():
    found = document()
    found["files"].append(found["files"][1])
    return found


BAD = {
    "version of the future": ({**document(), "manifest_version": 2}, "this release reads only 1"),
    "no version": ({k: v for k, v in document().items() if k != "manifest_version"}, "None"),
    "version true": ({**document(), "manifest_version": True}, "True"),
    "unknown key": ({**document(), "extra": 1}, "extra"),
    "unknown key of a file": (changed(mode=7), r"files\[1\].*mode|mode.*files\[1\]"),
    "list": ([], "is not a JSON object"),
    "model missing": (
        {k: v for k, v in document().items() if k != "model"},
        "missing required field `model`",
    ),
    "model with slash": ({**document(), "model": "a/b"}, r"matching regex.*at `\$\.model`"),
    "file missing a digest": (without("sha256"), "missing required field `sha256`"),
    "short digest": (changed(sha256="ab"), r"matching regex.*at `\$\.files\[1\]\.sha256`"),
    "digest in capitals": (changed(sha256="A" * 64), r"matching regex.*sha256`"),
    "digest is a number": (
        changed(sha256=7),
        r"Expected `str`, got `int` - at `\$\.files\[1\]\.sha256`",
    ),
    "negative size": (
        changed(size_bytes=-1),
        r"Expected `int` >= 0 - at `\$\.files\[1\]\.size_bytes`",
    ),
    "size is text": (changed(size_bytes="6"), "Expected `int`, got `str`"),
    "size is a fraction": (changed(size_bytes=6.0), "Expected `int`, got `float`"),
    "size is true": (changed(size_bytes=True), "Expected `int`, got `bool`"),
    "traversal": (changed(path="a/../../x"), r"path 'a/../../x' points outside its directory"),
    "absolute": (changed(path="/etc/passwd"), "is an absolute path"),
    "backslash": (changed(path="a\\b"), "backslash"),
    "line break": (changed(path="a\nb"), "unprintable character"),
    "null byte": (changed(path="a\0b"), "unprintable character"),
    "lone surrogate": (changed(path="a\ud800"), "unprintable character"),
    "empty part": (changed(path="a//b"), "empty or begins with a dot"),
    "hidden": (changed(path="a/.b"), "begins with a dot"),
    "empty path": (changed(path=""), "empty"),
    "long": (changed(path="x" * 300), "too long"),
    "path twice": (twice(), "duplicate path 'b/model.mlir'"),
    "file and directory": (changed(path="a.npy/x"), "both a file and a directory"),
    "the manifest itself": (changed(path="manifest.json"), "is reserved"),
    "the claim": (changed(path="claim.json"), "is reserved"),
    "a file below the claim": (changed(path="claim.json/x"), "both a file and a directory"),
    "type in capitals": (changed(artifact_type="TFLite"), r"matching regex.*artifact_type`"),
    "date without offset": (
        changed(date="2026-11-21T12:00:00"),
        "expected an ISO 8601 date with time and offset",
    ),
    "no date": (changed(date="yesterday"), "expected an ISO 8601 date"),
    "producers list": (changed(producers=["jax"]), r"Expected `object`.*\.producers`"),
    "producers of numbers": (changed(producers={"jax": 1}), r"Expected `str`.*\.producers"),
    "files is a dictionary": ({**document(), "files": {"a": 1}}, "files"),
    "files is text": ({**document(), "files": "ab"}, "files"),
    "failure without reason": (
        {**document(), "failures": [{"artifact_type": "x", "producers": {}, "date": DATE}]},
        "missing required field `reason`",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_manifests_are_refused_with_the_entry(name):
    found, message = BAD[name]
    with pytest.raises(MalformedError, match=rf"(?s)^m\.json.*({message})"):
        parsed(found)


def test_a_file_and_a_directory_are_found_behind_other_names():
    strict_json.check_names(["a", "a-b/c", "a.b", "ab/c"])
    with pytest.raises(ValueError, match="'a' is both a file and a directory"):
        strict_json.check_names(["a/c", "a-b/c", "a.b", "a"])


@pytest.mark.parametrize(
    "names",
    [["a/" * 5_000 + "a"], [f"{first}/" + "a/" * 500 + "a" for first in range(30)]],
    ids=["long", "deep"],
)
def test_names_of_many_directories_take_little_memory(names):
    tracemalloc.start()
    with contextlib.suppress(ValueError):
        strict_json.check_names(names)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4e6


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (98.7 * 1024, "98.7 KiB"),
        (1020 * 1024, "1020 KiB"),
        (-2000 * 1024**4, "-2000 TiB"),
    ],
)
def test_sizes_are_readable(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"manifest_version": 1, "manifest_version": 1}', "duplicate key 'manifest_version'"),
        (MANIFEST.to_bytes()[:-10], "is not JSON"),
        (b" " * (strict_json.MOST_BYTES + 1), "is longer than"),
    ],
)
def test_what_is_no_json_is_refused(text, message):
    with pytest.raises(MalformedError, match=message):
        manifests.parse_manifest(text, where="m.json")


@given(st.text(max_size=40))
def test_names_of_objects_stay_where_they_are_put(name):
    if strict_json.why_no_object_name(name):
        return
    parts = name.split("/")
    assert ".." not in parts
    assert "" not in parts
    name.encode()


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(noise):
    text = MANIFEST.to_bytes()
    with pytest.raises(MalformedError):
        manifests.parse_manifest(noise, where="m.json")
    with pytest.raises(MalformedError):
        manifests.parse_manifest(text + b"x" + noise, where="m.json")


def test_a_manifest_is_written_and_read(tmp_path):
    manifests.write_manifest(tmp_path, MANIFEST)
    assert manifests.read_manifest(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_manifest_of_nothing_but_failures():
    found = Manifest(model="M", files=(), failures=MANIFEST.failures)
    assert manifests.parse_manifest(found.to_bytes(), where="m") == found
    assert (found.size_bytes, found.producers, found.date) == (0, {}, "")


def entry(model="MODEL", **fields):
    text = replace(manifest_of(FILES), model=model).to_bytes()
    name, found = manifests.locked_model(f"https://localhost/v1/{model}", text)
    assert name == model
    return replace(found, **fields)


def test_lock_files_are_updated_and_deterministic(tmp_path):
    path = tmp_path / "locks" / "jax.json"
    manifests.update_lock_file(path, {"B": entry("B"), "A": entry("A")})
    first = path.read_bytes()
    manifests.update_lock_file(path, {"A": entry("A")})
    assert path.read_bytes() == first
    manifests.update_lock_file(
        path, {"A": entry("A", url="https://localhost/v2/A"), "C": entry("C")}
    )
    found = manifests.read_lock_file(path).models
    assert list(found) == ["A", "B", "C"]
    assert found["A"].url == "https://localhost/v2/A"
    assert found["B"] == entry("B")
    assert found["B"].size_bytes == 11
    assert manifests.read_lock_files(path.parent) == found
    assert manifests.read_lock_files(tmp_path / "none") == {}


def test_a_malformed_lock_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "jax.json"
    for text, message in (
        ("{}", "lock_version None"),
        (
            '{"lock_version": 1, "models": {"A": {"url": "x"}}}',
            "missing required field `manifest_sha256`",
        ),
        ('{"lock_version": 1, "models": []}', "models"),
    ):
        path.write_text(text)
        with pytest.raises(MalformedError, match=rf"(?s)jax\.json.*{message}"):
            manifests.update_lock_file(path, {"A": entry("A")})
        assert path.read_text() == text


def test_two_lock_files_that_contradict_each_other(tmp_path):
    manifests.update_lock_file(tmp_path / "a.json", {"A": entry("A")})
    manifests.update_lock_file(tmp_path / "b.json", {"A": entry("A")})
    assert set(manifests.read_lock_files(tmp_path)) == {"A"}
    manifests.update_lock_file(tmp_path / "b.json", {"A": entry("A", url="https://localhost/v2/A")})
    with pytest.raises(
        MalformedError, match=r"b\.json locks A at .*v2/A, but a\.json locks it at .*v1/A"
    ):
        manifests.read_lock_files(tmp_path)


def test_concurrent_updates_lose_nothing(tmp_path):
    path = tmp_path / "jax.json"
    names = [f"MODEL_{n}" for n in range(16)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: manifests.update_lock_file(path, {name: entry(name)}), names))
    assert set(manifests.read_lock_file(path).models) == set(names)


def test_the_locks_of_the_checkout_are_readable():
    assert locks_dir().parent.name == "artifacts"
    assert isinstance(manifests.read_lock_files(), dict)


def test_an_artifact_knows_its_fields():
    file = artifact_file("a/b", b"x")
    with pytest.raises(AttributeError):
        file.path = "c"
