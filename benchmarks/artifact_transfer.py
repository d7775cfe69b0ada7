"""Measures how fast artifacts are fetched and checked, compared with general tools.

A loopback HTTP server in a separate process serves files from memory. In each round, in shuffled
order, the suite fetches all of them into an empty cache; `curl -Z` fetches them in parallel, and
`sha256sum` checks them. The script also measures the share of time for digests, a fetch of files
that are already in the cache, and memory against the size of a file.

    python benchmarks/artifact_transfer.py [--quick]
"""

import argparse
import functools
import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from _timing import interleave, print_goal, print_table, ratio

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.manifests import (
    MANIFEST_FILE,
    ArtifactFile,
    LockedModel,
    Manifest,
    locked_model,
)
from openxla.benchmark.artifacts.published_models import FetchOptions, Source, fetch

_DATE = "2026-11-21T12:00:00+00:00"
_PARALLEL = 8
_LEAST_RATE = 0.8
_NO_OP_MODELS, _NO_OP_FILES = 200, 8
_MOST_NO_OP_S = 1.0
_FETCH_ONCE = """
import sys
from pathlib import Path
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.published_models import FetchOptions, Source, fetch
fetch([Source(url=sys.argv[1])], cache=Cache(Path(sys.argv[2])), options=FetchOptions())
# Not getrusage: its maximum comes down from the process that started this one.
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with 8 x 4 MiB")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(Path(options.serve[0]), int(options.serve[1]))
        return 0
    count, size = (8, 4 << 20) if options.quick else (64, 16 << 20)
    rounds = 3 if options.quick else 7
    with tempfile.TemporaryDirectory(prefix="cbs-transfer-", dir=_fast_dir()) as name:
        work = Path(name)
        lock_of = _make(work / "served", count, size)
        with _server(work / "served") as url:
            met = [
                _rate(work, url, lock_of(url), count, size, rounds),
                _no_op(work),
                _memory(work, url),
            ]
    return 0 if all(met) else 2


def _fast_dir() -> str | None:
    """Returns a directory in memory, if the system has one, to exclude the speed of disks."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _rate(work: Path, url: str, lock: LockedModel, count: int, size: int, rounds: int) -> bool:
    urls = [f"{url}/MODEL/file_{index:03}.bin" for index in range(count)]
    sums = "".join(
        f"{hashlib.sha256(_content(index, size)).hexdigest()}  file_{index:03}.bin\n"
        for index in range(count)
    )

    def suite() -> None:
        shutil.rmtree(work / "cache", ignore_errors=True)
        options = FetchOptions(parallel=_PARALLEL)
        fetch([Source.locked(lock)], cache=Cache(work / "cache"), options=options)

    def curl(*, check: bool) -> None:
        directory = work / "curl"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        parts = [part for one in urls for part in ("-O", one)]
        command = ["curl", "-sS", "--fail", "-Z", "--parallel-max", str(_PARALLEL), *parts]
        # curl shows its progress despite -s.
        subprocess.run(command, cwd=directory, check=True, stderr=subprocess.PIPE)
        if check:
            (directory / "sums").write_text(sums)
            # One process per CPU is the fastest way to use the tool.
            split = f"xargs -a names -n 4 -P {os.cpu_count()}"
            (directory / "names").write_text("\n".join(one.rpartition("/")[2] for one in urls))
            command = [f"{split} sha256sum | sort -k 2 | cmp - sums"]
            subprocess.run(command, shell=True, cwd=directory, check=True)

    contestants: dict[str, Callable[[], None]] = {
        "suite: fetch, check, store": suite,
        "curl -Z, then sha256sum": functools.partial(curl, check=True),
        "curl -Z alone, nothing checked": functools.partial(curl, check=False),
    }
    for contestant in contestants.values():
        contestant()  # files are in memory, programs are loaded
    times = interleave(contestants, rounds=rounds, iterations=1)
    names = list(contestants)
    relative = ratio(times[names[1]], times[names[0]])
    total = count * size
    rows = [
        [name, f"{statistics.median(found):.3f}", f"{total / statistics.median(found) / 2**20:.0f}"]
        for name, found in times.items()
    ]
    hashing = _hashing_s(size) * count
    rows.append(["digests alone, one thread", f"{hashing:.3f}", f"{total / hashing / 2**20:.0f}"])
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    print(f"{count} x {size >> 20} MiB, {_PARALLEL} at once; {version.stdout.split(' (')[0]}")
    print_table(["", "s", "MiB/s"], rows)
    share = hashing / (statistics.median(times[names[0]]) * min(_PARALLEL, os.cpu_count() or 1))
    print(f"digests take {share:.0%} of the CPU time available to a fetch")
    print(f"rate of the suite / rate of curl with sha256sum: {relative}")
    met = relative.median >= _LEAST_RATE
    print_goal(
        f"at least {_LEAST_RATE} x the rate of the fastest general tool",
        met=met,
        found=f"{relative} x",
    )
    print()
    return met


