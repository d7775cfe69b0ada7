"""Reference pages of the documentation site, made from the code that they describe."""

import argparse
import html
import inspect
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.backends.api import backends
from comparative_benchmark.backends.recipes import recipes
from comparative_benchmark.cli.command import COMMANDS
from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.errors import EXIT_CODES
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import schema

ROOT = Path(__file__).resolve().parents[2]

# Endings of field names -> units, the longest endings first.
_UNITS = {
    "_per_s": "1/s",
    "_ms_per_token": "ms",
    "_ms": "ms",
    "_ns": "ns",
    "_s": "s",
    "_bytes": "bytes",
    "_mb": "MB",
    "_mhz": "MHz",
    "_db": "dB",
    "_share": "from 0 to 1",
    "_ratio": "ratio",
}
VARIABLES = {
    "CBS_ROOT_DIR": "folder of artifacts; same as `--root-dir` (default: `artifacts/root`)",
    "CBS_LOCKS_DIR": "folder of lock files of published artifacts (default: `artifacts/locks`)",
    "CBS_HISTORY": "URL or file of the history; same as `cbs history --db`",
    "CBS_FOREIGN_NETWORK": "`1` allows TorchBench's folders to use the network",
    "CBS_USERBENCHMARK_OUTPUT": "output folder of userbenchmarks; set by `cbs userbenchmark`",
    "CBS_USERBENCHMARK_RUNS": "runs of each side in `scripts/pr_benchmark.sh` (default: 6)",
    "CBS_GPU_WHEELS": "wheel folder for `scripts/gpu_check.sh`; same as `--wheels`",
    "CBS_VENV": "existing environment for the nightly scripts, used without changes",
    "CBS_STORE": "store for nightly results: `gs://bucket/folder`, or a directory",
    "CBS_SHARDS": "shards of the nightly workflow, as JSON",
    "CBS_BENCH": "milabench configuration that the nightly also runs",
    "CBS_TORCHBENCH": "TorchBench folders that the nightly also runs",
    "CBS_TORCHBENCH_BACKENDS": "backends for these folders (default: the backends of the shard)",
    "CBS_RUN_OPTIONS": "additional options for `cbs run` in `scripts/pr_benchmark.sh`",
    "CBS_USE_UV": "`0` makes the scripts use pip even if uv is available",
}
# The suite sets these for its own processes; users do not need them.
_INTERNAL = {
    *("CBS_CPUS", "CBS_FLEET_NODE", "CBS_HIDDEN", "CBS_SESSION", "CBS_ROOT"),
    *("CBS_OPENVINO_CACHE_DIR", "CBS_XLA_HLO_CACHE_DIR"),
    *("CBS_TORCHBENCH_REPO", "CBS_TORCHBENCH_TEST", "CBS_USERBENCHMARK_LAST"),
}


def pages() -> dict[str, str]:
    """Returns the text of each page, by its path on the site."""
    return {
        "reference/commands.md": _commands(),
        "reference/backends.md": _backends(),
        "reference/statuses.md": _statuses(),
        "reference/exit-codes.md": _exit_codes(),
        "reference/environment.md": _environment(),
        "reference/results-file.md": _results_file(),
    }


def _cell(text: object) -> str:
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "&#124;")


def _plain(text: str) -> str:
    """Returns a cell of plain text, e.g. from a help text."""
    return re.sub(r"([*_`\[\]$~])", r"\\\1", _cell(text))


def _code(text: object) -> str:
    return f"<code>{_cell(text)}</code>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _commands() -> str:
    os.environ["COLUMNS"] = "88"
    rows = [[f"[`cbs {c.name}`](#cbs-{c.name})", _plain(c.help)] for c in COMMANDS]
    parts = ["# Commands\n", "The output of `cbs COMMAND --help` for every command.\n"]
    parts.append(_table(["command", "purpose"], rows))
    for command in COMMANDS:
        parser = Parser(prog=f"cbs {command.name}", description=command.help)
        command.add_options(parser)
        parts.append(_of_parser(parser, command.help, "##"))
    return "\n".join(parts)


