"""The list of checks, and their findings."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.terminal.screen import Screen

State = Literal["ok", "failed", "not_applicable", "not_run"]

# In display order, each with the property that it checks.
CHECKS = MappingProxyType(
    {
        "definitions": "cases of the catalogue use it",
        "docstrings": "everything public has a docstring",
        "requirements": "requirements.txt exists, and the installed packages satisfy it",
        "install": "requirements.txt can be installed into a fresh environment",
        "runs elsewhere": "it runs as a module from another directory",
        "types": "inputs and outputs have the declared shapes and types",
        "repeatable": "the same seed gives the same output in another process",
        "seed": "another seed gives another output",
        "signal": "outputs are finite and not constant",
        "memory": "its memory is freed when it is dropped",
        "agreement": "its implementations agree in float64",
    }
)


@attrs.frozen(kw_only=True)
class Finding:
    """The outcome of one check of one implementation.

    Attributes:
      check: a key of `CHECKS`.
      framework: folder of the implementation, e.g. `jax`.
      state: the outcome; a check is `not_run` if one that it depends on failed.
      detail: details of the outcome, as a sentence.
      fix: advice in case of failure.
    """

    check: str
    framework: str
    state: State
    detail: str
    fix: str | None = None


_STYLES = {"ok": "green", "failed": "red", "not_applicable": "dim", "not_run": "yellow"}
_WORDS = {"not_applicable": "n/a", "not_run": "not run"}
# Width for pipes, so that logs and other programs receive unwrapped lines.
_WIDTH_OF_A_PIPE = 220


def print_findings(
    found: Sequence[Finding], columns: Sequence[str], checks: Mapping[str, str] = CHECKS
) -> None:
    """Prints a table of checks, a column for each framework or test, and the failures."""
    out = Screen()
    if not out.is_terminal:
        out = Screen(width=_WIDTH_OF_A_PIPE)
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for heading in ("check", *columns):
        table.add_column(heading, no_wrap=True, min_width=max(7, len(heading)))
    table.add_column("")  # in a narrow terminal, only this column is wrapped
    states = {(item.check, item.framework): item.state for item in found}
    for check, question in checks.items():
        row = [states.get((check, column)) for column in columns]
        if any(row):
            words = [Text(_WORDS.get(s, s), style=_STYLES[s]) if s else Text("-") for s in row]
            table.add_row(check, *words, Text(question, style="dim"))
    out.print(table)
    for item in found:
        if item.state != "ok":
            word = _WORDS.get(item.state, item.state)
            out.print(
                Text(f"{word}  {item.framework}  {item.check}: {item.detail}"), soft_wrap=True
            )
            if item.fix:
                out.print(Text(f"    fix: {item.fix}"), soft_wrap=True)
    bad = sum(item.state in ("failed", "not_run") for item in found)
    out.print(
        Text(f"{len(found)} checks, {bad} failed or not run" if bad else f"{len(found)} checks ok")
    )