def _hashing_s(size: int) -> float:
    content = _content(0, size)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        hashlib.sha256(content).digest()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _no_op(work: Path) -> bool:
    """Fetches 200 models that are already in the cache."""
    sources = []
    for index in range(_NO_OP_MODELS):
        files = {f"file_{n}.bin": b"%d %d" % (index, n) for n in range(_NO_OP_FILES)}
        directory = work / "many" / f"MODEL_{index}"
        text = _write_model(directory, files, f"MODEL_{index}")
        sources.append(Source.locked(locked_model(str(directory), text)[1]))
    cache = Cache(work / "many_cache")
    fetch(sources, cache=cache)
    shutil.rmtree(work / "many")  # nothing but the cache can answer
    times = []
    for _ in range(7):
        started = time.perf_counter()
        models = fetch(sources, cache=cache)
        times.append(time.perf_counter() - started)
    assert sum(len(model.files) for model in models) == _NO_OP_MODELS * _NO_OP_FILES
    median = statistics.median(times)
    print(f"all of {_NO_OP_MODELS} models ({_NO_OP_FILES} files each) there: {median:.3f} s")
    print_goal(
        f"a fetch that has nothing to do < {_MOST_NO_OP_S:g} s",
        met=median < _MOST_NO_OP_S,
        found=f"{median:.2f} s",
    )
    print()
    return median < _MOST_NO_OP_S


def _memory(work: Path, url: str) -> bool:
    """Compares the peak memory of fetching a small file and a large file."""
    peaks = {}
    for name, size in (("1 MiB", 1 << 20), ("512 MiB", 512 << 20)):
        directory = work / "served" / f"SIZE_{size}"
        _write_model(directory, {"file.bin": _content(1, size)}, f"SIZE_{size}")
        done = subprocess.run(
            [sys.executable, "-c", _FETCH_ONCE, f"{url}/SIZE_{size}", str(work / f"cache_{size}")],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[name] = int(done.stdout)
    grown = peaks["512 MiB"] - peaks["1 MiB"]
    print_table(
        ["file", "peak of the process, MiB"],
        [[name, f"{peak / 2**20:.1f}"] for name, peak in peaks.items()],
    )
    print_goal(
        "memory flat in file size (< 8 MiB more for 512 MiB)",
        met=grown < 8 << 20,
        found=f"{grown / 2**20:+.1f} MiB",
    )
    return grown < 8 << 20


def _content(index: int, size: int) -> bytes:
    return (hashlib.sha256(str(index).encode()).digest() * (size // 32 + 1))[:size]


def _make(directory: Path, count: int, size: int) -> Callable[[str], LockedModel]:
    files = {f"file_{index:03}.bin": _content(index, size) for index in range(count)}
    text = _write_model(directory / "MODEL", files, "MODEL")
    return lambda url: locked_model(f"{url}/MODEL", text)[1]


def _write_model(directory: Path, files: dict[str, bytes], model: str) -> bytes:
    directory.mkdir(parents=True)
    entries = []
    for name, content in files.items():
        (directory / name).write_bytes(content)
        entries.append(
            ArtifactFile(
                path=name,
                artifact_type="checkpoint",
                sha256=hashlib.sha256(content).hexdigest(),
                size_bytes=len(content),
                producers={"numpy": "2"},
                date=_DATE,
            )
        )
    text = Manifest(model=model, files=tuple(entries)).to_bytes()
    (directory / MANIFEST_FILE).write_bytes(text)
    return text


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        descriptor = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(directory), str(descriptor)],
            pass_fds=[descriptor],
        )
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait()


def _serve(directory: Path, descriptor: int) -> None:
    """Serves files with sendfile, so that the server uses little CPU."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with (directory / self.path.lstrip("/")).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.send_response(200)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.flush()
                self.connection.sendfile(file)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def server_bind(self) -> None:
            self.socket.close()
            self.socket = socket.socket(fileno=descriptor)
            self.server_address = self.socket.getsockname()

    Server(("127.0.0.1", 0), Handler).serve_forever()


if __name__ == "__main__":
    sys.exit(main())
