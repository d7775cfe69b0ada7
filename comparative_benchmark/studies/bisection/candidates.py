"""Releases of a package and Git commits as candidates: how they are listed and installed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from comparative_benchmark.analysis.machine.other_processes import run_supervised
from comparative_benchmark.studies.bisection.search import BisectError, Candidate, UnjudgeableError

# Packages that are released together, under the same version.
COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "jax": ("jaxlib",),
    "jaxlib": ("jax",),
    "iree-base-compiler": ("iree-base-runtime",),
    "iree-base-runtime": ("iree-base-compiler",),
}
_INDEX_PATIENCE_S = 300.0
_INSTALL_PATIENCE_S = 3600.0

_GIT_PATIENCE_S = 600.0


class Installer(Protocol):
    """Queries a package index, and installs from it."""

    def versions(self, package: str, *, prereleases: bool) -> list[str]:
        """Returns the versions that can be installed on this machine, in any order.

        Raises:
          BisectError: the index is unavailable, or does not have the package.
        """

    def install(self, python: Path, requirements: Sequence[str], log_file: Path) -> None:
        """Installs requirements into the environment of an interpreter.

        Raises:
          UnjudgeableError: the installation failed; the message is the installer's.
        """


class PipInstaller:
    """Uses the pip of this interpreter, with the machine's own settings.

    Args:
      python: interpreter for which to list releases; None for this one.
    """

    def __init__(self, python: str | None = None) -> None:
        self._target = ["--python", shutil.which(python) or python] if python else []

    def versions(self, package: str, *, prereleases: bool) -> list[str]:
        """See `Installer`."""
        arguments = ["index", "versions", package, *(["--pre"] if prereleases else [])]
        asked = _pip([*arguments, "--json"], target=self._target)
        if asked.returncode and "no such option: --json" in asked.stderr:
            # pip before 25.1 has no JSON output.
            asked = _pip(arguments, target=self._target)
        if asked.returncode:
            raise BisectError(f"pip cannot list the versions of {package}: {_error(asked.stderr)}")
        return _parse_versions(asked.stdout)

    def install(self, python: Path, requirements: Sequence[str], log_file: Path) -> None:
        """See `Installer`."""
        wanted = log_file.with_suffix(".txt")
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.write_text("".join(f"{line}\n" for line in requirements), encoding="utf-8")
        try:
            done = _pip(
                ["--python", str(python), "install", "--requirement", str(wanted)],
                timeout_s=_INSTALL_PATIENCE_S,
            )
        except BisectError as error:
            raise UnjudgeableError(str(error)) from error
        log_file.write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise UnjudgeableError(f"installation failed: {_error(done.stderr)} (log: {log_file})")


def releases_between(
    package: str, good: str, bad: str, offered: Iterable[str], *, prereleases: bool = False
) -> list[Candidate]:
    """Returns the releases from the good to the bad one, oldest first.

    Args:
      package: its name, for messages.
      good: the older end, as the user typed it.
      bad: the newer end.
      offered: versions in the index; those that do not follow PEP 440 are ignored.
      prereleases: include pre-releases between the ends.

    Raises:
      BisectError: an end is not a version or not available, or the ends are in the wrong order.
    """
    first, last = _version("--good", good), _version("--bad", bad)
    if not first < last:
        raise BisectError(
            f"--good {good} is not older than --bad {bad}; swap them or choose other versions"
        )
    releases: dict[Version, str] = {}
    for text in offered:
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        # `1.2+cpu` is a build of 1.2; the index chooses the build to install.
        releases.setdefault(Version(version.public), version.public)
    for option, text, end in (("--good", good, first), ("--bad", bad, last)):
        if Version(end.public) not in releases:
            near = ", ".join(releases[v] for v in sorted(releases)[-8:]) or "none"
            raise BisectError(
                f"{option} {text}: the package index has no {package} {text} for this Python; "
                f"newest versions: {near}"
            )
    between = [
        version
        for version in sorted(releases)
        if Version(first.public) < version < Version(last.public)
        and (prereleases or not version.is_prerelease)
    ]
    return [Candidate(name=name) for name in (good, *(releases[v] for v in between), bad)]


def requirements_for(
    lock: str, pins: Mapping[str, str | None], *, left_out: Iterable[str] = ()
) -> list[str]:
    """Returns the lines of a lock with other versions of some packages.

    Args:
      lock: text of a requirements file.
      pins: versions by package; None to let the requirements of other packages decide.
      left_out: packages to omit because they are installed otherwise.

    Raises:
      BisectError: a line is not a requirement.
    """
    wanted = {canonicalize_name(name): version for name, version in pins.items()}
    without = {canonicalize_name(name) for name in left_out}
    lines = []
    extras: dict[str, str] = {}
    for text in lock.splitlines():
        line = text.partition("#")[0].strip()
        if not line:
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise BisectError(f"malformed line {line!r} in the requirements: {error}") from error
        name = canonicalize_name(requirement.name)
        if name in wanted and requirement.extras:
            extras[name] = f"[{','.join(sorted(requirement.extras))}]"
        if name not in without and name not in wanted:
            lines.append(line)
    pinned = (f"{name}{extras.get(name, '')}=={v}" for name, v in wanted.items() if v)
    return [*lines, *pinned]


def names_in(lock: str) -> set[str]:
    """Returns the canonical names of the packages in a lock."""
    lines = (line.partition("#")[0].strip() for line in lock.splitlines())
    return {canonicalize_name(re.split(r"[^\w.-]", line)[0]) for line in lines if line}


def _version(option: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise BisectError(f"{option} {text!r} is not a version; expected e.g. 0.10.2") from error


def _pip(
    arguments: Sequence[str],
    *,
    target: Sequence[str] = (),
    timeout_s: float = _INDEX_PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    try:
        return subprocess.run(
            [*command, *target, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            # Disable colours and progress bars in logs.
            env={**os.environ, "NO_COLOR": "1", "PIP_PROGRESS_BAR": "off"},
        )
    except subprocess.TimeoutExpired as error:
        raise BisectError(f"pip {arguments[0]} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise BisectError(f"cannot start pip: {error}") from error


def _parse_versions(text: str) -> list[str]:
    try:
        return [str(version) for version in json.loads(text)["versions"]]
    except (ValueError, KeyError, TypeError):
        pass
    if match := re.search(r"^Available versions: (.*)$", text, re.MULTILINE):
        return [version.strip() for version in match[1].split(",")]
    raise BisectError("cannot parse the output of `pip index versions`")


def _error(text: str) -> str:
    """Returns the most informative line: pip's last error, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1][:400]


