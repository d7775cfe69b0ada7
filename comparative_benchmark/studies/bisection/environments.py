"""A pool with one Python environment per candidate, and what each environment contains.

The pool creates environments on demand and is limited in size. A recipe is the backend's
requirements with changed versions. An environment is a folder with `venv/`, for a commit also
`source/`, and `environment.json`. That file is written last: a folder without it is incomplete and
is created again.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
from packaging.utils import canonicalize_name, canonicalize_version

from comparative_benchmark.engine import session
from comparative_benchmark.engine.settings import (
    Environment,
    UnusableEnvironmentError,
    parse_environments,
)
from comparative_benchmark.engine.trial import Competitor
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.results_file import write_atomically
from comparative_benchmark.studies.bisection.candidates import (
    COMPANIONS,
    Installer,
    Repository,
    names_in,
    requirements_for,
)
from comparative_benchmark.studies.bisection.search import BisectError, Candidate, UnjudgeableError

_STAMP = "environment.json"
_PATIENCE_S = 300.0


@attrs.frozen(kw_only=True)
class Recipe:
    """Contents of an environment.

    Attributes:
      candidate: the release or commit to install.
      requirements: lines of a requirements file.
      repository: builds the candidate; None for a release.
    """

    candidate: Candidate
    requirements: tuple[str, ...]
    repository: Repository | None = None

    def fingerprint(self, python: str) -> str:
        """Returns a digest of the contents; an environment is reused while it stays the same."""
        parts = [python, self.candidate.name, *self.requirements]
        if self.repository is not None:
            parts += [str(self.repository.path), self.repository.build]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@attrs.frozen
class EnvironmentPool:
    """Environments of candidates, in a folder: at most `keep`, but at least 2."""

    _folder: Path
    _installer: Installer
    _log_dir: Path = attrs.field(kw_only=True)
    _python: str = attrs.field(default=sys.executable, kw_only=True)
    _keep: int = attrs.field(default=4, kw_only=True)
    _say: Callable[[str], None] = attrs.field(default=lambda _: None, kw_only=True)

    def get(self, recipe: Recipe, *, beside: Sequence[str] = ()) -> Environment:
        """Returns the environment for a recipe, creating it if necessary.

        Args:
          recipe: its contents.
          beside: names of other environments in use, which must not be removed.

        Raises:
          UnjudgeableError: it cannot be created; partial results have been removed.
          BisectError: no environment can be created on this machine.
        """
        name = recipe.candidate.environment_name
        folder = self._folder / name
        stamp = folder / _STAMP
        wanted = recipe.fingerprint(self._python)
        if _read(stamp) != wanted:
            self._remove(folder, recipe.repository)
            self._say(f"creating the environment for {recipe.candidate}")
            try:
                with session.during(name, "installing"):
                    self._make(recipe, folder)
            except BaseException:
                self._remove(folder, recipe.repository)
                raise
            write_atomically(stamp, {"fingerprint": wanted, "candidate": recipe.candidate.name})
        os.utime(stamp)
        self._evict({name, *beside}, recipe.repository)
        try:
            [environment] = parse_environments(f"{name}={folder / 'venv'}")
        except UnusableEnvironmentError as error:
            raise UnjudgeableError(str(error)) from error
        return environment

    def _make(self, recipe: Recipe, folder: Path) -> None:
        venv = folder / "venv"
        folder.mkdir(parents=True, exist_ok=True)
        self._make_venv(venv, with_pip=recipe.repository is not None)
        name = recipe.candidate.environment_name
        python = venv / "bin" / "python"
        if recipe.requirements:
            self._installer.install(
                python, recipe.requirements, self._log_dir / f"install-{name}.log"
            )
        if recipe.repository is not None:
            source = folder / "source"
            recipe.repository.check_out(recipe.candidate.name, source)
            recipe.repository.build_into(venv, source, self._log_dir / f"build-{name}.log")

    def _make_venv(self, venv: Path, *, with_pip: bool) -> None:
        # Installing pip takes seconds, and only build commands need it.
        options = [] if with_pip else ["--without-pip"]
        try:
            subprocess.run(
                [self._python, "-m", "venv", *options, str(venv)],
                capture_output=True,
                errors="replace",
                check=True,
                timeout=_PATIENCE_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            words = str(getattr(error, "stdout", "") or error).strip().splitlines()
            raise BisectError(
                f"cannot create a virtual environment with {self._python}: "
                f"{words[-1] if words else error}"
            ) from error

    def _evict(self, in_use: set[str], repository: Repository | None) -> None:
        """Removes the least recently used environments while there are too many."""
        stamps = sorted(self._folder.glob(f"*/{_STAMP}"), key=lambda path: path.stat().st_mtime)
        spare = [stamp.parent for stamp in stamps if stamp.parent.name not in in_use]
        for folder in spare[: max(0, len(stamps) - max(self._keep, 2))]:
            self._say(f"removing environment {folder.name} (at most {max(self._keep, 2)} are kept)")
            self._remove(folder, repository)

    def _remove(self, folder: Path, repository: Repository | None) -> None:
        (folder / _STAMP).unlink(missing_ok=True)
        if repository is not None and (folder / "source").exists():
            repository.remove(folder / "source")
        shutil.rmtree(folder, ignore_errors=True)


def _read(stamp: Path) -> str | None:
    try:
        return str(json.loads(stamp.read_text(encoding="utf-8"))["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@attrs.frozen(kw_only=True)
class Recipes:
    """Returns the recipe of a candidate when called with it.

    Attributes:
      package: the bisected package; with a repository, the package that its build installs.
      lock: text of the requirements.
      companions: packages to change in lockstep, with a version if it is fixed.
      installer: provides the available versions.
      repository: builds commits.
    """

    _package: str | None
    _lock: str
    _companions: Mapping[str, str | None]
    _installer: Installer
    _repository: Repository | None = None
    _offered: dict[str, set[str]] = attrs.field(factory=dict, init=False)

    def __call__(self, candidate: Candidate) -> Recipe:
        """Returns the contents of a candidate's environment."""
        if self._repository is None:
            lines = requirements_for(self._lock, self._pins(candidate))
        else:
            built = [self._package] if self._package else []
            pins = {name: version for name, version in self._companions.items() if version}
            lines = requirements_for(self._lock, pins, left_out=built)
        return Recipe(candidate=candidate, requirements=tuple(lines), repository=self._repository)

    def _pins(self, candidate: Candidate) -> dict[str, str | None]:
        assert self._package is not None
        pins: dict[str, str | None] = {self._package: candidate.name}
        for name, version in self._companions.items():
            # If a companion lacks that version, let the package's metadata choose one.
            pins[name] = version or (candidate.name if self._has(name, candidate.name) else None)
        return pins

    def _has(self, package: str, version: str) -> bool:
        if package not in self._offered:
            offered = self._installer.versions(package, prereleases=True)
            self._offered[package] = set(map(canonicalize_version, offered))
        return canonicalize_version(version) in self._offered[package]


