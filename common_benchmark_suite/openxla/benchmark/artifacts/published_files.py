"""Files of publications: their digests, and second names for them."""

import hashlib
import os
import shutil
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Returns the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link(source: Path, target: Path) -> None:
    """Gives a file a second name, or copies it where that can not be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
