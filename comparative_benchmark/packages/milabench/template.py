"""Files of a new benchmark, and the word `milabench` for a shell."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.terminal.options import UsageError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PACKAGED = Path(__file__).with_name("template_files")
_IN_THE_TREE = Path(__file__).parents[3] / "benchmarks" / "_template"


def write(name: str, directory: Path) -> Iterator[str]:
    """Writes a new benchmark, as `cp-template` does of `benchmarks/_template`; yields what to say.

    Raises:
      UsageError: the name cannot be that of a benchmark, or there is one, or it cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid benchmark name {name!r}; use letters, digits, _ . and -, and begin with a "
            "letter"
        )
    target = directory / name
    if target.exists():
        raise UsageError(f"{target} already exists; choose another name or --directory")
    source = _PACKAGED if _PACKAGED.is_dir() else _IN_THE_TREE
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        for path in target.iterdir():
            path.write_text(
                path.read_text(encoding="utf-8").replace("{{STEM}}", name), encoding="utf-8"
            )
        # A wheel may have lost it, and `prepare` executes the file.
        (target / "prepare.py").chmod(0o755)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error}") from error
    for path in sorted(target.iterdir()):
        yield f"wrote {path}"
    config = target / "dev.yaml"
    for action in ("install", "prepare", "run"):
        yield f"cbs bench {action} --config {config}"


def shim() -> str:
    """Returns a definition for a shell: `milabench ...` is `cbs bench ...` there, nowhere else."""
    command = shlex.join([sys.executable, "-P", "-m", "comparative_benchmark", "bench"])
    return f'milabench() {{ {command} "$@"; }}'
