#!/usr/bin/env python3
"""Writes the locked requirements of each backend from the environment it runs in.

One environment holds all backends, so the locks agree with each other: install the extras of
pyproject.toml in the wanted versions, run the tests, then run this. Local version labels (`+cpu`)
are left out, so that each machine may take the build that suits it.
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


def closure(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Returns name and installed version of the requirements and all that they require."""
    found: dict[str, str] = {}
    waiting = list(requirements)
    seen = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        dist = distribution(requirement.name)
        if not requirement.specifier.contains(dist.version, prereleases=True):
            raise SystemExit(f"{requirement} is required, {dist.version} is installed")
        found[key[0]] = Version(dist.version).public
        waiting += applicable(dist.requires or [], requirement.extras)
    return found


def applicable(texts: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """Returns the requirements that hold here under the given extras."""
    requirements = map(Requirement, texts)
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def main() -> int:
    """Writes all locks; with `--check`, only tells whether they are up to date."""
    stale = []
    for name, extras in LOCKS.items():
        packages = closure([Requirement(f"{PROJECT}[{','.join(extras)}]")])
        packages.pop(PROJECT)
        lines = [f"{package}=={packages[package]}" for package in sorted(packages)]
        text = "\n".join([f"# {', '.join(extras)}; written by scripts/lock.py", *lines, ""])
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{len(LOCKS)} locks, {'stale' if '--check' in sys.argv else 'rewritten'}: {stale}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
