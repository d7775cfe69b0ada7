"""Templates of new benchmarks, and shell functions for the commands of milabench's guide."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.milabench.config import Bench
from comparative_benchmark.interop.milabench.phases import not_installed
from comparative_benchmark.interop.milabench.workspace import Placement
from openxla.benchmark.files import new_directory

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_STEM = "{{STEM}}"
_PACKAGED = Path(__file__).with_name("template_files")
_IN_THE_TREE = Path(__file__).parents[3] / "benchmarks" / "_template"


def shell(benches: Sequence[Bench], base: Path, command: str | None) -> int:
    """Runs the user's shell, or a command in it; returns its exit code.

    Raises:
      UsageError: more than one benchmark is selected, or it is not installed.
    """
    if len({bench.folder for bench in benches}) > 1:
        names = ", ".join(bench.name for bench in benches)
        raise UsageError(f"dev requires a single benchmark; choose one with --select: {names}")
    placement = Placement(base=base, bench=benches[0], run_name="dev")
    if problem := not_installed(placement):
        raise UsageError(problem)
    placement.make_folders()
    env = placement.shell_environment()
    program = os.environ.get("SHELL") or "/bin/sh"
    if sys.stdin.isatty() and command is None:
        print(f"environment for {benches[0].name} (`exit` to leave); try `voir --dash main.py`")
    sys.stdout.flush()
    arguments = ["-c", command] if command is not None else []
    return subprocess.run(
        [program, *arguments], cwd=benches[0].folder, env=env, check=False
    ).returncode


def write(name: str, directory: Path) -> Iterator[str]:
    """Creates a benchmark from the suite's template, as `cp-template` does; yields lines to print.

    Raises:
      UsageError: the name is invalid or taken, or the files cannot be written.
    """
    _check_name(name)
    target = directory / name
    if target.exists():
        raise UsageError(f"{target} already exists; choose another name or --directory")
    yield from _copy(_own_template(), target, name)


def copy(source: Path, target: Path) -> Iterator[str]:
    """Copies a template, as the command `cp-template` does; yields lines to print.

    If `_template` does not exist, the suite's own template is used, so that the guide's command
    works in any folder.

    Raises:
      UsageError: the template is not a folder; or the target exists, cannot be written, or ends in
        an invalid name.
    """
    _check_name(target.name)
    if target.exists():
        raise UsageError(f"{target} already exists; choose another name")
    if not source.is_dir():
        if source.name != _IN_THE_TREE.name:
            raise UsageError(
                f"{source} is not a folder; copy {_IN_THE_TREE.parent.name}/{_IN_THE_TREE.name}"
            )
        source = _own_template()
    if target.absolute().is_relative_to(source.absolute()):
        raise UsageError(f"{target} is inside the template; choose another folder")
    yield from _copy(source, target, target.name)


def _own_template() -> Path:
    return _PACKAGED if _PACKAGED.is_dir() else _IN_THE_TREE


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid benchmark name {name!r}; use letters, digits, _ . and -, and begin with a "
            "letter"
        )


def _copy(source: Path, target: Path, name: str) -> Iterator[str]:
    try:
        with new_directory(target) as directory:
            for path in sorted(source.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    written = directory / str(path.relative_to(source)).replace(_STEM, name)
                    written.parent.mkdir(parents=True, exist_ok=True)
                    # Copy bytes, because a template may contain images.
                    written.write_bytes(path.read_bytes().replace(_STEM.encode(), name.encode()))
                    shutil.copymode(path, written)
            if (script := directory / "prepare.py").is_file():
                # `prepare` executes this file, but a wheel may have lost its mode.
                script.chmod(0o755)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error}") from error
    for path in sorted(target.iterdir()):
        yield f"wrote {path}"
    config = target / "dev.yaml"
    for action in ("install", "prepare", "run") if config.is_file() else ():
        yield f"cbs bench {action} --config {config}"


def shim() -> str:
    """Returns shell definitions that make `milabench ...` run `cbs bench ...` in that shell.

    They define `cp-template` unless it is installed, in bash and zsh only: other shells do not
    allow `-` in names of functions.
    """
    command = shlex.join([sys.executable, "-P", "-m", "comparative_benchmark", "bench"])
    copying = shlex.quote(f'cp-template() {{ {command} cp-template "$@"; }}')
    is_ours = "! command -v cp-template >/dev/null 2>&1"
    return (
        f'milabench() {{ {command} "$@"; }}\n'
        f'if [ -n "${{BASH_VERSION-}}${{ZSH_VERSION-}}" ] && {is_ours}; then eval {copying}; fi'
    )
