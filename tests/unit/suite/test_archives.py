"""Archives of other projects: the OpenXLA suite's are read; traps are refused without remains."""

import gzip
import hashlib
import io
import tarfile

import ml_dtypes
import numpy as np
import pytest
from artifact_support import content
from fault_server import Fault, fault_server, flipped

from openxla.benchmark.artifacts import archives
from openxla.benchmark.artifacts.archives import ArchiveError, Limits, unpack
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.published_models import FetchOptions
from openxla.benchmark.artifacts.stores import NoSpaceError, NotFoundError

ARRAYS = [
    np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    np.array(7, np.int32),
    np.zeros((0, 3), np.float16),
    np.ones((5,), ml_dtypes.bfloat16),
]


def npy(value, *, allow_pickle=False):
    file = io.BytesIO()
    np.save(file, value, allow_pickle=allow_pickle)
    return file.getvalue()


def member(name, data=b"x", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


def archive(path, *members, **options):
    with tarfile.open(path, "w:gz", **options) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def seed_archive(path, values, stem="input"):
    """An archive as the OpenXLA suite writes it: a directory, added under an empty name."""
    directory = path.parent / f"{path.name}.d"
    directory.mkdir()
    for index, value in enumerate(values):
        np.save(directory / f"{stem}_{index}.npy", value)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(f"{directory}/", arcname="")
    return path


def test_the_seeds_archives_are_read(tmp_path):
    files = unpack(seed_archive(tmp_path / "inputs_npy.tgz", ARRAYS), tmp_path / "out")
    assert [path.name for path in files] == [f"input_{n}.npy" for n in range(4)]
    np.testing.assert_array_equal(np.load(files[0]), ARRAYS[0])


@pytest.mark.parametrize("prefix", ["", "./", "sub/"])
def test_other_ways_to_write_names(tmp_path, prefix):
    packed = archive(
        tmp_path / "a.tgz", member(f"{prefix}a.bin", b"1"), member(f"{prefix}b.bin", b"2")
    )
    files = unpack(packed, tmp_path / "out")
    assert [path.read_bytes() for path in files] == [b"1", b"2"]


LONG = "d/" * 90 + "x"
TRAPS = {
    "traversal": [member("../evil")],
    "traversal inside": [member("a/../../evil")],
    "traversal by directory": [member("..", b"", tarfile.DIRTYPE)],
    "absolute": [member("/tmp/evil")],
    "absolute directory": [member("/tmp/evil", b"", tarfile.DIRTYPE)],
    "symbolic link": [member("l", b"", tarfile.SYMTYPE, "/etc/passwd")],
    "link, then through it": [member("l", b"", tarfile.SYMTYPE, "/tmp"), member("l/evil")],
    "hard link": [member("a"), member("b", b"", tarfile.LNKTYPE, "/etc/passwd")],
    "character device": [member("d", b"", tarfile.CHRTYPE)],
    "block device": [member("d", b"", tarfile.BLKTYPE)],
    "pipe": [member("p", b"", tarfile.FIFOTYPE)],
    "sparse file": [member("s", b"", tarfile.GNUTYPE_SPARSE)],
    "unknown type": [member("u", b"", b"Z")],
    "a name twice": [member("a", b"1"), member("a", b"2")],
    "a name twice in disguise": [member("a", b"1"), member("./a", b"2")],
    "file and directory": [member("a", b"1"), member("a/b", b"2")],
    "directory and file": [member("a/b", b"1"), member("a", b"2")],
    "hidden": [member(".profile")],
    "backslash": [member("a\\..\\b")],
    "line break": [member("a\nb")],
    "empty name": [member("")],
    "name too long": [member("n" * 300)],
    "no array": [member("a.npy", b"not an array")],
    "python objects": [member("a.npy", npy(np.array([{}], object), allow_pickle=True))],
    "python objects under another name": [
        member("a.bin", npy(np.array([{}], object), allow_pickle=True))
    ],
    "python objects in fields": [
        member("a.npy", npy(np.zeros(2, [("f", "O"), ("g", "i4")]), allow_pickle=True))
    ],
    "array cut short": [member("a.npy", npy(ARRAYS[0])[:-1])],
    "array of negative size": [member("a.npy", npy(ARRAYS[0]).replace(b"(2, 3, 4)", b"(2,-3,-4)"))],
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_are_refused_and_nothing_is_left(tmp_path, trap):
    packed = archive(tmp_path / "a.tgz", member("first.bin"), *TRAPS[trap])
    with pytest.raises(ArchiveError, match=r"a\.tgz") as caught:
        unpack(packed, tmp_path / "below" / "out")
    assert str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tgz", "below"]


def test_a_bomb_is_stopped_at_the_limit(tmp_path):
    packed = archive(tmp_path / "a.tgz", member("zeros", bytes(30_000_000)))
    assert packed.stat().st_size < 40_000
    with pytest.raises(ArchiveError, match="would unpack to more than 1 MiB"):
        unpack(packed, tmp_path / "out", limits=Limits(total_bytes=1 << 20))
    assert not (tmp_path / "out").exists()
    assert unpack(packed, tmp_path / "out", limits=Limits(total_bytes=30_000_000))


def test_a_bomb_of_small_members_is_stopped(tmp_path):
    many = [member(f"m{n}", b"") for n in range(200)]
    packed = archive(tmp_path / "a.tgz", *many)
    with pytest.raises(ArchiveError, match="more than 100 members"):
        unpack(packed, tmp_path / "out", limits=Limits(members=100))


def test_a_bomb_in_a_header_is_stopped_before_it_is_in_memory(tmp_path):
    # Extra headers are read whole by tarfile; this one declares 1 GiB of zeros.
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    with gzip.open(tmp_path / "a.tgz", "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(1 << 20))
    with pytest.raises(ArchiveError, match=r"a header is too large \(1 GiB\)"):
        unpack(tmp_path / "a.tgz", tmp_path / "out")


def test_a_bomb_behind_the_end_is_stopped(tmp_path):
    packed = archive(tmp_path / "a.tgz", member("a"))
    with packed.open("ab") as file:
        file.write(gzip.compress(bytes(50_000_000), 1))
    with pytest.raises(ArchiveError, match="would unpack to more than 1 MiB"):
        unpack(packed, tmp_path / "out", limits=Limits(total_bytes=1 << 20))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:12],
        lambda data: flipped(data, len(data) * 4),
        lambda data: flipped(data, len(data) * 8 - 50),
        lambda data: b"<html>404</html>" * 10,
        lambda data: gzip.compress(b"no tar archive" * 100),
    ],
    ids=["empty", "one byte", "half", "head", "flip middle", "flip crc", "html", "no tar"],
)
def test_damaged_archives_are_refused(tmp_path, damage):
    packed = archive(tmp_path / "a.tgz", member("a.bin", content(50_000)))
    packed.write_bytes(damage(packed.read_bytes()))
    with pytest.raises(ArchiveError, match=r"a\.tgz"):
        unpack(packed, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]


