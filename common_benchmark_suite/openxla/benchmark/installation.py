"""The installed suite: where its files are, and how to add extras from its original source.

The name is not registered in a package index. A command with only the name would install whatever a
stranger may register, so commands contain the origin: a checkout, or the origin recorded by pip
(PEP 610).
"""

import importlib.metadata
import json
import os
import shlex
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

ROOT_DIR_VARIABLE = "CBS_ROOT_DIR"
LOCKS_DIR_VARIABLE = "CBS_LOCKS_DIR"

PACKAGE = "common-benchmark-suite"


def checkout() -> Path | None:
    """Returns the checkout that contains the suite; None if it is an installed package."""
    root = Path(__file__).resolve().parents[3]
    is_one = (root / "pyproject.toml").is_file() and (root / "common_benchmark_suite").is_dir()
    return root if is_one else None


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


def install_command(extras: str) -> str:
    """Returns the command that adds extras, e.g. `gcs` or `pt-inductor,report`.

    Their names have hyphens: pip before 23.3 ignores an extra with underscores.
    """
    if checkout() is not None:
        return f"pip install -e '.[{extras}]'"
    return f"pip install {shlex.quote(requirement(extras) or f'{PACKAGE}[{extras}]')}"


def requirement(extras: str) -> str | None:
    """Returns the pip requirement for this revision on any machine; None if it is unknown.

    For a checkout it has the remote and commit, for a package the recorded origin.
    """
    origin = _of_checkout(root) if (root := checkout()) else _recorded()
    return f"{PACKAGE}[{extras}] @ {origin}" if origin else None


def _of_checkout(root: Path) -> str | None:
    remote = _git(root, "remote", "get-url", "origin")
    commit = _git(root, "rev-parse", "HEAD")
    if not remote or not commit or urllib.parse.urlsplit(remote).scheme not in ("https", "ssh"):
        return None
    # The origin is printed, so omit user name and password.
    parts = urllib.parse.urlsplit(remote)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme == "ssh":
        host = f"{parts.username}@{host}" if parts.username else host
    return f"git+{parts._replace(netloc=host).geturl()}@{commit}"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", root, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _recorded() -> str | None:
    """Returns the origin in `direct_url.json`, as a requirement."""
    try:
        text = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
        origin: dict[str, Any] = json.loads(text or "{}")
    except (importlib.metadata.PackageNotFoundError, json.JSONDecodeError):
        return None
    url = origin.get("url")
    if not isinstance(url, str):
        return None
    source = origin.get("vcs_info")
    if isinstance(source, dict):
        return f"{source.get('vcs', 'git')}+{url}@{source.get('commit_id', 'HEAD')}"
    return url
