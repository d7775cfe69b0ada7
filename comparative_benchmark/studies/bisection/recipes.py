"""Contents of a candidate's environment: the backend's requirements with changed versions."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from comparative_benchmark.engine.trial import Competitor
from comparative_benchmark.errors import UsageError
from comparative_benchmark.studies.bisection.commits import Repository
from comparative_benchmark.studies.bisection.environments import Recipe
from comparative_benchmark.studies.bisection.oracle import Candidate
from comparative_benchmark.studies.bisection.releases import (
    COMPANIONS,
    Installer,
    names_in,
    requirements_for,
)


class Recipes:
    """Returns the recipe of a candidate when called with it."""

    def __init__(
        self,
        *,
        package: str | None,
        lock: str,
        companions: Mapping[str, str | None],
        installer: Installer,
        repository: Repository | None = None,
    ) -> None:
        """Stores what all recipes share.

        Args:
          package: the bisected package; with a repository, the package that its build installs.
          lock: text of the requirements.
          companions: packages to change in lockstep, with a version if it is fixed.
          installer: provides the available versions.
          repository: builds commits.
        """
        self._package = package
        self._lock = lock
        self._companions = companions
        self._installer = installer
        self._repository = repository
        self._offered: dict[str, set[str]] = {}

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
            self._offered[package] = set(self._installer.versions(package, prereleases=True))
        return version in self._offered[package]


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
    """Returns the given requirements, or else those of the competitors' backend.

    Raises:
      UsageError: there are several backends, or the requirements are missing or unreadable.
    """
    backends = {competitor.backend.name: competitor.backend for competitor in competitors}
    if len(backends) != 1:
        raise UsageError(f"--backend names {len(backends)} backends; expected one")
    [backend] = backends.values()
    path = requirements or _beside(backend.implementation)
    if path is None:
        raise UsageError(
            f"backend {backend.name} has no requirements.txt; list the packages of its "
            "environments with --requirements FILE"
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--requirements {path} cannot be read: {error}") from error


def _beside(implementation: str) -> Path | None:
    """Returns the requirements file in the package of a backend, without importing it."""
    package = implementation.partition(":")[0].rpartition(".")[0]
    found = importlib.util.find_spec(package) if package else None
    folders = (found.submodule_search_locations or []) if found else []
    files = (Path(folder) / "requirements.txt" for folder in folders)
    return next((file for file in files if file.is_file()), None)
