"""Features of nodes, and requirements on them in ReFrame's language."""

import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.errors import UsageError

_NAME = r"\w[\w.:/-]*"
_TERM = re.compile(rf"(?P<sign>[+-])(?P<feature>{_NAME})|%(?P<name>{_NAME})=(?P<value>\S+)")
# Features that processors report under other names.
_CPU_FLAGS = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "amx_tile": "amx",
    "asimd": "neon",
    "sve": "sve",
}


@attrs.frozen(kw_only=True)
class Node:
    """A machine of a fleet.

    Attributes:
      name: name in the scheduler, or host name.
      features: names without values, e.g. `avx512`; every node has `cpu` or `gpu`, or both.
      properties: names with values, e.g. `device` and `a100`; ReFrame calls them extras.
      partitions: partitions of the scheduler that contain it; None for a scheduler without any.
      up: whether jobs can start there, now or after other jobs.
      problem: why it cannot be reached, if the engine reports it.
    """

    name: str
    features: frozenset[str] = frozenset()
    properties: Mapping[str, str] = attrs.field(factory=dict)
    partitions: frozenset[str] | None = None
    up: bool = True
    problem: str = ""


@attrs.frozen
class Requirement:
    """Conditions that a node must meet.

    Attributes:
      text: the requirement as written.
      present: features that a node must have.
      absent: features that a node must not have.
      properties: properties that a node must have, with their values.
    """

    text: str
    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    properties: tuple[tuple[str, str], ...] = ()

    def is_met_by(self, node: Node) -> bool:
        """Returns whether a node meets all conditions."""
        return (
            self.present <= node.features
            and not self.absent & node.features
            and all(node.properties.get(name) == value for name, value in self.properties)
        )


def parse_requirement(text: str) -> Requirement:
    """Parses a requirement such as `+cpu +avx512 -smt %device=a100`.

    Conditions are separated by spaces, and all of them must hold (ReFrame's `valid_systems`).

    Raises:
      UsageError: a condition has another form, or two conditions contradict each other.
    """
    present: set[str] = set()
    absent: set[str] = set()
    properties: dict[str, str] = {}
    for word in text.split():
        term = _TERM.fullmatch(word)
        if term is None:
            raise UsageError(f"invalid {word!r}; expected +FEATURE, -FEATURE or %NAME=VALUE")
        if term["name"]:
            name, value = term["name"], term["value"]
            if properties.setdefault(name, value) != value:
                raise UsageError(f"{name} has conflicting values, {properties[name]} and {value}")
        else:
            (present if term["sign"] == "+" else absent).add(term["feature"])
    if both := present & absent:
        raise UsageError(f"{min(both)} is both required and excluded")
    return Requirement(text, frozenset(present), frozenset(absent), tuple(properties.items()))


def eligible(nodes: Sequence[Node], requirements: Sequence[Requirement]) -> list[Node]:
    """Returns the nodes that meet any of the requirements; all nodes without requirements."""
    return [
        node for node in nodes if not requirements or any(r.is_met_by(node) for r in requirements)
    ]


def this_node(root: Path = Path("/")) -> Node:
    """Returns this machine with its processor's features.

    Args:
      root: directory that contains `proc`, `sys` and `dev`.
    """
    features = {"cpu"}
    flags = _cpu_flags(root)
    features.update(name for flag, name in _CPU_FLAGS.items() if flag in flags)
    if _read(root / "sys/devices/system/cpu/smt/active") == "1":
        features.add("smt")
    if any((root / "dev").glob("nvidia[0-9]*")):
        features |= {"gpu", "nvidia"}
    elif (root / "dev/kfd").exists():
        features |= {"gpu", "amd"}
    return Node(
        name=platform.node(), features=frozenset(features), properties={"arch": platform.machine()}
    )


def _cpu_flags(root: Path) -> frozenset[str]:
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(value.split())
    return frozenset()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