def test_an_old_directory_is_not_overwritten(tmp_path):
    packed = archive(tmp_path / "a.tgz", member("a"))
    unpack(packed, tmp_path / "out")
    with pytest.raises(ArchiveError, match="already exists"):
        unpack(packed, tmp_path / "out")


def test_the_seeds_archives_next_to_a_url(tmp_path):
    cache, options = Cache(tmp_path / "cache"), FetchOptions(backoff_s=0.01, deadline_s=20)
    inputs = seed_archive(tmp_path / "inputs_npy.tgz", ARRAYS).read_bytes()
    outputs = seed_archive(tmp_path / "outputs_npy.tgz", ARRAYS[:1], "output").read_bytes()
    with fault_server() as server:
        url = f"{server.url}/jax/MODEL"
        server.put("jax/MODEL/inputs_npy.tgz", inputs)
        server.put("jax/MODEL/outputs_npy.tgz", outputs)
        server.inject("jax/MODEL/inputs_npy.tgz", Fault(kind="cut", cut_at=0.5))
        found = archives.read(url, "inputs_npy.tgz", cache=cache, options=options)
        for value, expected in zip(found, ARRAYS, strict=True):
            assert value.dtype == expected.dtype
            np.testing.assert_array_equal(value, expected)
        (output,) = archives.read(url, "outputs_npy.tgz", cache=cache, options=options)
        np.testing.assert_array_equal(output, ARRAYS[0])
        # Another version under the same URL is another content, not a mixture.
        server.put("jax/MODEL/outputs_npy.tgz", inputs)
        with pytest.raises(ArchiveError, match=r"outputs_npy\.tgz contains no output_0\.npy"):
            archives.read(url, "outputs_npy.tgz", cache=cache, options=options)
        with pytest.raises(NotFoundError, match=r"PT_MODEL/inputs_npy\.tgz"):
            archives.read(f"{server.url}/PT_MODEL", "inputs_npy.tgz", cache=cache)
        small = FetchOptions(max_bytes=100)
        server.put("small/inputs_npy.tgz", inputs)
        with pytest.raises(NoSpaceError, match="larger than 100 bytes"):
            archives.read(f"{server.url}/small", "inputs_npy.tgz", cache=cache, options=small)
    for path in cache.objects():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_checking_arrays_reads_no_data(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", ARRAYS[0])
    monkeypatch.setattr(np, "load", None)
    archives.check_npy(tmp_path / "a.npy", where="a.npy")
