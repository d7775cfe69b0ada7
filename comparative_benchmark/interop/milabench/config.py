"""Benchmarks of a milabench configuration, their selection, and the arguments of their scripts.

`argv` becomes a command line, in which placeholders are filled in.
"""

import ast
import hashlib
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.milabench.inheritance import Entry, Override, entries_of, strings
from comparative_benchmark.results.record import Definition, EnvironmentName, WorkloadRecord
from openxla.benchmark.text import choices

# Long enough for any CPU count, and short enough to parse quickly.
_LONGEST = 200
_OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "int": int,
    "round": round,
    "abs": abs,
}

# `{milabench_data}` of milabench, and `${system.arch}`, `${..num_machines}` of OmegaConf.
_PLACEHOLDER = re.compile(r"\$\{\.*([a-z_][a-z_.]*)\}|\{([a-z_]+)\}")
# In milabench's sizer, `auto(8, 4)` contains the value that it would choose for a device, and
# `auto_batch(32)` the default, which a search for the best batch size multiplies. `expr(2 * 4)` is
# arithmetic. Each may follow `name=`.
_NAMED = re.compile(r"[\w.-]+=(auto|expr)")
_AUTO = re.compile(r"auto(_batch)?\(\s*([^,(){}]{1,200}?)\s*(?:,\s*[^,(){}]+?\s*)?\)")
_EXPRESSION = re.compile(r"expr\((.*)\)", re.DOTALL)

BATCH_FACTOR = "batch_factor"

_METHODS = ("per_gpu", "njobs")
_FILE_NAME = re.compile(r"\w[\w.+-]*")
_CAPABILITY = re.compile(r"(len\(nodes\)|gpu\[(['\"])count\2\])\s*(>=?)\s*(\d{1,9})")

BACKEND, COMPILER = "milabench", "script"


class ArgumentsError(ValueError):
    """An `argv` cannot be converted to a command line."""


def value_of(text: str) -> float:
    """Returns the value of an arithmetic expression.

    It may use numbers, `+ - * / // %`, min, max, int, round and abs.

    Raises:
      ArgumentsError: the expression contains anything else, or has no value.
    """
    try:
        if len(text) > _LONGEST:
            raise ArgumentsError(f"longer than {_LONGEST} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ArithmeticError, SyntaxError, TypeError, ValueError, RecursionError) as error:
        raise ArgumentsError(f"invalid arithmetic expression expr({text}): {error}") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
            return _OPERATORS[type(symbol)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, args))
    raise ArgumentsError(f"unsupported expression {ast.unparse(node)!r}")


class AnyNumber(dict[str, str]):
    """A mapping from every name to 1, to validate a text before the machine is known."""

    def get(self, *_: Any) -> str:
        """Returns 1."""
        return "1"


def assemble(argv: Any) -> list[str]:
    """Returns the arguments for an `argv`.

    A list is used unchanged. In a mapping, `true` makes a flag, `null` drops the option, a list is
    joined by commas, and `--` holds a list of positional arguments, which are placed last.

    Raises:
      ArgumentsError: a value is a mapping, or `false`, which is ambiguous.
    """
    if argv is None:
        return []
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        return [_text("argv", item) for item in argv]
    if not isinstance(argv, Mapping):
        raise ArgumentsError("argv must be a mapping or a list")
    words: list[str] = []
    last: list[str] = []
    for name, value in argv.items():
        if name == "--":
            last = [_text(name, item) for item in (value if isinstance(value, list) else [value])]
        elif value is True:
            words.append(name)
        elif value is False:
            raise ArgumentsError(
                f"{name} is false; use `null` to drop an option, or `true` to make it a flag"
            )
        elif isinstance(value, list):
            words += [name, ",".join(_text(name, item) for item in value)]
        elif value is not None:
            words += [name, _text(name, value)]
    return words + last


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """Replaces known `{name}` and `${name}` placeholders in strings at any depth.

    `auto({n_worker}, 8)` becomes the number of workers, `auto_batch(32)` becomes 32, and
    `expr({cpu_count} // 2)` half the number of CPUs.

    Raises:
      ArgumentsError: an expression is not arithmetic.
    """
    if isinstance(value, str):
        text = _PLACEHOLDER.sub(lambda match: names.get(match[1] or match[2], match[0]), value)
        name, equals, rest = text.rpartition("=") if _NAMED.match(text) else ("", "", text)
        return f"{name}{equals}{_computed(rest, int(names.get(BATCH_FACTOR, '1')))}"
    if isinstance(value, Mapping):
        # An argument without a value is a key: `batch_size=auto_batch(8): true`.
        return {filled(key, names): filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value


def _computed(text: str, batch_factor: int) -> str:
    if automatic := _AUTO.fullmatch(text):
        amount = automatic[2]
        return str(int(amount) * batch_factor) if automatic[1] and amount.isdecimal() else amount
    expression = _EXPRESSION.fullmatch(text)
    return str(value_of(expression[1])) if expression else text


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping | list):
        raise ArgumentsError(f"{name}: expected a string or a number, got {value!r}")
    return str(value)


