"""Faults of servers, links and disks: never a wrong file under a right name, never a hang.

The last test prints how many faults were injected and how many wrong files resulted.
"""

import errno
import hashlib
import time
from collections import Counter

import attrs
import pytest
from artifact_support import content, serve_model
from fault_server import Fault, fault_server, flipped
from msgspec.structs import replace

from openxla.benchmark.artifacts import transfers as downloading
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.published_models import FetchError, FetchOptions, Source, fetch
from openxla.benchmark.artifacts.stores import (
    AccessDeniedError,
    AlreadyExistsError,
    DamagedError,
    DeadlineError,
    Meter,
    NoSpaceError,
    NotFoundError,
    StoreError,
    Stores,
    UnreachableError,
)
from openxla.benchmark.artifacts.transfers import Transfer, Wanted, download

pytestmark = pytest.mark.slow

DATA = content(200_000, 1)
OTHER = content(200_000, 2)
OPTIONS = FetchOptions(backoff_s=0.01, deadline_s=20, read_timeout_s=5, attempts=3)
TOTAL: Counter[str] = Counter()
WRONG: list[str] = []


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    """Small chunks: links break in the middle of objects, not in front of them."""
    monkeypatch.setattr(downloading, "_CHUNK_BYTES", 4096)


@pytest.fixture
def server():
    with fault_server() as running:
        yield running
        TOTAL.update(running.injected)


@pytest.fixture
def cache(tmp_path):
    made = Cache(tmp_path / "cache")
    yield made
    # In any case a file with the name of a digest has that digest.
    for path in made.objects():
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
            WRONG.append(str(path))
    assert not WRONG


def fetched(server, cache, options=OPTIONS):
    lock = serve_model(server, {"x.bin": DATA})
    (model,) = fetch([Source.locked(lock)], cache=cache, options=options)
    return model.files["x.bin"].read_bytes()


def refused(server, cache, kind, match, options=OPTIONS):
    """Fetches in vain; returns the seconds that it took."""
    started = time.monotonic()
    with pytest.raises(FetchError, match=match) as caught:
        fetched(server, cache, options)
    seconds = time.monotonic() - started
    (error,) = caught.value.errors.values()
    assert type(error) is kind
    assert "MODEL/x.bin" in str(error), "the message names the object"
    assert caught.value.fetched == []
    assert not list(cache.directory.glob("models/MODEL/*/x.bin"))
    return seconds


@pytest.mark.parametrize("tenth", range(11))
def test_a_link_that_breaks_is_continued_where_it_broke(server, cache, tenth):
    server.inject("MODEL/x.bin", Fault(kind="cut", cut_at=tenth / 10))
    assert fetched(server, cache) == DATA
    asked = [asked for path, asked in server.requests if path == "/MODEL/x.bin"]
    if tenth == 10:
        assert asked == [""]
    else:
        assert asked == ["", f"bytes={tenth * 20_000}-" if tenth else ""]


def test_a_link_that_breaks_at_every_tenth_gets_there(server, cache):
    # Each attempt gets a tenth of the rest. There are more cuts than attempts, but each adds bytes.
    server.inject("MODEL/x.bin", *[Fault(kind="cut", cut_at=0.1)] * 10)
    assert fetched(server, cache) == DATA
    assert len([path for path, _ in server.requests if path == "/MODEL/x.bin"]) == 11


def test_a_link_that_brings_nothing_is_given_up(server, cache):
    server.always["/MODEL/x.bin"] = Fault(kind="cut", cut_at=0.0)
    refused(server, cache, UnreachableError, "gave up after 3 attempts")
    assert server.injected["cut"] == 3


def test_answers_that_end_without_a_byte_are_given_up(server, cache):
    # In pieces, so that HTTP itself finds nothing wrong.
    server.always["/MODEL/x.bin"] = Fault(kind="empty", content=b"", chunked=True)
    refused(
        server, cache, UnreachableError, "ended after 0 of 200000 bytes; gave up after 3 attempts"
    )
    assert server.injected["empty"] == 3


def test_a_server_without_ranges_sends_all_of_it_again(server, cache):
    server.inject(
        "MODEL/x.bin", Fault(kind="cut", cut_at=0.5), Fault(kind="range ignored", ignore_range=True)
    )
    assert fetched(server, cache) == DATA
    asked = [asked for path, asked in server.requests if path == "/MODEL/x.bin"]
    assert asked == ["", "bytes=100000-"]


def test_another_range_than_asked_for_is_not_taken(server, cache):
    server.inject(
        "MODEL/x.bin", Fault(kind="cut", cut_at=0.5), Fault(kind="wrong range", wrong_range=True)
    )
    assert fetched(server, cache) == DATA


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(server, cache, status):
    server.inject("MODEL/x.bin", *[Fault(kind=f"HTTP {status}", status=status)] * 2)
    assert fetched(server, cache) == DATA


