"""What a check found, and which checks there are."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.terminal.screen import Screen

State = Literal["ok", "failed", "not_applicable", "not_run"]

# In the order in which they are shown, with what each asks.
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
      state: what came of it; a check that is `not_run` depends on one that failed.
      detail: what was found, in a sentence.
      fix: what to do about it, where it failed.
    """

    check: str
    framework: str
    state: State
    detail: str
    fix: str | None = None


_STYLES = {"ok": "green", "failed": "red", "not_applicable": "dim", "not_run": "yellow"}
_WORDS = {"not_applicable": "n/a", "not_run": "not run"}
# What a pipe has no width for: never wrap what another program or a log will read.
_WIDTH_OF_A_PIPE = 220


def print_findings(
    found: Sequence[Finding], columns: Sequence[str], checks: Mapping[str, str] = CHECKS
) -> None:
    """Prints a table of checks, a column for each framework or test, and what failed."""
    out = Screen()
    if not out.is_terminal:
        out = Screen(width=_WIDTH_OF_A_PIPE)
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for heading in ("check", *columns):
        table.add_column(heading, no_wrap=True, min_width=max(7, len(heading)))
    table.add_column("")  # in a narrow terminal the questions are wrapped, and nothing else
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