@attrs.frozen(kw_only=True)
class Plan:
    """Number of simultaneous processes of a benchmark: one per GPU, or `jobs`."""

    per_gpu: bool
    jobs: int = 1


@attrs.frozen(kw_only=True)
class Bench:
    """A benchmark.

    Attributes:
      place: position of its entry, as `file:line:column`.
      folder: folder of its `benchfile.py`.
      install_group: benchmarks of one group share an environment.
      install_variant: selects `requirements.<variant>.txt`; `unpinned` selects `requirements.in`.
      weight: weight in the total score.
      needs: a requirement that no machine meets; None if absent.
      least_gpus: number of GPUs required.
      config: all fields of the configuration, for its benchfile.
      venv: an existing environment to use unmodified; None for its install group's.
      environment: name of the environment, if several race.
      batch_factor: multiplies the sizes given as `auto_batch`.
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
    least_gpus: int = 0
    venv: Path | None = None
    environment: EnvironmentName | None = None
    batch_factor: int = 1

    def in_environment(self, environment: EnvironmentName) -> "Bench":
        """Returns a copy that runs in an existing environment."""
        venv = Path(environment.python).parents[1]
        return attrs.evolve(self, venv=venv, environment=environment)


def read(path: Path, overrides: Sequence[Override] = ()) -> list[Bench]:
    """Returns the benchmarks of a file, in file order.

    Args:
      path: the configuration file.
      overrides: fields that replace those in the file.

    Raises:
      UsageError: the file is unreadable or invalid; the message gives file, line and column.
    """
    values = {
        name: _bench(name, entry, fields)
        for name, entry, fields in entries_of(path, overrides)
        # Files that only enable or disable benchmarks may name some that no longer exist.
        if "definition" in fields or fields.get("enabled") is not False
    }
    if not values:
        raise UsageError(
            f"{path} defines no benchmarks; entries whose names begin with _ are only templates"
        )
    return list(values.values())


def _bench(name: str, entry: Entry, merged: dict[str, Any]) -> Bench:
    group = str(merged.get("group") or name)
    install_group = str(merged.get("install_group") or group)
    group_key = "install_group" if merged.get("install_group") else "group"
    for key, value in (("name", name), (group_key, install_group)):
        # Both are used as names of files and folders.
        if not _FILE_NAME.fullmatch(value):
            entry.fail(key, f"invalid {key} {value!r}; use letters, digits, . _ + and -")
    if "definition" not in merged:
        entry.fail("definition", f"benchmark {name} requires a definition, the path to its folder")
    if not isinstance(merged.get("system", {}), dict):
        entry.fail("system", "system must be a mapping")
    variant = merged.get("install_variant")
    try:
        # The machine's properties are not known yet, so validate with placeholder values.
        assemble(filled(merged.get("argv"), AnyNumber()))
        needs, least_gpus = _needs(entry, merged)
    except ValueError as error:
        entry.fail("argv", str(error))
    if isinstance(definition := merged["definition"], dict):
        needs, definition = f"{definition['git']}, which cbs does not fetch", entry.folder / name
    return Bench(
        name=name,
        place=entry.file.place(entry.node),
        folder=Path(definition),
        group=group,
        install_group=install_group,
        install_variant=None if variant is None else str(variant),
        plan=_plan(entry, merged.get("plan")),
        max_duration_s=_number(entry, merged, "max_duration", 600.0, least=0.001),
        weight=_number(entry, merged, "weight", 1.0, least=0.0),
        tags=tuple(merged["tags"]),
        enabled=merged.get("enabled", True) is not False,
        needs=needs,
        least_gpus=least_gpus,
        config={**merged, "name": name, "group": group, "install_group": install_group},
    )


def _plan(entry: Entry, plan: Any) -> Plan:
    if plan is None:
        return Plan(per_gpu=True)
    if not isinstance(plan, dict) or plan.get("method") not in _METHODS:
        method = plan.get("method") if isinstance(plan, dict) else plan
        entry.fail("plan", f"unknown plan method {method!r}; {choices(str(method), _METHODS)}")
    if unknown := [key for key in plan if key not in ("method", "n")]:
        entry.fail("plan", f"unknown plan key {unknown[0]!r}; choices are method, n")
    jobs = plan.get("n", 1)
    if type(jobs) is not int or jobs < 1:
        entry.fail("plan", f"plan.n must be a positive integer, got {jobs!r}")
    return Plan(per_gpu=plan["method"] == "per_gpu", jobs=jobs)


def _number(
    entry: Entry, fields: Mapping[str, Any], key: str, default: float, *, least: float
) -> float:
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e9:
        entry.fail(key, f"{key} must be a number from {least:g} to 1e9, got {value!r}")
    return float(value)


def _needs(entry: Entry, fields: Mapping[str, Any]) -> tuple[str | None, int]:
    """Returns a requirement that no machine meets, if any, and the number of GPUs required."""
    machines = _number(entry, fields, "num_machines", 1.0, least=1.0)
    if machines > 1:
        return f"{machines:g} machines", 0
    least_gpus = 0
    for text in strings(entry, fields, "requires_capabilities"):
        condition = str(filled(text, scalars(fields)))
        # milabench evaluates these as Python; in practice they always have this form.
        match = _CAPABILITY.fullmatch(condition.strip())
        if match is None:
            return f"{condition!r}, which cbs cannot evaluate", 0
        least = int(match[4]) + (match[3] == ">")
        if match[1].startswith("gpu"):
            least_gpus = max(least_gpus, least)
        elif least > 1:
            return f"{least} machines", 0
    return None, least_gpus


def scalars(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the scalar fields as strings, as values for `${name}`."""
    return {n: str(v) for n, v in fields.items() if isinstance(v, str | int | float)}


