"""The commands of documents, and a copy of the checkout to run them in."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shell_blocks(document: str) -> list[str]:
    """Returns the shell blocks of a document or of a part of one."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return blocks(text, "sh")


def blocks(text: str, language: str) -> list[str]:
    """Returns the blocks of a text in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_bash(
    script: str, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a script that ends at the first command that fails."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def copy_checkout(target: Path) -> None:
    """Copies all files of the checkout that Git does not ignore, as they stand."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
