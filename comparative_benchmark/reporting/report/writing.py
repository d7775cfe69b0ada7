"""Writes a report as Markdown, for a comment on a pull request, or as a page.

Mistakes of users become usage errors.
"""

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.reporting.report import inputs, wording
from comparative_benchmark.reporting.report.details import script_rows
from comparative_benchmark.reporting.report.inputs import ReportCase, ReportError
from comparative_benchmark.reporting.report.standings import Contest, Standing
from comparative_benchmark.reporting.report.summary import Summary, summarize
from comparative_benchmark.reporting.report.trends import Change
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document
from comparative_benchmark.terminal.screen import escaped
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import install_command

_MOST_ROWS = 20
# GitHub rejects comments of more than 65,536 characters.
MOST_CHARACTERS = 60_000
_LONGEST_REASON = 160
_Item = TypeVar("_Item")


def as_markdown(summary: Summary, *, title: str) -> str:
    """Returns the text: winners, failures, changes, and fitness of the machine."""
    lines = [f"## {escaped(title)}", "", f"**{_headline(summary)}**", ""]
    for contest in summary.contests:
        lines += [*_standings(contest, summary.baseline), ""]
    lines += [f"- {escaped(remark)}" for remark in summary.remarks]
    lines += _scripts(summary)
    lines += ["", *_broken(summary), "", *_changes(summary), "", *_machine(summary)]
    text = "\n".join(lines).rstrip() + "\n"
    if len(text) <= MOST_CHARACTERS:
        return text
    cut = text[:MOST_CHARACTERS].rpartition("\n")[0]
    return f"{cut}\n\n... truncated to fit a comment; the HTML page has the rest.\n"


def _headline(summary: Summary) -> str:
    contest = summary.contests[0] if summary.contests else None
    if contest is None or not contest.ranked:
        return "No two competitors could be compared"
    winner = contest.winner
    place = escaped(summary.place)
    if winner and winner.is_baseline:
        return f"{_code(summary.baseline)}, the baseline: no competitor is faster{place}"
    shown = winner or contest.ranked[0]
    mean = shown.mean
    assert mean is not None
    name = f"{_code(shown.competitor)} ({escaped(shown.framework)})"
    over = wording.plural(mean.cases, "common case" if shown.common else "case")
    interval = f"98 % interval {wording.limits(mean)}, {over}{place}"
    if winner is None:
        return (
            f"No winner: no competitor is clearly faster than {_code(summary.baseline)} "
            f"(highest mean: {name}, {wording.speedup(mean)}, {interval}; {mean.doubt})"
        )
    doubt = "" if winner.is_decided else "; no single case has a clear verdict"
    if contest.rivals:
        names = wording.listed([standing.name for standing in contest.rivals])
        doubt += f"; overlaps the interval of {escaped(names)}"
    faster = f"{name} is {wording.speedup(mean)} as fast as {_code(summary.baseline)}"
    return f"{faster} ({interval}{doubt})"


def _standings(contest: Contest, baseline: str) -> list[str]:
    shared = f"{contest.common_cases} of {wording.plural(contest.cases, 'workload')} in common"
    lines = [
        f"{escaped(contest.name)}: {shared}",
        "",
        f"| competitor | speed-up over {_code(baseline)} | cases | geomean | verdicts |",
        "|---|---|---|---|---|",
    ]
    lines += [_standing_row(standing) for standing in contest.standings[:_MOST_ROWS]]
    if len(contest.standings) > _MOST_ROWS:
        lines += ["", f"competitors not shown: {len(contest.standings) - _MOST_ROWS}"]
    return lines


def _standing_row(standing: Standing) -> str:
    mean = standing.mean
    level = ", compiler level" if standing.level == "compiler_level" else ""
    name = f"{_code(standing.competitor)} {escaped(standing.framework)}{level}"
    if standing.is_baseline:
        return f"| {name} | 1, baseline | {standing.cases} | | |"
    counts = [f"{count} {verdict}" for verdict, count in wording.verdicts(standing.verdicts)]
    cells = (
        f"{wording.speedup(mean)} ({wording.limits(mean)})" if mean else "-",
        f"{mean.cases if mean else 0} of {standing.cases}",
        wording.duration(mean.latency_ms) if mean else "-",
        ", ".join(counts),
    )
    return f"| {name} | {' | '.join(cells)} |"


