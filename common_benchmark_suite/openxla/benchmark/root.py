"""Where checkpoints and artifacts live on this machine."""

import os
from pathlib import Path

ROOT_DIR_VARIABLE = "CBS_ROOT_DIR"


def root_dir() -> Path:
    """Returns the local artifact root.

    `$CBS_ROOT_DIR` if set; `artifacts/root` of the checkout when the suite runs from one; else a
    folder in the user's cache.
    """
    if configured := os.environ.get(ROOT_DIR_VARIABLE):
        return Path(configured).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file() and (checkout / "common_benchmark_suite").is_dir():
        return checkout / "artifacts" / "root"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "common-benchmark-suite"
