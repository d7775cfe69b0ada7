"""Releases of a package as candidates: available versions, and requirements for each."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from comparative_benchmark.studies.bisection.oracle import BisectError, Candidate, UnjudgeableError

# Packages that are released together, under the same version.
COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "jax": ("jaxlib",),
    "jaxlib": ("jax",),
    "iree-base-compiler": ("iree-base-runtime",),
    "iree-base-runtime": ("iree-base-compiler",),
}
_PATIENCE_S = 300.0
_INSTALL_PATIENCE_S = 3600.0


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
    """Uses the pip of this interpreter, with the machine's own settings."""

    def versions(self, package: str, *, prereleases: bool) -> list[str]:
        """See `Installer`."""
        arguments = ["index", "versions", package, *(["--pre"] if prereleases else [])]
        asked = _pip([*arguments, "--json"])
        if asked.returncode and "no such option: --json" in asked.stderr:
            # pip before 25.1 has no JSON output.
            asked = _pip(arguments)
        if asked.returncode:
            raise BisectError(f"pip cannot list the versions of {package}: {_last(asked.stderr)}")
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
            raise UnjudgeableError(f"installation failed: {_last(done.stderr)} (log: {log_file})")


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
            f"--good {good} is not older than --bad {bad}; swap them, or choose other ends"
        )
    found: dict[Version, str] = {}
    for text in offered:
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        # `1.2+cpu` is a build of 1.2; the index chooses the build to install.
        found.setdefault(Version(version.public), version.public)
    for option, text, end in (("--good", good, first), ("--bad", bad, last)):
        if Version(end.public) not in found:
            near = ", ".join(found[v] for v in sorted(found)[-8:]) or "none"
            raise BisectError(
                f"{option} {text}: the package index has no {package} {text} for this Python; "
                f"newest versions: {near}"
            )
    between = [
        version
        for version in sorted(found)
        if Version(first.public) < version < Version(last.public)
        and (prereleases or not version.is_prerelease)
    ]
    return [Candidate(name=name) for name in (good, *(found[v] for v in between), bad)]


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
    for text in lock.splitlines():
        line = text.partition("#")[0].strip()
        if not line:
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise BisectError(f"malformed line {line!r} in the requirements: {error}") from error
        name = canonicalize_name(requirement.name)
        if name in without or name in wanted:
            continue
        lines.append(line)
    return [*lines, *(f"{name}=={version}" for name, version in wanted.items() if version)]


def names_in(lock: str) -> set[str]:
    """Returns the canonical names of the packages in a lock."""
    lines = (line.partition("#")[0].strip() for line in lock.splitlines())
    return {canonicalize_name(re.split(r"[^\w.-]", line)[0]) for line in lines if line}


def _version(option: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise BisectError(f"{option} {text!r} is not a version such as 0.10.2") from error


def _pip(
    arguments: Sequence[str], *, timeout_s: float = _PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    try:
        return subprocess.run(
            [*command, *arguments],
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
    if found := re.search(r"^Available versions: (.*)$", text, re.MULTILINE):
        return [version.strip() for version in found[1].split(",")]
    raise BisectError("cannot parse the output of `pip index versions`")


def _last(text: str) -> str:
    """Returns the most informative line: pip's last error, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1][:400]
