"""`milabench.utils` as benchfiles import it."""

from collections.abc import Mapping, Sequence
from typing import Any

from .merge import merge as merge  # noqa: PLC0414  # benchfiles import it from here


def assemble_options(options: Any) -> "list[str]":
    """Returns the command line of an `argv`, which the suite has checked."""
    if not isinstance(options, Mapping):
        return [str(item) for item in options or ()]
    words: list[str] = []
    last: list[str] = []
    for name, value in options.items():
        if name == "--":
            last = [str(item) for item in (value if isinstance(value, list) else [value])]
        elif value is True:
            words.append(name)
        elif value is False:
            raise ValueError(
                f"{name} is false; use `null` to drop an option, or `true` to make it a flag"
            )
        elif isinstance(value, list):
            words += [name, ",".join(map(str, value))]
        elif value is not None:
            words += [name, str(value)]
    return words + last


def select_nodes(nodes: Sequence[Mapping[str, Any]], n: int) -> "list[Mapping[str, Any]]":
    """Returns at most n machines, the main one first."""
    ranked = sorted(nodes, key=lambda node: not node.get("main", False))
    return ranked[: max(1, n)]


def get_available_capabilities() -> "dict[str, Any]":
    """Returns nothing: one machine is all there is."""
    return {}
