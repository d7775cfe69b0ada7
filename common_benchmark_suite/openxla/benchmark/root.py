"""Locations of checkpoints, artifacts and lock files on this machine."""

import os
from pathlib import Path

ROOT_DIR_VARIABLE = "CBS_ROOT_DIR"
LOCKS_DIR_VARIABLE = "CBS_LOCKS_DIR"


def checkout() -> Path | None:
    """Returns the checkout that contains the suite; None if it is an installed package."""
    found = Path(__file__).resolve().parents[3]
    is_one = (found / "pyproject.toml").is_file() and (found / "common_benchmark_suite").is_dir()
    return found if is_one else None


def root_dir() -> Path:
    """Returns the local artifact root.

    This is `$CBS_ROOT_DIR` if set; `artifacts/root` of the checkout if the suite runs from one;
    else a folder in the user's cache.
    """
    if configured := os.environ.get(ROOT_DIR_VARIABLE):
        return Path(configured).expanduser().absolute()
    if (own := checkout()) is not None:
        return own / "artifacts" / "root"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "common-benchmark-suite"


def locks_dir() -> Path:
    """Returns the directory of the lock files.

    This is `$CBS_LOCKS_DIR` if set, else `artifacts/locks` of the checkout, which does not exist
    for an installed package.
    """
    if configured := os.environ.get(LOCKS_DIR_VARIABLE):
        return Path(configured).expanduser().absolute()
    return Path(__file__).resolve().parents[3] / "artifacts" / "locks"


def set_root(root: Path | None) -> None:
    """Sets the artifact root of this process and its workers, unless it is None."""
    if root is not None:
        os.environ[ROOT_DIR_VARIABLE] = str(root.absolute())
