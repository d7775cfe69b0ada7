"""Archives: the same content gives the same bytes, and what is packed can be unpacked."""

import os
import tarfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openxla.benchmark.artifacts import archives

NAMES = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}", fullmatch=True)
# A file that begins like an array has to be one: archives of others are inspected.
CONTENTS = st.binary(max_size=3000).filter(lambda content: not content.startswith(b"\x93NUMPY"))


def write(directory, files):
    members = {}
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        members[name] = path
    return members


FILES = {"b/second.npy.txt": b"2" * 1000, "a.txt": b"first", "empty": b""}


def test_order_times_modes_and_the_archives_name_do_not_matter(tmp_path):
    one, other = write(tmp_path / "one", FILES), write(tmp_path / "other", FILES)
    for path in other.values():
        path.chmod(0o600)
        os.utime(path, (1, 1))
    archives.pack(tmp_path / "first.tgz", one)
    time.sleep(1.1)  # gzip records the second
    archives.pack(tmp_path / "sub" / "second.tgz", dict(reversed(other.items())))
    first = (tmp_path / "first.tgz").read_bytes()
    assert first == (tmp_path / "sub" / "second.tgz").read_bytes()
    # The time in the header of gzip, and no name after it.
    assert first[:4] == b"\x1f\x8b\x08\x00"
    assert first[4:8] == bytes(4)


def test_another_content_gives_other_bytes(tmp_path):
    members = write(tmp_path / "one", FILES)
    archives.pack(tmp_path / "first.tgz", members)
    members["a.txt"].write_bytes(b"First")
    archives.pack(tmp_path / "second.tgz", members)
    assert (tmp_path / "first.tgz").read_bytes() != (tmp_path / "second.tgz").read_bytes()


def test_members_tell_nothing_of_this_machine(tmp_path):
    archives.pack(tmp_path / "a.tgz", write(tmp_path / "files", FILES))
    with tarfile.open(tmp_path / "a.tgz") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(FILES)
    assert {(m.mtime, m.mode, m.uid, m.gid, m.uname, m.gname) for m in members} == {
        (0, 0o644, 0, 0, "", "")
    }


@settings(max_examples=40)
@given(files=st.dictionaries(NAMES, CONTENTS, max_size=5), level=st.integers(0, 9))
def test_what_is_packed_can_be_unpacked(tmp_path_factory, files, level):
    directories = {name[:i] for name in files for i, c in enumerate(name) if c == "/"}
    files = {name: content for name, content in files.items() if name not in directories}
    folder = tmp_path_factory.mktemp("packing")
    archives.pack(folder / "a.tgz", write(folder / "in", files), level=level)
    found = archives.unpack(folder / "a.tgz", folder / "out")
    assert {path.relative_to(folder / "out").as_posix(): path.read_bytes() for path in found} == (
        files
    )


def test_a_directory_is_packed_by_its_files(tmp_path):
    write(tmp_path / "in", FILES)
    (tmp_path / "in" / "nothing").mkdir()
    archives.pack_directory(tmp_path / "a.tgz", tmp_path / "in")
    found = archives.unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in found] == sorted(FILES)


def test_long_names_and_many_members_come_back(tmp_path):
    files = {f"{'d' * 120}/{'f' * 120}_{index}": bytes([index]) for index in range(60)}
    archives.pack(tmp_path / "a.tgz", write(tmp_path / "in", files))
    assert len(archives.unpack(tmp_path / "a.tgz", tmp_path / "out")) == 60


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", ".hidden", "a\\b", ""])
def test_names_that_nobody_would_unpack_are_refused(tmp_path, name):
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(ValueError, match="the path"):
        archives.pack(tmp_path / "a.tgz", {name: tmp_path / "file"})
    assert not (tmp_path / "a.tgz").exists()


def test_a_file_can_not_be_a_directory(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(ValueError, match="both a file and a directory"):
        archives.pack(tmp_path / "a.tgz", {"a": tmp_path / "file", "a/b": tmp_path / "file"})


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "a.tgz").write_bytes(b"an older one")
    with pytest.raises(FileNotFoundError):
        archives.pack(tmp_path / "a.tgz", {"a": tmp_path / "file", "b": tmp_path / "absent"})
    assert (tmp_path / "a.tgz").read_bytes() == b"an older one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "file"]


@pytest.mark.parametrize("change", [b"longer than it was", b"s"])
def test_a_file_that_changes_its_size_is_reported(tmp_path, monkeypatch, change):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    real = os.fstat

    def fstat(descriptor):
        found = real(descriptor)
        path.write_bytes(change)
        return found

    monkeypatch.setattr(archives.os, "fstat", fstat)
    with pytest.raises(OSError, match=r"grew|unexpected end of data"):
        archives.pack(tmp_path / "a.tgz", {"a": path})
    assert not (tmp_path / "a.tgz").exists()
