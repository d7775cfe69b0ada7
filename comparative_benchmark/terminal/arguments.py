"""Adds options to a parser: fields of `RunRequest`, and others that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any

from comparative_benchmark.request import default_of, fraction, options

# Options of several commands that `cbs run` lacks.
_OTHERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "count_unchanged": (("--count-unchanged",), {"action": "store_true"}),
    "threshold": (
        ("--threshold",),
        {
            "type": fraction,
            "default": 0.01,
            "help": "relative difference below which a change is noise (default: 0.01)",
        },
    ),
    "with_host": (
        ("--with-host",),
        {"action": "store_true", "help": "keep host names and full paths"},
    ),
}
# Options with a narrower meaning in commands that do not run cases.
_ELSEWHERE: dict[str, dict[str, Any]] = {
    "output": {"default": None},
    "root_dir": {"help": "directory of checkpoints and artifacts, as in `cbs run`"},
    "dry_run": {"help": "print what would be done, without doing it"},
    "json": {"help": "print JSON"},
}


def spellings(*names: str) -> list[str]:
    """Returns option names in both spellings, with dashes and with underscores."""
    found = []
    for name in names:
        bare = name.lstrip("-")
        dashes = name[: len(name) - len(bare)]
        found += [name, dashes + bare.replace("-", "_"), dashes + bare.replace("_", "-")]
    return list(dict.fromkeys(found))


def add_options(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds options that several commands share.

    Args:
      parser: parser of a command, or a group of one.
      names: option names with underscores; `suite` also adds `suite_dir`.
      changes: keyword arguments of `add_argument` that differ in this command.
    """
    for name in names:
        if name == "suite":
            add_options(parser, "suite_dir")
        if name in _OTHERS:
            flags, keywords = _OTHERS[name]
            parser.add_argument(*spellings(*flags), **{**keywords, **changes})
        else:
            _add_field(parser, name, {**_ELSEWHERE.get(name, {}), **changes})


def add_run_options(
    parser: argparse.ArgumentParser, names: Sequence[str], **changes: dict[str, Any]
) -> dict[str, Any]:
    """Adds fields of `RunRequest` as options, in the order and the groups of `RunRequest`.

    Returns the groups by their headings.

    Args:
      parser: parser of a command.
      names: field names.
      changes: keyword arguments of `add_argument` that differ, by field.
    """
    groups: dict[str, Any] = {}
    for name, (_, option) in options().items():
        if name in names:
            group = groups.get(option.group) or parser.add_argument_group(option.group)
            groups[option.group] = group
            _add_field(group, name, changes.get(name, {}))
    return groups


def _add_field(parser: Any, name: str, changes: dict[str, Any]) -> None:
    field, option = options()[name]
    default = default_of(field)
    keywords: dict[str, Any] = {"help": option.help.replace("%", "%%"), "default": default}
    if option.flags:
        keywords["dest"] = option.dest or name
    else:
        keywords["nargs"] = "?"
    if isinstance(default, bool):
        keywords["action"] = "store_true"
    else:
        keywords |= {"type": option.parse, "metavar": option.metavar}
        keywords["choices"] = option.choices or None
    if option.repeated:
        keywords |= {"action": "append", "default": list(default)}
    parser.add_argument(*(spellings(*option.flags) or [name]), **{**keywords, **changes})
