"""`utils` as a folder's install.py imports it; it is only on the path of install.py."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPO_ROOT = Path(os.environ.get("CBS_TORCHBENCH_REPO", Path.cwd().parent))
TORCH_DEPS = ["numpy", "torch", "torchvision", "torchaudio"]


@contextmanager
def cwd(path: str) -> Iterator[None]:
    """Works in another directory inside a `with` block."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