def _of_parser(parser: argparse.ArgumentParser, text: str, heading: str) -> str:
    usage = parser.format_usage().removeprefix("usage: ")
    parts = [f"{heading} {parser.prog}\n", f"{_plain(text[:1].upper() + text[1:])}\n"]
    parts.append(f"```text\n{usage}```\n")
    below: list[str] = []
    formatter = parser.formatter_class(prog=parser.prog)
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                below += _of_subcommands(action, heading)
            elif action.help is not argparse.SUPPRESS and action.dest != "help":
                rows.append([_spelt(action), _help(formatter, action)])
        if rows:
            parts += [f"**{group.title}**\n", _table(["option", "meaning"], rows)]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```\n")
    return "\n".join([*parts, *below])


def _help(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    return _plain(formatter._expand_help(action)) if action.help else ""


def _of_subcommands(action: Any, heading: str) -> list[str]:
    helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
    return [
        _of_parser(parser, helps.get(name, ""), heading + "#")
        for name, parser in action.choices.items()
    ]


def _spelt(action: argparse.Action) -> str:
    """Returns an option as users type it, in the spelling with dashes."""
    names = action.option_strings
    shown = [n for n in names if "_" not in n or n.replace("_", "-") not in names]
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not names:
        return _code(action.metavar or action.dest)
    return _code(f"{', '.join(shown)} {value}".strip())


def _backends() -> str:
    parts = ["# Backends and compilers\n"]
    parts.append(
        "Values for `cbs run --backend`. A compiler marked `*` runs only if it is named. "
        "`+option` follows a compiler's name, as in `pt_inductor:inductor+freezing`.\n"
    )
    for info in backends().values():
        models = ", ".join(framework.value for framework in info.modules)
        parts += [
            f"## {info.name}\n",
            (
                f"Models from {models}; measures at `{info.level}`. To install: "
                f"`{info.absence(()).commands}`\n"
            ),
            _table(
                ["compiler", "description", "options"],
                [
                    [
                        _code(compiler.name) + ("" if compiler.default else " *"),
                        _plain(compiler.description),
                        " ".join(
                            _code("+" + name)
                            for name in (
                                *compiler.options,
                                *(["RECIPE"] if compiler.takes_recipes else []),
                            )
                        ),
                    ]
                    for compiler in info.compilers
                ],
            ),
        ]
    parts += [
        "## Recipes\n",
        "A recipe, an option of a compiler, makes a model compute with fewer bits or weights.\n",
    ]
    parts.append(
        _table(
            ["recipe", "description", "applied by"],
            [
                [_code(r.usage), _plain(r.description), ", ".join(map(_code, r.by_backend))]
                for r in recipes().values()
            ],
        )
    )
    return "\n".join(parts)


def _attributes(text: str) -> dict[str, str]:
    """Returns the description of each attribute in a docstring; several may share a line."""
    lines = re.findall(r"^  (\w[\w, ]*): (.*(?:\n    .*)*)", inspect.cleandoc(text), re.MULTILINE)
    return {name: meaning for names, meaning in lines for name in names.split(", ")}


def _meanings(kind: Any) -> str:
    meanings = _attributes(kind.__doc__)
    return _table(
        [kind.__name__.lower(), "meaning"],
        [[_code(member.value), _markup(meanings[member.name])] for member in kind],
    )


def _markup(text: str) -> str:
    """Returns a cell with text of a docstring, in which `code` stays marked."""
    return _cell(text).replace("*", "\\*")


def _statuses() -> str:
    return f"""# Statuses and verdicts

## How a trial ended

{_meanings(Status)}
Tables show `agreed` instead of `ok` if no float64 run exists to judge by. They show `expected`
for a failure that `expected_failures.toml` lists.

## Verdicts of comparisons

A ratio is the candidate's time divided by the baseline's time. Tables show its inverse, the
speed-up.

{_meanings(Verdict)}"""


def _exit_codes() -> str:
    return "# Exit codes\n\n" + _table(
        ["code", "meaning"], [[_code(code), _cell(text)] for code, text in EXIT_CODES.items()]
    )


def _environment() -> str:
    """Returns the table of variables.

    Raises:
      ValueError: the variables in the table differ from those in the code.
    """
    folders = ["comparative_benchmark", "common_benchmark_suite", "scripts", ".github"]
    files = [p for f in folders for s in ("py", "sh", "yml") for p in (ROOT / f).rglob(f"*.{s}")]
    # The GPU check sets variables only for processes that it starts itself.
    left_out = (Path(__file__).resolve(), ROOT / "scripts" / "gpu_check")
    texts = [p.read_text("utf-8") for p in files if not any(map(p.is_relative_to, left_out))]
    used = {name for text in texts for name in re.findall(r"\bCBS_[A-Z_]+\b", text)}
    if odd := used ^ VARIABLES.keys() ^ _INTERNAL:
        raise ValueError(f"scripts/site/reference.py and the code disagree on {sorted(odd)}")
    others = {
        "NO_COLOR": "disables colours in tables",
        "COLUMNS": "width of tables",
        "XDG_CACHE_HOME": "folder for artifacts if you run without a checkout (default `~/.cache`)",
        "XDG_DATA_HOME": "folder for the history (default `~/.local/share`)",
        "CUDA_VISIBLE_DEVICES": "GPUs that may be used",
        "MILABENCH_CONFIG, MILABENCH_BASE": "same as for milabench; used by `cbs bench`",
        "PYTHON": "interpreter with which the scripts create environments",
    }
    rows = [[_code(name), _cell(text)] for name, text in {**VARIABLES, **others}.items()]
    return f"""# Environment variables

{_table(["variable", "purpose"], rows)}
Workers get a clean environment, and results record those variables that change speed or numbers:
see [design note 0023](../design/0023-environment-of-workers.md).
"""


def _results_file() -> str:
    whole = schema()
    head = f"""# Results file

{whole["title"]}. {whole["description"]}
The JSON Schema is in the package's folder `comparative_benchmark/results/schema/`.

The file is a `Document`. A field without *always* may be absent.
"""
    return "\n".join([head, *(_of_record(name, kind) for name, kind in whole["$defs"].items())])


def _of_record(name: str, kind: Mapping[str, Any]) -> str:
    text = kind.get("description", "")
    says, always = _attributes(text), set(kind.get("required", []))
    first = _markup(inspect.cleandoc(text).split("\n\nAttributes:")[0])
    if "enum" in kind:
        return f"## {name}\n\n{first}\n\nOne of {', '.join(map(_code, kind['enum']))}.\n"
    rows = [
        [
            _code(field),
            _type(of) + (", *always*" if field in always else ""),
            _unit(field, of),
            _markup(says.get(field, "")),
        ]
        for field, of in kind.get("properties", {}).items()
    ]
    return f"## {name}\n\n{first}\n\n" + _table(["field", "type", "unit", "description"], rows)


def _unit(field: str, kind: Mapping[str, Any]) -> str:
    numeric = "number" in (text := _type(kind)) or "integer" in text
    return next((unit for end, unit in _UNITS.items() if numeric and field.endswith(end)), "")


def _type(kind: Mapping[str, Any]) -> str:
    """Returns a type of the schema in a few words."""
    if reference := kind.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := kind.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in kind:
        return " or ".join(_code(choice) for choice in kind["enum"])
    if "const" in kind:
        return _code(kind["const"])
    if kind.get("type") == "array":
        inner = _type(kind["items"]) if isinstance(kind.get("items"), dict) else "anything"
        return f"list of {inner}"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"mapping of {_type(kind['additionalProperties'])}"
    return str(kind.get("type", "anything"))
