#!/usr/bin/env python3
"""Prints which room imports which: circles, and arrows that go up. Exits with 1 if there is one.

A room is a folder right under `comparative_benchmark`, or a module or folder right under
`openxla.benchmark`. The floors are those of the import contract in pyproject.toml; `--all` prints
every arrow with the number of its imports.
"""

import argparse
import tomllib
from collections import Counter
from pathlib import Path

import grimp

ROOTS = ("comparative_benchmark", "openxla.benchmark")
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def room_of(module: str) -> str | None:
    """Returns the room that a module is in; None for the roots themselves and what is foreign."""
    for root in ROOTS:
        if module.startswith(f"{root}."):
            return f"{root}.{module.removeprefix(f'{root}.').partition('.')[0]}"
    return None


def arrows() -> Counter[tuple[str, str]]:
    """Returns how many imports go from one room to another."""
    graph = grimp.build_graph(*ROOTS)
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            ends = room_of(importer), room_of(imported)
            if ends[0] and ends[1] and ends[0] != ends[1]:
                found[ends[0], ends[1]] += 1
    return found


def floors() -> dict[str, int]:
    """Returns the floor of each room by the import contract, the ground floor being 0."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    names = [layer.replace("|", " ").replace(":", " ").split() for layer in layers]
    return {room: floor for floor, rooms in enumerate(reversed(names)) for room in rooms}


def circles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Returns the groups of rooms that reach each other (Tarjan's strongly connected parts)."""
    after: dict[str, list[str]] = {}
    for importer, imported in sorted(edges):
        after.setdefault(importer, []).append(imported)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(room: str) -> None:
        order[room] = low[room] = len(order)
        stack.append(room)
        for other in after.get(room, []):
            if other not in order:
                visit(other)
            if other in stack:
                low[room] = min(low[room], low[other])
        if low[room] == order[room]:
            part = [stack.pop()]
            while part[-1] != room:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for room in sorted(after):
        if room not in order:
            visit(room)
    return found


def main() -> int:
    """Prints; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every import between packages")
    options = parser.parse_args()
    found, floor = arrows(), floors()
    if options.all:
        for (importer, imported), count in sorted(found.items()):
            print(f"{importer} -> {imported}: {count}")
    rooms = {room for ends in found for room in ends}
    upward = [
        f"{importer} -> {imported}"
        for importer, imported in sorted(found)
        if floor.get(importer, 0) <= floor.get(imported, 0)
    ]
    parts = circles(set(found))
    print(f"{len(rooms)} packages in {max(floor.values()) + 1} layers, {len(found)} imports")
    print(f"{len(parts)} cycles", *(" <-> ".join(part) for part in parts), sep="\n  ")
    print(f"{len(upward)} upward imports", *upward, sep="\n  ")
    missing = sorted(rooms - set(floor))
    print(f"{len(missing)} packages without a layer", *missing, sep="\n  ")
    return 1 if parts or upward or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