@pytest.mark.parametrize("status", [429, 500])
def test_a_server_that_stays_in_trouble_is_given_up(server, cache, status):
    server.always["/MODEL/x.bin"] = Fault(kind=f"HTTP {status}", status=status)
    refused(server, cache, UnreachableError, f"HTTP {status}; gave up after 3 attempts")
    assert server.injected[f"HTTP {status}"] == 3


@pytest.mark.parametrize(
    ("status", "kind", "match"),
    [
        (401, AccessDeniedError, "access denied"),
        (403, AccessDeniedError, "gcloud auth application-default login"),
        (404, NotFoundError, "no such object"),
        (412, AlreadyExistsError, "HTTP 412"),
        (416, StoreError, "HTTP 416"),
        (418, StoreError, "HTTP 418"),
    ],
)
def test_a_clear_no_is_not_asked_again(server, cache, status, kind, match):
    server.always["/MODEL/x.bin"] = Fault(kind=f"HTTP {status}", status=status)
    refused(server, cache, kind, match)
    assert server.injected[f"HTTP {status}"] == 1


def test_a_server_is_asked_again_when_it_says(server, cache):
    later = Fault(kind="HTTP 429", status=429, headers={"Retry-After": "1"})
    server.inject("MODEL/x.bin", later)
    started = time.monotonic()
    assert fetched(server, cache) == DATA
    assert time.monotonic() - started >= 1.0


def test_a_server_that_says_after_the_deadline_is_not_waited_for(server, cache):
    server.always["/MODEL/x.bin"] = Fault(
        kind="HTTP 503", status=503, headers={"Retry-After": "3600"}
    )
    assert refused(server, cache, DeadlineError, "not finished within 20 s") < 5.0


@pytest.mark.parametrize("bit", [0, 800_001, 1_599_999])
def test_a_flipped_bit_is_seen_and_read_again(server, cache, bit):
    server.inject("MODEL/x.bin", Fault(kind="flipped", content=flipped(DATA, bit)))
    assert fetched(server, cache) == DATA


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("flipped", Fault(kind="flipped", content=flipped(DATA, 7))),
        ("swapped", Fault(kind="swapped", content=OTHER)),
        ("empty", Fault(kind="empty", content=b"")),
        ("truncated", Fault(kind="truncated", content=DATA[:-1])),
        ("longer", Fault(kind="longer", content=DATA + b"!")),
        ("longer, unannounced", Fault(kind="longer", content=DATA + b"!", chunked=True)),
    ],
)
def test_wrong_content_never_gets_the_name(server, cache, name, fault):
    server.always["/MODEL/x.bin"] = fault
    refused(server, cache, DamagedError, r"expected \d+ bytes with sha256 [0-9a-f]+; tried 3 times")
    assert not list((cache.directory / "partial").iterdir())


def test_truncated_without_a_length_is_continued(server, cache):
    server.inject("MODEL/x.bin", Fault(kind="truncated", content=DATA[:5000], chunked=True))
    assert fetched(server, cache) == DATA


def test_swapped_in_the_middle_is_seen(server, cache):
    server.inject(
        "MODEL/x.bin", Fault(kind="cut", cut_at=0.5), Fault(kind="swapped", content=OTHER)
    )
    assert fetched(server, cache) == DATA


def test_announcing_more_than_there_is(server, cache):
    server.inject("MODEL/x.bin", Fault(kind="announced longer", announce_extra=10))
    assert fetched(server, cache) == DATA


def test_announcing_less_than_there_is(server, cache):
    server.inject("MODEL/x.bin", Fault(kind="announced shorter", announce_extra=-10))
    assert fetched(server, cache) == DATA


def test_garbage_after_a_body_spoils_no_later_answer(server, cache):
    files = {f"{n}.bin": content(1000, n) for n in range(6)}
    lock = serve_model(server, files)
    for name in files:
        server.inject(f"MODEL/{name}", Fault(kind="garbage", garbage=b"HTTP/1.1 200 OK\r\n\r\nX"))
    options = attrs.evolve(OPTIONS, parallel=1)
    (model,) = fetch([Source.locked(lock)], cache=cache, options=options)
    assert {name: path.read_bytes() for name, path in model.files.items()} == files


HANGS = {
    "before the answer": Fault(kind="hang", hang_s=60),
    "in the body": Fault(kind="stall", hang_s=60, stall_at=0.5),
    "at the last byte": Fault(kind="stall", hang_s=60, stall_at=0.99999),
}


@pytest.mark.parametrize("where", HANGS)
def test_a_server_that_hangs_once_is_asked_again(server, cache, where):
    server.inject("MODEL/x.bin", HANGS[where])
    assert fetched(server, cache, attrs.evolve(OPTIONS, read_timeout_s=0.3)) == DATA


