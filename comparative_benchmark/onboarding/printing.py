"""Shows what checks found."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from comparative_benchmark.onboarding.findings import CHECKS, Finding
from comparative_benchmark.terminal.screen import Screen

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
