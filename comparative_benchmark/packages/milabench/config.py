"""milabench's YAML: benchmarks by name, with what they inherit.

`inherits` is a chain: what a benchmark says goes over what it inherits, mapping by mapping, and
tags unite. Names that begin with `_` are there to be inherited from. `matrix` makes a benchmark of
each combination of values. Where the template says `install-variant` milabench reads
`install_variant`: both are the same here.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

from comparative_benchmark.packages.milabench.arguments import ArgumentsError, assemble, filled
from comparative_benchmark.terminal.options import UsageError
from comparative_benchmark.terminal.yaml_file import YamlFile, hint, near

# What milabench's own configuration has under this name, which the template inherits from.
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
# An unknown key that is so like a known one is misspelt; others are the benchfile's own.
_LIKE = 0.72
_METHODS = ("per_gpu", "njobs")
_FILE_NAME = re.compile(r"\w[\w.+-]*")
_NODES = re.compile(r"len\(nodes\)\s*(>=?)\s*(\d+)")


@attrs.frozen(kw_only=True)
class Plan:
    """How many processes of a benchmark run at once: one for each GPU, or `jobs`."""

    per_gpu: bool
    jobs: int = 1


@attrs.frozen(kw_only=True)
class Bench:
    """One benchmark.

    Attributes:
      place: where it stands, as `file:line:column`.
      folder: of its `benchfile.py`.
      install_group: benchmarks of one group share an environment.
      install_variant: which `requirements.<variant>.txt`; `unpinned` is `requirements.in`.
      weight: in the score of all.
      needs: why it cannot run here, whatever happens; None if it may.
      config: all that the file says of it, for its benchfile.
      venv: an environment that is used as it is; None for that of its install group.
    """

    name: str
    place: str
    folder: Path
    group: str
    install_group: str
    install_variant: str | None
    plan: Plan
    max_duration_s: float
    weight: float
    tags: tuple[str, ...]
    enabled: bool
    needs: str | None
    config: Mapping[str, Any]
    venv: Path | None = None


def read(path: Path) -> list[Bench]:
    """Returns the benchmarks of a file, in its order.

    Raises:
      UsageError: it cannot be read, or says what cannot be; with file, line and column.
    """
    entries: dict[str, _Entry] = {
        "_defaults": _Entry(file=YamlFile(path), node=None, fields=DEFAULTS, folder=path.parent)
    }
    _load(path.absolute(), entries, ())
    found = {}
    for name, entry in _expanded(entries).items():
        if not name.startswith("_") and name != "*":
            found[name] = _bench(name, entry, _merged(name, entry, entries))
    if not found:
        raise UsageError(f"{path} has no benchmark: all names begin with _")
    return list(found.values())


@attrs.frozen(kw_only=True)
class _Entry:
    """What stands under a name, and where."""

    file: YamlFile
    node: yaml.Node | None
    fields: Mapping[str, Any]
    folder: Path
    places: Mapping[str, yaml.Node] = attrs.field(factory=dict)

    def fail(self, key: str, text: str) -> Any:
        where = self.places.get(key, self.node)
        if where is None:
            raise UsageError(f"{self.file.path}: {text}")
        self.file.fail(where, text)


def _load(path: Path, entries: dict[str, _Entry], above: tuple[Path, ...]) -> None:
    file = YamlFile(path)
    items = file.items(file.document(), "the file")
    for name in _LISTS:
        if name in items:
            key, value = items.pop(name)
            for other in _texts(file, value):
                included = (path.parent / other).resolve()
                if included in (*above, path):
                    file.fail(key, f"{other} includes itself")
                _load(included, entries, (*above, path))
    for name, (key, value) in items.items():
        if not isinstance(value, yaml.MappingNode):
            file.fail(value, f"the benchmark {name} must be a mapping")
        fields, places = {}, {}
        for given, (given_key, given_value) in file.items(value, f"the benchmark {name}").items():
            known = given.replace("-", "_")
            known = known if known in _KEYS else given
            if known not in _KEYS and (close := near(known, _KEYS, cutoff=_LIKE)):
                file.fail(given_key, f"unknown key {given!r}; did you mean {close}?")
            if known in fields:
                file.fail(given_key, f"{known!r} stands twice in the benchmark {name}")
            fields[known], places[known] = file.plain(given_value), given_key
        entries[name] = _Entry(
            file=file, node=key, fields=fields, folder=path.parent, places=places
        )


def _texts(file: YamlFile, node: yaml.Node) -> list[str]:
    value = file.plain(node)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in values):
        file.fail(node, "names of files are due")
    return [str(item) for item in values]


def _expanded(entries: Mapping[str, _Entry]) -> dict[str, _Entry]:
    """Returns the entries with one for each combination of a `matrix` in the place of that."""
    found: dict[str, _Entry] = {}
    for name, entry in entries.items():
        matrix = entry.fields.get("matrix")
        if matrix is None:
            found[name] = entry
            continue
        if not isinstance(matrix, dict) or not all(isinstance(v, list) for v in matrix.values()):
            entry.fail("matrix", "matrix must be a mapping of lists")
        job = entry.fields.get("job")
        if not isinstance(job, dict) or not isinstance(job.get("name"), str):
            entry.fail("matrix", "a matrix needs a job with a name, e.g. bench-{batch-size}")
        for values in itertools.product(*matrix.values()):
            texts = {key: str(value) for key, value in zip(matrix, values, strict=True)}
            fields = {
                **{k: v for k, v in entry.fields.items() if k not in ("matrix", "job")},
                **_substituted(job, texts),
            }
            title = str(fields.pop("name"))
            if title in found:
                entry.fail("matrix", f"two combinations are called {title!r}")
            found[title] = attrs.evolve(entry, fields=fields)
    return found


def _substituted(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in texts.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: _substituted(item, texts) for key, item in value.items()}
    return [_substituted(item, texts) for item in value] if isinstance(value, list) else value


def _merged(name: str, entry: _Entry, entries: Mapping[str, _Entry]) -> dict[str, Any]:
    """Returns what an entry says over what it inherits."""
    chain, names = [entry], [name]
    while (parent := chain[-1].fields.get("inherits")) is not None:
        if not isinstance(parent, str):
            chain[-1].fail("inherits", "inherits must be the name of one benchmark")
        if parent in names:
            cycle = " -> ".join([*names[names.index(parent) :], parent])
            chain[-1].fail("inherits", f"inherits goes in a circle: {cycle}")
        if parent not in entries:
            chain[-1].fail("inherits", f"nothing is called {parent!r}; {hint(parent, entries)}")
        names.append(parent)
        chain.append(entries[parent])
    merged: dict[str, Any] = {}
    tags: set[str] = set()
    for link in reversed(chain):
        tags |= _tags(link)
        fields = dict(link.fields)
        if "definition" in fields:
            fields["definition"] = _definition(link)
        merged = _over(merged, fields)
    if "*" in entries:
        merged = _over(merged, entries["*"].fields)
    merged["tags"] = sorted(tags)
    merged.pop("inherits", None)
    return merged


def _tags(entry: _Entry) -> set[str]:
    tags = entry.fields.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        entry.fail("tags", "tags must be a list of texts")
    return set(tags)


def _definition(entry: _Entry) -> str:
    given = entry.fields["definition"]
    if not isinstance(given, str):
        entry.fail("definition", "definition must be the path of a folder")
    folder = (entry.folder / given).resolve()
    # The guide says that it may be the benchfile's own path.
    return str(folder.parent if folder.name == "benchfile.py" else folder)


def _over(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _over(old, value)  # noqa: PLW2901
        merged[key] = value
    return merged


def _bench(name: str, entry: _Entry, merged: dict[str, Any]) -> Bench:
    for key in ("name", "install_group"):
        # Both are names of files and folders.
        if not _FILE_NAME.fullmatch(value := str(name if key == "name" else merged.get(key, name))):
            entry.fail(key, f"{value!r} cannot be the {key}: letters, digits, . _ + and -")
    if "definition" not in merged:
        entry.fail("definition", f"the benchmark {name} has no definition: the path of its folder")
    group = str(merged.get("group") or name)
    install_group = str(merged.get("install_group") or group)
    variant = merged.get("install_variant")
    try:
        assemble(filled(merged.get("argv"), {}))
    except ArgumentsError as error:
        entry.fail("argv", str(error))
    return Bench(
        name=name,
        place=entry.file.place(entry.node),
        folder=Path(merged["definition"]),
        group=group,
        install_group=install_group,
        install_variant=None if variant is None else str(variant),
        plan=_plan(entry, merged.get("plan")),
        max_duration_s=_number(entry, merged, "max_duration", 600.0, least=0.001),
        weight=_number(entry, merged, "weight", 1.0, least=0.0),
        tags=tuple(merged["tags"]),
        enabled=merged.get("enabled", True) is not False,
        needs=_needs(entry, merged),
        config={**merged, "name": name, "group": group, "install_group": install_group},
    )


def _plan(entry: _Entry, plan: Any) -> Plan:
    if plan is None:
        return Plan(per_gpu=True)
    if not isinstance(plan, dict) or plan.get("method") not in _METHODS:
        method = plan.get("method") if isinstance(plan, dict) else plan
        entry.fail("plan", f"no plan has the method {method!r}; {hint(str(method), _METHODS)}")
    if unknown := [key for key in plan if key not in ("method", "n")]:
        entry.fail("plan", f"unknown key {unknown[0]!r} of a plan; choices are method, n")
    jobs = plan.get("n", 1)
    if type(jobs) is not int or jobs < 1:
        entry.fail("plan", f"n must be a whole number from 1 on, not {jobs!r}")
    return Plan(per_gpu=plan["method"] == "per_gpu", jobs=jobs)


def _number(
    entry: _Entry, fields: Mapping[str, Any], key: str, default: float, *, least: float
) -> float:
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e9:
        entry.fail(key, f"{key} must be a number from {least:g} on, not {value!r}")
    return float(value)


def _needs(entry: _Entry, fields: Mapping[str, Any]) -> str | None:
    machines = _number(entry, fields, "num_machines", 1.0, least=1.0)
    if machines > 1:
        return f"{machines:g} machines"
    for text in fields.get("requires_capabilities") or ():
        told = str(filled(text, scalars(fields)))
        # milabench evaluates these as Python; what they ask for is always this.
        match = _NODES.fullmatch(told.strip())
        if match is None:
            return f"{told!r}, which is not evaluated here"
        if int(match[2]) + (match[1] == ">") > 1:
            return f"{match[2]} machines"
    return None


def scalars(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the fields that `${name}` may stand for, as texts."""
    return {n: str(v) for n, v in fields.items() if isinstance(v, str | int | float)}


def select(
    benches: Sequence[Bench], selected: Sequence[str], excluded: Sequence[str]
) -> list[Bench]:
    """Returns the enabled benchmarks that a name, group, install group, tag or folder selects.

    Raises:
      UsageError: one of the names selects nothing.
    """
    known = {name for bench in benches for name in _names(bench)}
    for name in (*selected, *excluded):
        if name != "*" and name not in known:
            raise UsageError(f"no benchmark, group or tag {name!r}; {hint(name, sorted(known))}")

    def chosen(bench: Bench, names: Sequence[str]) -> bool:
        return "*" in names or not _names(bench).isdisjoint(names)

    found = [b for b in benches if b.enabled and (not selected or chosen(b, selected))]
    found = [bench for bench in found if not chosen(bench, excluded)]
    if not found:
        raise UsageError("no benchmark is left: all are excluded or not enabled")
    return found


def _names(bench: Bench) -> set[str]:
    return {bench.name, bench.group, bench.install_group, bench.folder.name, *bench.tags}