@attrs.frozen(kw_only=True)
class Repository:
    """A local git repository; commits are checked out into worktrees, not in place.

    Attributes:
      path: the repository, bare or not.
      build: shell command that installs a commit into the environment; it runs in the worktree,
        with `python` and `pip` of that environment first on the path.
      timeout_s: time limit for the build command.
    """

    path: Path
    build: str
    timeout_s: float = 3600.0

    def commits_between(self, good: str, bad: str) -> list[Candidate]:
        """Returns the commits from the good to the bad one, along first parents, oldest first.

        A merge counts as one commit, because the main line was never built at the merged commits.

        Raises:
          BisectError: an end is not a commit, or the good one is not an ancestor of the bad one.
        """
        first, last = self._commit("--good", good), self._commit("--bad", bad)
        if first == last:
            raise BisectError(f"--good {good} and --bad {bad} are the same commit")
        if self._git("merge-base", "--is-ancestor", first, last).returncode:
            raise BisectError(f"--good {good} must be an ancestor of --bad {bad}")
        listed = self._git(
            *("log", "--first-parent", "--reverse", "--format=%H%x09%cs %s", f"{first}..{last}")
        )
        if listed.returncode:
            raise BisectError(f"git log failed: {listed.stderr.strip()}")
        # A subject may contain other line separators.
        rows = [line.split("\t", 1) for line in listed.stdout.split("\n") if line]
        later = [Candidate(name=row[0], detail=row[1][:80], is_commit=True) for row in rows]
        return [Candidate(name=first, is_commit=True), *later]

    def check_out(self, commit: str, folder: Path) -> None:
        """Creates a worktree of a commit.

        Raises:
          UnjudgeableError: git fails.
        """
        # A worktree removed by hand is still registered.
        self._git("worktree", "prune")
        added = self._git("worktree", "add", "--detach", "--force", str(folder), commit)
        if added.returncode:
            raise UnjudgeableError(f"git worktree add failed: {added.stderr.strip()}")

    def remove(self, folder: Path) -> None:
        """Removes a worktree that `check_out` created."""
        self._git("worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        self._git("worktree", "prune")

    def build_into(self, venv: Path, source: Path, log_file: Path) -> None:
        """Runs the build command.

        Raises:
          UnjudgeableError: it failed or timed out; its processes have been killed.
        """
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        variables |= {
            "VIRTUAL_ENV": str(venv),
            "PATH": os.pathsep.join([str(venv / "bin"), variables.get("PATH", os.defpath)]),
            "PYTHON": str(venv / "bin" / "python"),
        }
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("w", encoding="utf-8") as log:
            code = run_supervised(
                ["sh", "-euc", self.build],
                env=variables,
                timeout_s=self.timeout_s,
                cwd=source,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if code is None:
            reason = f"the build took longer than {self.timeout_s:g} s"
            raise UnjudgeableError(f"{reason} (log: {log_file})")
        if code:
            lines = log_file.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "no output")
            raise UnjudgeableError(f"the build failed: {last.strip()[:300]} (log: {log_file})")

    def _commit(self, option: str, name: str) -> str:
        if name.startswith("-"):
            raise BisectError(f"{option} {name!r} is not a commit")
        asked = self._git("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        if asked.returncode:
            known = self._git("rev-parse", "--git-dir")
            if known.returncode:
                said = known.stderr.strip()
                raise BisectError(f"--git {self.path} is not a git repository: {said}")
            raise BisectError(f"{option} {name}: no such commit in {self.path}; fetch it first")
        return asked.stdout.strip()

    def _git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["git", "-C", str(self.path), *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_GIT_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BisectError(f"cannot run git: {error}") from error
