"""Command-line parsers, and options that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from comparative_benchmark.errors import EXIT_FAILED
from comparative_benchmark.request import default_of, fraction, options
from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.text import did_you_mean, printable

# Options that several commands share, but not `cbs run`.
_OTHERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "count_unchanged": (
        ("--count-unchanged",),
        {
            "action": "store_true",
            "help": "also count performance changes of unchanged programs, and changes that "
            "the machine may have caused",
        },
    ),
    "threshold": (
        ("--threshold",),
        {
            "type": fraction,
            "default": 0.01,
            "help": "relative difference below which a change counts as noise (default: 0.01)",
        },
    ),
    "with_host": (
        ("--with-host",),
        {"action": "store_true", "help": "keep host names and full paths"},
    ),
}
# Changes to options of `cbs run` in commands that do not run cases.
_ELSEWHERE: dict[str, dict[str, Any]] = {
    "output": {"default": None},
    "dry_run": {"help": "print what would be done, without doing it"},
    "json": {"help": "print JSON"},
}


class _Help(argparse.HelpFormatter):
    """Shows only one spelling of each option: `--trial-budget`, not `--trial_budget`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        given = action.option_strings
        dashed = [name for name in given if name.replace("_", "-") == name]
        shown = [name for name in given if name in dashed or name.replace("_", "-") not in dashed]
        action.option_strings = shown
        try:
            return super()._format_action_invocation(action)
        finally:
            action.option_strings = given


class HelpWithExamples(_Help, argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks in examples."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with the most similar valid word, and then the help command.

    Exits with 1 instead of argparse's 2, which here means that an output was wrong.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **keywords})

    def error(self, message: str) -> NoReturn:
        """Prints the message, and exits."""
        said = printable(without_secrets(" ".join(message.split("\n"))))
        self.exit(EXIT_FAILED, f"{self.prog}: {said}\nusage: {self.prog} --help\n")

    def refuse_unknown(self, words: "Sequence[str]") -> None:
        """Exits with an error if any words are left over."""
        if words:
            option = words[0].partition("=")[0]
            what = "unknown option" if option.startswith("-") else "unexpected argument"
            near = did_you_mean(option, {*self._option_string_actions} - {"--help"})
            self.error(f"{what} {option}{near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = did_you_mean(str(value), choices) or f"; choices are {', '.join(choices)}"
            name = str(action.metavar or action.dest).lower()
            said = "/".join(action.option_strings) or name
            raise argparse.ArgumentError(None, f"unknown {said} {value!r}{what}")


def spellings(*names: str) -> list[str]:
    """Returns each option name in two spellings, with dashes and with underscores."""
    both = []
    for name in names:
        bare = name.lstrip("-")
        dashes = name[: len(name) - len(bare)]
        both += [name, dashes + bare.replace("-", "_"), dashes + bare.replace("_", "-")]
    return list(dict.fromkeys(both))


def add_options(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds options that several commands share.

    Args:
      parser: parser for a command, or one of its groups.
      names: option names with underscores; `suite` also adds `suite_dir`.
      changes: keyword arguments for `add_argument` that differ in this command.
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
    """Adds `RunRequest` fields as options, in their order and groups.

    Returns the groups by their headings.

    Args:
      parser: parser for a command.
      names: field names.
      changes: keyword arguments for `add_argument` that differ, by field.
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