def select(
    benches: Sequence[Bench], selected: Sequence[str], excluded: Sequence[str]
) -> list[Bench]:
    """Returns the enabled benchmarks selected by name, group, install group, tag or folder.

    Raises:
      UsageError: a name selects nothing.
    """
    known = {name for bench in benches for name in _names(bench)}
    for name in (*selected, *excluded):
        if name != "*" and name not in known:
            raise UsageError(
                f"unknown benchmark, group or tag {name!r}; {choices(name, sorted(known))}"
            )

    def chosen(bench: Bench, names: Sequence[str]) -> bool:
        return "*" in names or not _names(bench).isdisjoint(names)

    chosen_benches = [b for b in benches if b.enabled and (not selected or chosen(b, selected))]
    chosen_benches = [bench for bench in chosen_benches if not chosen(bench, excluded)]
    if not chosen_benches:
        raise UsageError("no benchmark selected: all are excluded or disabled")
    return chosen_benches


def _names(bench: Bench) -> set[str]:
    return {bench.name, bench.group, bench.install_group, bench.folder.name, *bench.tags}


def definition(bench: Bench, device: str, config: Mapping[str, Any], units: str) -> Definition:
    """Returns a benchmark's definition for a results file.

    Args:
      bench: the benchmark.
      device: as given with `-device`.
      config: configuration that its processes received.
      units: units of its rates.
    """
    # Include only what determines the work per item, not the code whose speed is measured.
    asked = {name: config.get(name) for name in ("argv", "plan", "client", "server")}
    digest = _digest([bench.name, asked, units, device])
    return Definition(
        benchmark_name=f"milabench/{bench.name}",
        framework="ModelFrameworkType.SCRIPT",
        data_type=None,
        batch_size=None,
        compiler=COMPILER,
        device=device,
        tags=bench.tags,
        backend=BACKEND,
        level="framework_level",
        options=(),
        environment=bench.environment,
        model=bench.name,
        model_parameters={
            **_scalars(config.get("argv")),
            "source_sha256": _source_digest(bench),
            "config": bench.place.rsplit(":", 2)[0],
        },
        verify_parameters={},
        input_data="its own",
        workload=WorkloadRecord(
            id=f"milabench/{bench.name}",
            digest=digest,
            # All tables show these results as the time per unit of work.
            label=f"{bench.name}, time per {_unit(units)}",
            architecture=f"milabench/{bench.name}",
            config_digest=_digest(asked),
            checkpoint="its own",
            data_type=None,
            inputs=(),
            input_digest=_digest("its own"),
        ),
    )


def _unit(units: str) -> str:
    """Returns the unit that a rate counts, e.g. `item` for `items/s`."""
    counted = units.removesuffix("/s").removesuffix("s")
    return counted or units


def _scalars(argv: Any) -> dict[str, Any]:
    if not isinstance(argv, dict):
        return {}
    return {n: v for n, v in argv.items() if v is None or isinstance(v, str | int | float | bool)}


def _source_digest(bench: Bench) -> str:
    digest = hashlib.sha256()
    for path in sorted(bench.folder.rglob("*.py")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path.relative_to(bench.folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