@pytest.mark.parametrize("where", HANGS)
def test_a_server_that_hangs_is_left_at_the_deadline(server, cache, where):
    server.always["/MODEL/x.bin"] = HANGS[where]
    options = attrs.evolve(OPTIONS, deadline_s=0.8)
    assert refused(server, cache, DeadlineError, "not finished within 0.8 s", options) < 3.0


@pytest.mark.parametrize("head", [False, True], ids=["body", "header"])
def test_a_server_that_drips_is_left_at_the_deadline(server, cache, head):
    # Each byte comes within the read timeout; together they would take hours.
    server.always["/MODEL/x.bin"] = Fault(kind="drip", drip_s=0.05, drip_head=head)
    options = attrs.evolve(OPTIONS, deadline_s=0.8)
    assert refused(server, cache, DeadlineError, "not finished within 0.8 s", options) < 3.0


def test_a_download_keeps_to_the_deadline_by_itself(server, cache):
    data = content(60)
    server.put("x", data)
    server.always["/x"] = Fault(kind="drip", drip_s=0.05)
    stores = Stores(attrs.evolve(OPTIONS, deadline_s=0.6))
    wanted = Wanted(
        store=stores.at(server.url),
        name="x",
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=60,
    )
    meter = Meter(total_bytes=60, total_files=1)
    started = time.monotonic()
    with pytest.raises(DeadlineError, match=r"/x: not finished within 0\.6 s"):
        download(wanted, cache, Transfer(OPTIONS, stores.deadline, meter))
    assert time.monotonic() - started < 2.0, "all of it takes 3 s"
    assert 0 < cache.partial_path(wanted.sha256).stat().st_size < 60


def test_nobody_listening_is_given_up(server, cache):
    lock = serve_model(server, {"x.bin": DATA})
    url = "http://127.0.0.1:9/MODEL"
    source = Source.locked(replace(lock, url=url))
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:9/MODEL/manifest\.json: no response"):
        fetch([source], cache=cache, options=OPTIONS)


def test_redirects_are_followed_to_safe_places_only(server, cache):
    server.put("elsewhere", DATA)
    moved = {"Location": f"{server.url}/elsewhere"}
    server.inject("MODEL/x.bin", Fault(kind="redirect", status=302, headers=moved))
    assert fetched(server, cache) == DATA


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("http://example.org/x", "use https://"),
        ("file:///etc/passwd", "use https://"),
        ("loop", "redirected more than 5 times"),
    ],
)
def test_redirects_elsewhere_are_refused(server, cache, target, match):
    location = f"{server.url}/MODEL/x.bin" if target == "loop" else target
    server.always["/MODEL/x.bin"] = Fault(
        kind="redirect", status=302, headers={"Location": location}
    )
    lock = serve_model(server, {"x.bin": DATA})
    with pytest.raises(FetchError, match=match):
        fetch([Source.locked(lock)], cache=cache, options=OPTIONS)


def test_a_wrong_digest_in_the_manifest_is_no_ones_file(server, cache):
    lock = serve_model(server, {"x.bin": DATA})
    server.put("MODEL/x.bin", OTHER)
    with pytest.raises(FetchError, match="published incorrectly"):
        fetch([Source.locked(lock)], cache=cache, options=OPTIONS)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_left_no_fuller(server, cache, monkeypatch, code):
    class Full:
        """A disk with a fixed capacity."""

        def __init__(self, file):
            self.file, self.left = file, 50_000

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data):
            self.left -= len(data)
            if self.left < 0:
                TOTAL["full disk"] += 1
                raise OSError(code, "No space left on device")
            return self.file.write(data)

    opened = type(cache.directory).open
    monkeypatch.setattr(
        type(cache.directory),
        "open",
        lambda path, mode="r", **more: (
            Full(opened(path, mode, **more)) if mode == "a+b" else opened(path, mode, **more)
        ),
    )
    lock = serve_model(server, {"x.bin": DATA})
    fetch([Source.locked(serve_model(server, {}, "EMPTY"))], cache=cache, options=OPTIONS)
    with pytest.raises(FetchError, match=r"is full .* free some space") as caught:
        fetch([Source.locked(lock)], cache=cache, options=OPTIONS)
    assert {type(error) for error in caught.value.errors.values()} == {NoSpaceError}
    assert not list((cache.directory / "partial").iterdir())
    monkeypatch.undo()
    assert fetched(server, cache) == DATA


def test_zz_count(capsys):
    """Runs last in this file: counts the faults of all tests above."""
    if not TOTAL:
        pytest.skip("counts what the other tests of this file have injected")
    with capsys.disabled():
        print(f"\nfaults injected: {TOTAL.total()} ({dict(sorted(TOTAL.items()))})")
        print(f"wrong files: {len(WRONG)}")
    assert not WRONG
