#!/usr/bin/env python3
"""Writes the locked requirements of each backend from the environment it runs in.

One environment contains all backends, so the locks agree with each other. Install the extras of
pyproject.toml in the required versions, run this script, then run the tests. Local version labels
(`+cpu`) are omitted, so that each machine can install a suitable build. The packages of recipes and
of the documentation site are in separate folders (`pip install --target .recipes.venv`). Their
locks contain only packages that are not in the locks below them.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from comparative_benchmark.backends.api import backends

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "common-benchmark-suite"
LOCKS = {
    **{
        f"comparative_benchmark/{name}/requirements.txt": list(info.extras)
        for name, info in backends().items()
        if info.extras
    },
    "requirements/dev.txt": ["dev"],
    "requirements/gcs.txt": ["gcs"],
}
# Only builds of torch with CUDA need them, and a lock must fit all builds.
_OF_CUDA = ("nvidia-", "cuda-", "triton")
# Extra -> the locks that its environment already has.
ON_TOP_OF = {"recipes": list(LOCKS), "docs": ["requirements/dev.txt"]}


def closure(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Returns names and installed versions of requirements and their dependencies."""
    found: dict[str, str] = {}
    waiting = list(requirements)
    seen = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        dist = distribution(requirement.name)
        # Each requirement of a package may have another specifier.
        if not requirement.specifier.contains(dist.version, prereleases=True):
            raise SystemExit(f"{requirement} is required, but {dist.version} is installed")
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = Version(dist.version).public
        waiting += applicable(dist.requires or [], requirement.extras)
    return found


def applicable(texts: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """Returns the requirements whose markers apply here with the given extras."""
    return [
        requirement
        for requirement in map(Requirement, texts)
        if not requirement.name.startswith(_OF_CUDA)
        and (
            requirement.marker is None
            or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        )
    ]


def main() -> int:
    """Writes all locks; with `--check`, only reports whether they are up to date."""
    sys.path += [str(ROOT / f".{extra}.venv") for extra in ON_TOP_OF]
    locks = {name: locked(extras) for name, extras in LOCKS.items()}
    for extra, others in ON_TOP_OF.items():
        there = {package for name in others for package in locks[name]}
        packages = locked([extra])
        locks[f"requirements/{extra}.txt"] = {n: packages[n] for n in packages.keys() - there}
    stale = []
    for name, packages in locks.items():
        lines = [f"{package}=={packages[package]}" for package in sorted(packages)]
        extras = ", ".join(LOCKS.get(name, ["what this extra needs on top"]))
        text = "\n".join([f"# {extras}; written by scripts/lock.py", *lines, ""])
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{len(locks)} locks, {'stale' if '--check' in sys.argv else 'rewritten'}: {stale}")
    return 1 if stale and "--check" in sys.argv else 0


def locked(extras: Iterable[str]) -> dict[str, str]:
    """Returns names and versions of the dependencies of extras, without the project itself."""
    packages = closure([Requirement(f"{PROJECT}[{','.join(extras)}]")])
    packages.pop(PROJECT)
    return packages


if __name__ == "__main__":
    sys.exit(main())
