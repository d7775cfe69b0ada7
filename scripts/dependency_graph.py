#!/usr/bin/env python3
"""Prints cycles and upward imports between packages; exits with code 1 if there are any.

A package is a module or folder directly under `comparative_benchmark` or `openxla.benchmark`. The
import contract in pyproject.toml defines the layers. `--all` prints every pair of packages, with
the number of imports.
"""

import argparse
import tomllib
from collections import Counter
from pathlib import Path

import grimp

ROOTS = ("comparative_benchmark", "openxla.benchmark")
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def package_of(module: str) -> str | None:
    """Returns the package of a module; None for the roots and for other projects' modules."""
    for root in ROOTS:
        if module.startswith(f"{root}."):
            return f"{root}.{module.removeprefix(f'{root}.').partition('.')[0]}"
    return None


def imports() -> Counter[tuple[str, str]]:
    """Returns the number of imports between each pair of packages."""
    graph = grimp.build_graph(*ROOTS)
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            ends = package_of(importer), package_of(imported)
            if ends[0] and ends[1] and ends[0] != ends[1]:
                found[ends[0], ends[1]] += 1
    return found


def layers_of_contract() -> dict[str, int]:
    """Returns the layer of each package in the import contract; the lowest is 0."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    names = [layer.replace("|", " ").replace(":", " ").split() for layer in layers]
    return {
        package: layer for layer, packages in enumerate(reversed(names)) for package in packages
    }


def cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Returns the groups of packages in a cycle (Tarjan's strongly connected components)."""
    after: dict[str, list[str]] = {}
    for importer, imported in sorted(edges):
        after.setdefault(importer, []).append(imported)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(package: str) -> None:
        order[package] = low[package] = len(order)
        stack.append(package)
        for other in after.get(package, []):
            if other not in order:
                visit(other)
            if other in stack:
                low[package] = min(low[package], low[other])
        if low[package] == order[package]:
            part = [stack.pop()]
            while part[-1] != package:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for package in sorted(after):
        if package not in order:
            visit(package)
    return found


def main() -> int:
    """Prints the findings; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="print all imports between packages")
    options = parser.parse_args()
    found, layer = imports(), layers_of_contract()
    if options.all:
        for (importer, imported), count in sorted(found.items()):
            print(f"{importer} -> {imported}: {count}")
    packages = {package for ends in found for package in ends}
    upward = [
        f"{importer} -> {imported}"
        for importer, imported in sorted(found)
        if layer.get(importer, 0) <= layer.get(imported, 0)
    ]
    parts = cycles(set(found))
    print(f"{len(packages)} packages in {max(layer.values()) + 1} layers, {len(found)} imports")
    print(f"cycles: {len(parts)}", *(" <-> ".join(part) for part in parts), sep="\n  ")
    print(f"upward imports: {len(upward)}", *upward, sep="\n  ")
    missing = sorted(packages - set(layer))
    print(f"packages without a layer: {len(missing)}", *missing, sep="\n  ")
    return 1 if parts or upward or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
