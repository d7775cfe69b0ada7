"""What an install.py of a folder imports as `utils`: on its path, and on no other."""

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