def _scripts(summary: Summary) -> list[str]:
    rows = script_rows(summary.inputs.cases)
    if not rows:
        return []
    lines = ["", "| script | status | rate | loss | peak memory |", "|---|---|---|---|---|"]
    lines += [
        f"| {_code(row.name)} | {row.status.value} | {escaped(row.rate)} | {row.loss} "
        f"| {row.memory} |"
        for row in rows[:_MOST_ROWS]
    ]
    more = len(rows) - _MOST_ROWS
    return [*lines, "", f"scripts not shown: {more}"] if more > 0 else lines


def _broken(summary: Summary) -> list[str]:
    counts = ", ".join(f"{count} {name}" for name, count in summary.statuses.items())
    lines = [f"**Broken: {len(summary.broken)}** ({escaped(counts)})"]
    lines += _items(summary.broken, _broken_line)
    lines += [f"- not read: {_reason(reason)}" for reason in summary.inputs.refused[:_MOST_ROWS]]
    return lines


def _broken_line(case: ReportCase) -> str:
    return (
        f"- {case.status.value}: {_code(case.label)} {_code(case.competitor)} "
        f"({escaped(case.framework)}): {_reason(case.result.reason or '')}"
    )


def _changes(summary: Summary) -> list[str]:
    changes = summary.changes
    if changes is None:
        return ["**Changed:** not compared; no baseline results were given"]
    passed, cases = changes.summary.passed, changes.summary.cases
    counted = ("slower", "faster", "wrong", "missing")
    counts = ", ".join(f"{len(getattr(changes, name))} {name}" for name in counted)
    lines = [
        f"**Changed since {_code(changes.name)}:** {counts}; {passed} of {cases} cases compared"
    ]
    for group in (changes.wrong, changes.slower, changes.faster, changes.missing):
        lines += _items(group, _change_line)
    return lines + [f"- {escaped(line)}" for line in changes.remarks.lines]


def _change_line(change: Change) -> str:
    item = change.comparison
    name = f"{_code(item.label)} {_code(item.competitor)} ({escaped(item.framework)})"
    if change.percent is None:
        return f"- {item.fate.value}: {name}: {_reason(item.reason)}"
    return f"- {item.verdict.value} {wording.percent(change.percent)}: {name}"


def _machine(summary: Summary) -> list[str]:
    findings = summary.fitness.findings
    lines = [f"**Machine: {summary.fitness.headline.lower()}**"]
    return lines + [f"- {finding.level}: {escaped(finding.text)}" for finding in findings]


def _items(items: Sequence[_Item], line: Callable[[_Item], str]) -> list[str]:
    lines = [line(item) for item in items[:_MOST_ROWS]]
    return lines + ([f"- and {len(items) - _MOST_ROWS} more"] if len(items) > _MOST_ROWS else [])


def _reason(text: str) -> str:
    short = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    return escaped(short)


def _code(text: str) -> str:
    # Only a backtick ends a code span; a bar ends a table cell even within one.
    return "`" + " ".join(text.replace("`", "'").replace("|", "\\|").split()) + "`"


_EXTRAS = dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "report")
_EXTRAS["sqlalchemy"] = "history"


def write_report(
    document: Document, path: Path, *, title: str, baseline: str | None, folder: Path | None
) -> None:
    """Writes the page of one document, or Markdown if the name of the file ends in `.md`.

    Names of hosts and folders are omitted, as in `cbs report`.

    Args:
      document: content of a results file.
      path: path of the file to write.
      folder: folder of the results file, for links to profiles; None if it is not in a file.
      title: heading of the page.
      baseline: competitor of the speed-ups; None for the default one.

    Raises:
      UsageError: results or a package are missing, or the file cannot be written.
    """
    with mistakes_as_usage_errors():
        merged = inputs.merge([published(document)])
        if folder is not None:
            merged = attrs.evolve(
                merged, folders=dict.fromkeys((r.run_id for r in merged.runs), folder)
            )
        summary = summarize(merged, against=baseline)
        if path.suffix == ".md":
            write_file(path, as_markdown(summary, title=title))
        else:
            write_file(path, page_of(summary, title, path))


def page_of(summary: Summary, title: str, path: Path) -> str:
    """Returns the page; links in it are relative to its path."""
    # The other outputs need no template engine.
    from comparative_benchmark.reporting.report import page

    return page.render(summary, title=title, made=datetime.datetime.now(datetime.UTC), path=path)


@contextlib.contextmanager
def mistakes_as_usage_errors() -> Iterator[None]:
    """Raises `UsageError` for files that cannot be read or written, and for missing packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise UsageError(
            f"{error.name} is not installed; run {install_command(_EXTRAS[error.name])}"
        ) from error


def write_file(path: Path, text: str) -> None:
    """Writes a file atomically, so that readers never see a partial page."""
    try:
        write_atomically(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error}") from error
