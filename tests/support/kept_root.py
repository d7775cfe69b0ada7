"""An artifact root that outlives a test session: checkpoints, inputs and float64 truths.

Its name is a digest of the code that makes them, so that a stale truth cannot hide a bug.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# All code that affects a checkpoint, an input, a truth or a reference.
SOURCES = (
    "common_benchmark_suite/openxla/benchmark",
    *("comparative_benchmark/backends", "comparative_benchmark/engine/worker"),
    *("comparative_benchmark/sources/torchbench", "comparative_benchmark/analysis/verification"),
    *(f"comparative_benchmark/{name}" for name in ("pt_inductor", "jax_xla", "tf_xla", "tflite")),
    "tests/plugin",
)
# Number of code versions whose roots are kept.
_KEPT = 2


def digest_of_sources() -> str:
    """Returns a digest of the sources, and of the versions of all packages."""
    total = hashlib.sha256()
    # A folder that has moved would not count any more.
    assert all((REPOSITORY / name).is_dir() for name in SOURCES)
    paths = [path for name in SOURCES for path in (REPOSITORY / name).rglob("*")]
    paths += REPOSITORY.glob("comparative_benchmark/*/requirements.txt")
    for path in sorted(set(paths)):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(REPOSITORY)}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@contextmanager
def kept_root() -> Iterator[Path]:
    """Yields the root of this version of the code; removes the roots of old versions.

    It is locked during that time, so that no other session removes it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "common-benchmark-suite" / "tests"
    root = folder / digest_of_sources()[:16]
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(root)
        newest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in newest[:-_KEPT]:
            _remove(old)
        yield root


def _remove(root: Path) -> None:
    """Removes a root that no session uses."""
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(root, ignore_errors=True)
