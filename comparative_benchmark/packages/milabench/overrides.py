"""What the command line, and the description of a system, say over a configuration."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.terminal.options import UsageError
from comparative_benchmark.terminal.yaml_file import YamlFile, scalar
from openxla.benchmark.nearest import choices

# `NAME.KEY.KEY=VALUE`, or `*.KEY=VALUE` for all benchmarks.
_TEXT = re.compile(r"(\*|[\w+-]+)\.([^=\s]+)=(.*)", re.DOTALL)
_OF_A_SYSTEM = (
    *("arch", "sshkey", "nodes", "gpu", "docker", "docker_image", "options", "self"),
    "cloud_profiles",
)
# What else such a file may have: runs with other settings, which are not made here.
_BESIDE_A_SYSTEM = ("multirun",)


@attrs.frozen(kw_only=True)
class Override:
    """Fields that go over those of an entry.

    Attributes:
      name: of the entry; `*` for all benchmarks.
      place: where it stands, for messages.
    """

    name: str
    fields: Mapping[str, Any]
    place: str


def of_command_line(texts: Sequence[str]) -> list[Override]:
    """Returns what `--override NAME.KEY=VALUE` says; values are scalars of YAML.

    Raises:
      UsageError: a text is not of that form.
    """
    found = []
    for text in texts:
        match = _TEXT.fullmatch(text)
        if match is None or match[3][:1] in ("[", "{", "!", "&"):
            raise UsageError(
                f"--override {text!r}: expected NAME.KEY=VALUE, where VALUE is a number or a "
                "string, e.g. '*.voir.options.stop=5'"
            )
        fields: Any = scalar(match[3])
        for key in reversed(match[2].split(".")):
            fields = {key: fields}
        found.append(Override(name=match[1], fields=fields, place=f"--override {text!r}"))
    return found


def of_system(path: Path) -> Override:
    """Returns what the description of a system says, as milabench's `--system` reads it.

    Raises:
      UsageError: the file cannot be read, or says what cannot be.
    """
    file = YamlFile(path)
    items = file.items(file.document(), "the file")
    if "system" not in items or not {*items} <= {"system", *_BESIDE_A_SYSTEM}:
        file.fail(file.document(), "expected the key 'system' and, at most, 'multirun'")
    _, node = items["system"]
    fields: dict[str, Any] = {}
    for name, (key, value) in file.items(node, "system").items():
        if name not in _OF_A_SYSTEM:
            file.fail(key, f"unknown key {name!r}; {choices(name, _OF_A_SYSTEM)}")
        fields[name] = file.plain(value)
    arch, nodes = fields.get("arch", ""), fields.get("nodes", [])
    if not isinstance(arch, str):
        file.fail(node, f"arch must be a string, got {arch!r}")
    if not isinstance(nodes, list) or not all(isinstance(item, dict) for item in nodes):
        file.fail(node, "nodes must be a list of mappings")
    return Override(name="*", fields={"system": fields}, place=str(path))
