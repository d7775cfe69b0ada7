"""Entries of milabench's YAML files, with inheritance resolved.

A file overrides the entries of the files that it includes. `inherits` is a chain: a benchmark's
fields override inherited ones, recursively for mappings, and tags are merged. Names that begin with
`_` are templates to inherit from. `matrix` creates a benchmark for each combination of values. The
template uses `install-variant` where milabench reads `install_variant`; both are accepted here.
"""

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

from comparative_benchmark.errors import UsageError
from comparative_benchmark.sources.yaml_files import YamlFile, scalar
from openxla.benchmark.text import choices, near

# `NAME.KEY.KEY=VALUE`, or `*.KEY=VALUE` for all benchmarks.
_TEXT = re.compile(r"(\*|[\w+-]+)\.([^=\s]+)=(.*)", re.DOTALL)
_OF_A_SYSTEM = (
    *("arch", "sshkey", "nodes", "gpu", "docker", "docker_image", "options", "self"),
    "cloud_profiles",
)
# Another section that such a file may have: runs with other settings. It is ignored here.
_BESIDE_A_SYSTEM = ("multirun",)

# Values from milabench's own configuration, from which the template inherits.
DEFAULTS: Mapping[str, Any] = {
    "max_duration": 600,
    "voir": {"options": {"stop": 60, "interval": "1s"}},
    "validation": {"usage": {"gpu_load_threshold": 0.5, "gpu_mem_threshold": 0.5}},
}
_LISTS = ("include", "includes")
_KEYS = (
    *("inherits", "definition", "group", "install_group", "install_variant", "enabled"),
    *("weight", "tags", "url", "plan", "argv", "voir", "max_duration", "num_machines"),
    *("requires_capabilities", "validation", "env", "dirs", "pip", "venv", "use_deepspeed"),
    *("gradient_accumulation_steps", "matrix", "job", "docker_image", "client", "server"),
    *("name", "tag", "system", "extra", "description"),
)
# An unknown key this similar to a known one is an error; others belong to the benchfile.
_LIKE = 0.72
_MOST_FILES = 200
_MOST_COMBINATIONS = 10_000


@attrs.frozen(kw_only=True)
class Override:
    """Fields that override an entry's fields.

    Attributes:
      name: name of the entry; `*` for all benchmarks.
      place: position of the override, for messages.
    """

    name: str
    fields: Mapping[str, Any]
    place: str


def of_command_line(texts: Sequence[str]) -> list[Override]:
    """Parses `--override NAME.KEY=VALUE` options; values are YAML scalars.

    Raises:
      UsageError: a string does not have that form.
    """
    overrides = []
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
        overrides.append(Override(name=match[1], fields=fields, place=f"--override {text!r}"))
    return overrides


def of_system(path: Path) -> Override:
    """Reads a system description in the format of milabench's `--system`.

    Raises:
      UsageError: the file is unreadable or invalid.
    """
    file = YamlFile(path)
    items = file.items(file.document(), "the file")
    if "system" not in items or not {*items} <= {"system", *_BESIDE_A_SYSTEM}:
        file.fail(file.document(), "expected the key 'system' and, optionally, 'multirun'")
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


@attrs.frozen(kw_only=True)
class Entry:
    """A named entry of a file, and its position."""

    file: YamlFile
    node: yaml.Node | None
    fields: Mapping[str, Any]
    folder: Path
    places: Mapping[str, tuple[YamlFile, yaml.Node]] = attrs.field(factory=dict)

    def fail(self, key: str, text: str) -> Any:
        """Raises a UsageError with the position of a key."""
        file, where = self.places.get(key, (self.file, self.node))
        if where is None:
            raise UsageError(f"{file.path}: {text}")
        file.fail(where, text)

    def above(self, included: "Entry | None") -> "Entry":
        """Returns this entry merged over the entry with the same name in an included file."""
        if included is None:
            return self
        return attrs.evolve(
            self,
            fields=_merge(included.fields, self.fields),
            places={**included.places, **self.places},
        )


def entries_of(
    path: Path, overrides: Sequence[Override] = ()
) -> Iterator[tuple[str, Entry, dict[str, Any]]]:
    """Yields the benchmarks of a file: name, entry, and all own and inherited fields.

    Args:
      path: the configuration file.
      overrides: fields that replace fields of its entries.

    Raises:
      UsageError: the file is unreadable or invalid; the message gives file, line and column.
    """
    entries: dict[str, Entry] = {
        "_defaults": Entry(file=YamlFile(path), node=None, fields=DEFAULTS, folder=path.parent)
    }
    _load(path.absolute(), entries, (), [])
    benchmarks = _expanded(entries)
    known = {**entries, **benchmarks}
    for override in overrides:
        name, given = _addressed(override, known)
        if name != "*" and name not in known:
            raise UsageError(f"{override.place}: unknown benchmark; {choices(name, benchmarks)}")
        entry = known.get(name) or attrs.evolve(entries["_defaults"], fields={})
        if entry.fields.get("matrix") is not None:
            names = ", ".join(_expanded({name: entry}))
            raise UsageError(f"{override.place}: {name} is a matrix; override one of {names}")
        fields = {_known(key): value for key, value in given.items()}
        for key in fields:
            if key not in _KEYS and (close := near(key, _KEYS, cutoff=_LIKE)):
                raise UsageError(f"{override.place}: unknown key {key!r}; did you mean {close}?")
        known[name] = attrs.evolve(entry, fields=_merge(entry.fields, fields))
    for name in benchmarks:
        if not name.startswith("_") and name != "*":
            yield name, known[name], _merged(name, known[name], known)


