"""`cbs completion`: prints a shell script that completes commands, options and values.

The script contains the commands and options, so they complete immediately. It requests names that
may change (cases, tags, backends) from `cbs completion words`, once per shell session.
"""

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.errors import EXIT_OK

_TEMPLATE = Path(__file__).with_name("completion.bash.txt")
# Placeholders for file names, and for words requested at run time.
_FILES, _ASKED = "@files", "@"
# Kind of words by option destination, for all commands.
_KINDS = {
    "name": "cases",
    "tag": "tags",
    "backend": "backends",
    "baseline": "backends",
    "compiler": "compilers",
    "device": "devices",
    "framework": "frameworks",
    "op": "operators",
}
_SHELLS = ("bash", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs completion`."""
    parser.add_argument("shell", choices=(*_SHELLS, "words"), help="print a script for this shell")
    parser.add_argument("kind", nargs="?", choices=sorted(WORDS), help="words to print")


def run(options: argparse.Namespace) -> int:
    """Prints a shell script, or the words of a kind; returns 0."""
    if options.shell == "words":
        print("\n".join(_plain(WORDS[options.kind]()) if options.kind else sorted(WORDS)))
        return EXIT_OK
    from comparative_benchmark.cli.command import COMMANDS

    named: dict[str, argparse.ArgumentParser] = {}
    for command in COMMANDS:
        named[command.name] = Parser(prog=command.name, add_help=True)
        command.add_options(named[command.name])
    if options.shell == "zsh":
        print("(( ${+functions[compdef]} )) || { autoload -U compinit && compinit -i }")
        print("autoload -U +X bashcompinit && bashcompinit")
    print(_script(named))
    return EXIT_OK


def _script(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    nodes = {"cbs": [*commands, "--help", "--version"]}
    values: dict[str, str] = {}
    for name, parser in commands.items():
        for path, words, taken in _walk(name, parser):
            nodes[path] = words
            values |= {f"{path} {option}": what for option, what in taken.items()}
    tables = [
        _table("_cbs_words", {path: " ".join(words) for path, words in nodes.items()}),
        _table("_cbs_values", values),
    ]
    return "\n".join([*tables, _TEMPLATE.read_text(encoding="utf-8")])


def _walk(
    path: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yields for a command and each subcommand the possible next words and option values."""
    words: list[str] = []
    taken: dict[str, str] = {}
    for action in parser._actions:  # noqa: SLF001  # argparse offers no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, below in action.choices.items():
                words.append(name)
                yield from _walk(f"{path} {name}", below)
        elif action.option_strings:
            words += [name for name in action.option_strings if "_" not in name]
            if action.nargs != 0:
                taken |= dict.fromkeys(action.option_strings, _value(action))
        elif action.choices is not None:
            words += map(str, action.choices)
        else:
            words.append(_FILES)
    yield path, words, taken


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return " ".join(map(str, action.choices))
    kind = _KINDS.get(action.dest)
    return f"{_ASKED}{kind}" if kind else _FILES


def _table(name: str, rows: Mapping[str, str]) -> str:
    lines = [f"  [{shlex.quote(key)}]={shlex.quote(value)}" for key, value in rows.items()]
    return "\n".join([f"declare -gA {name}=(", *lines, ")"])


# Words that may change between calls.


def _cases() -> Iterable[str]:
    from openxla.benchmark.comparative_suite import catalog

    return (case.name for case in catalog.all_benchmarks())


def _tags() -> Iterable[str]:
    from openxla.benchmark.comparative_suite import catalog

    return sorted({tag for case in catalog.all_benchmarks() for tag in case.tags})


def _frameworks() -> Iterable[str]:
    from openxla.benchmark.def_types import ModelFrameworkType

    return (framework.value for framework in ModelFrameworkType)


def _devices() -> Iterable[str]:
    from openxla.benchmark.devices import ALL_DEVICES

    return map(str, ALL_DEVICES)


def _operators() -> Iterable[str]:
    from openxla.benchmark.operators import operators

    return operators()


def _backends() -> Iterator[str]:
    """Yields `all`, and each backend alone, with each compiler and with each compiler option."""
    from comparative_benchmark.backends.api import backends

    yield "all"
    for backend in backends().values():
        yield backend.name
        for compiler in backend.compilers:
            yield f"{backend.name}:{compiler.name}"
            yield from (f"{backend.name}:{compiler.name}+{name}" for name in compiler.options)


def _compilers() -> Iterable[str]:
    return dict.fromkeys(name.partition(":")[2] for name in _backends() if ":" in name)


WORDS: Mapping[str, Callable[[], Iterable[str]]] = MappingProxyType(
    {
        "backends": _backends,
        "cases": _cases,
        "compilers": _compilers,
        "devices": _devices,
        "frameworks": _frameworks,
        "operators": _operators,
        "tags": _tags,
    }
)


def _plain(words: Iterable[str]) -> Iterator[str]:
    """Yields names that a shell treats as one word; names from plug-ins are arbitrary."""
    return (word for word in words if word.isprintable() and " " not in word)