def companions_of(
    package: str | None, companions: Sequence[str] | None, lock: str
) -> dict[str, str | None]:
    """Returns the packages to change in lockstep, with a version if it is fixed.

    Args:
      package: the package whose releases are bisected, if any.
      companions: packages as the user gave them, NAME or NAME==VERSION; None for the built-in ones.
      lock: requirements of the environments; built-in companions that it lacks are omitted.
    """
    if companions is not None:
        parts = (text.partition("==") for text in companions)
        return {name.strip(): version.strip() or None for name, _, version in parts}
    if package is None:
        return {}
    known = COMPANIONS.get(canonicalize_name(package), ())
    return {name: None for name in known if name in names_in(lock)}


def lock_of(requirements: Path | None, competitors: Sequence[Competitor]) -> str:
    """Returns the given requirements; by default, the requirements of the backend.

    Raises:
      UsageError: there are several backends, or the requirements are missing or unreadable.
    """
    backends = {competitor.backend.name: competitor.backend for competitor in competitors}
    if len(backends) != 1:
        raise UsageError(f"--backend selects {len(backends)} backends, expected one")
    [backend] = backends.values()
    path = requirements or _requirements_file(backend.implementation)
    if path is None:
        raise UsageError(
            f"backend {backend.name} has no requirements.txt; pass the packages to install with "
            "--requirements FILE"
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--requirements {path} cannot be read: {error}") from error


def _requirements_file(implementation: str) -> Path | None:
    """Returns the requirements file in the package of a backend, without importing it."""
    package = implementation.partition(":")[0].rpartition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    folders = (spec.submodule_search_locations or []) if spec else []
    files = (Path(folder) / "requirements.txt" for folder in folders)
    return next((file for file in files if file.is_file()), None)