def _addressed(override: Override, known: Mapping[str, Entry]) -> tuple[str, Mapping[str, Any]]:
    """Returns the entry and the fields of an override; the longest known name counts."""
    # Names may contain dots, which also separate keys.
    name, fields = addressed = override.name, override.fields
    while isinstance(rest := next(iter(fields.values()), None), dict):
        name, fields = f"{name}.{next(iter(fields))}", rest
        addressed = (name, fields) if name in known else addressed
    return addressed


def _load(
    path: Path, entries: dict[str, Entry], above: tuple[Path, ...], loaded: list[Path]
) -> None:
    file = YamlFile(path)
    items = file.items(file.document(), "the file")
    for name in _LISTS:
        if name in items:
            key, value = items.pop(name)
            for other in _texts(file, value):
                # Path.resolve raises an error for cycles of links.
                included = Path(os.path.realpath(path.parent / other))
                if included in (*above, path):
                    file.fail(key, f"{other} includes itself")
                if len(loaded) >= _MOST_FILES:
                    file.fail(key, f"more than {_MOST_FILES} files are included")
                loaded.append(included)
                _load(included, entries, (*above, path), loaded)
    for name, (key, value) in items.items():
        if not isinstance(value, yaml.MappingNode):
            file.fail(value, f"benchmark {name} must be a mapping")
        fields: dict[str, Any] = {}
        places: dict[str, tuple[YamlFile, yaml.Node]] = {}
        for given, (given_key, given_value) in file.items(value, f"benchmark {name}").items():
            known = _known(given)
            if known not in _KEYS and (close := near(known, _KEYS, cutoff=_LIKE)):
                file.fail(given_key, f"unknown key {given!r}; did you mean {close}?")
            if known in fields:
                file.fail(given_key, f"duplicate key {known!r} in benchmark {name}")
            fields[known], places[known] = file.plain(given_value), (file, given_key)
        entry = Entry(file=file, node=key, fields=fields, folder=path.parent, places=places)
        if "definition" in fields:
            # Resolve relative to the file of this entry, which another file may include.
            fields["definition"] = _definition(entry)
        entries[name] = entry.above(entries.get(name))


def _known(key: str) -> str:
    name = key.replace("-", "_")
    return name if name in _KEYS else key


def _texts(file: YamlFile, node: yaml.Node) -> list[str]:
    value = file.plain(node)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in values):
        file.fail(node, "expected a file name or a list of file names")
    return [str(item) for item in values]


def _expanded(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Replaces each entry with a `matrix` by one entry per combination."""
    expanded: dict[str, Entry] = {}
    for name, entry in entries.items():
        matrix = entry.fields.get("matrix")
        if matrix is None:
            expanded[name] = entry
            continue
        if not isinstance(matrix, dict) or not all(isinstance(v, list) for v in matrix.values()):
            entry.fail("matrix", "matrix must be a mapping of lists")
        job = entry.fields.get("job")
        if not isinstance(job, dict) or not isinstance(job.get("name"), str):
            entry.fail("matrix", "a matrix requires a job with a name, e.g. bench-{batch-size}")
        count = math.prod(map(len, matrix.values()))
        if count > _MOST_COMBINATIONS:
            entry.fail("matrix", f"{count} combinations; at most {_MOST_COMBINATIONS} are allowed")
        for values in itertools.product(*matrix.values()):
            texts = {key: str(value) for key, value in zip(matrix, values, strict=True)}
            fields = {
                **{k: v for k, v in entry.fields.items() if k not in ("matrix", "job")},
                **_substituted(job, texts),
            }
            title = str(fields.pop("name"))
            if title in expanded:
                entry.fail("matrix", f"two combinations have the name {title!r}")
            expanded[title] = attrs.evolve(entry, fields=fields)
    return expanded


def _substituted(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in texts.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {_substituted(key, texts): _substituted(v, texts) for key, v in value.items()}
    return [_substituted(item, texts) for item in value] if isinstance(value, list) else value


def _merged(name: str, entry: Entry, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Returns an entry's fields merged over the inherited ones."""
    chain, names = [entry], [name]
    while (parent := chain[-1].fields.get("inherits")) is not None:
        if not isinstance(parent, str):
            chain[-1].fail("inherits", "inherits must be the name of one benchmark")
        if parent in names:
            cycle = " -> ".join([*names[names.index(parent) :], parent])
            chain[-1].fail("inherits", f"circular inheritance: {cycle}")
        if parent not in entries:
            chain[-1].fail("inherits", f"unknown benchmark {parent!r}; {choices(parent, entries)}")
        names.append(parent)
        chain.append(entries[parent])
    merged: dict[str, Any] = {}
    tags: set[str] = set()
    for link in reversed(chain):
        tags.update(strings(link, link.fields, "tags"))
        fields = dict(link.fields)
        if "definition" in fields:
            fields["definition"] = _definition(link)
        merged = _merge(merged, fields)
    if "*" in entries:
        merged = _merge(merged, entries["*"].fields)
    merged["tags"] = sorted(tags)
    merged.pop("inherits", None)
    return merged


def strings(entry: Entry, fields: Mapping[str, Any], key: str) -> list[str]:
    """Returns a field that is a list of strings; empty if it is absent.

    Raises:
      UsageError: the field has another type.
    """
    texts = fields.get(key) or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        entry.fail(key, f"{key} must be a list of strings")
    return list(texts)


def _definition(entry: Entry) -> str | dict[str, Any]:
    given = entry.fields["definition"]
    if isinstance(given, dict) and isinstance(given.get("git"), str):
        return given
    if not isinstance(given, str):
        entry.fail("definition", "definition must be the path to a folder")
    folder = Path(os.path.realpath(entry.folder / given))
    # milabench's guide also allows the path of the benchfile itself.
    return str(folder.parent if folder.name == "benchfile.py" else folder)


def _merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merge(old, value)  # noqa: PLW2901
        merged[key] = value
    return merged
