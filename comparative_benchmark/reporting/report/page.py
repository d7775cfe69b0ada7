"""The page: one file that needs no network, and runs no code from results files.

Jinja escapes all text; data are JSON without `<`; scripts create elements, never HTML. Only the
scripts and styles of this package may run: their digests are in the security policy.
"""

import base64
import datetime
import hashlib
import math
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from comparative_benchmark.reporting.report import payload, wording
from comparative_benchmark.reporting.report.details import script_rows
from comparative_benchmark.reporting.report.standings import Contest
from comparative_benchmark.reporting.report.summary import Summary

_FOLDER = Path(__file__).parent
# Items of a list on the first screen; the matrix has the rest.
MOST_LISTED = 5
# URL parameters, as in `static/2-state.js`, with their display names.
FILTERS = {
    "framework": "Framework",
    "backend": "Backend",
    "dtype": "Type",
    "batch": "Batch",
    "tag": "Tag",
    "device": "Device",
    "status": "Status or verdict",
}


def render(
    summary: Summary, *, title: str, made: datetime.datetime, path: Path | None = None
) -> str:
    """Returns the HTML text.

    Args:
      summary: content of the page.
      title: heading of the page.
      made: time of the report.
      path: path of the future page, for links to profiles; None for no links.
    """
    script = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((_FOLDER / "static").glob("*.js"))
    )
    style = (_FOLDER / "static" / "page.css").read_text(encoding="utf-8")
    data = payload.build(summary, path)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "w": wording,
        "forest": _forest,
        "most": MOST_LISTED,
        "FILTERS": FILTERS,
    }
    return environment.get_template("page.html").render(
        title=title,
        made=made.strftime("%d %b %Y, %H:%M UTC"),
        s=summary,
        machines=_machines(summary),
        policy=_policy(script, style),
        # our own script with its digest, or JSON without `<`
        script=Markup(script),  # noqa: S704
        style=Markup(style),  # noqa: S704
        data=Markup(payload.embedded(data)),  # noqa: S704
        dots=data["dots_per_case"],
        sweeps=bool(data["sweeps"]),
        bits=bool(data["bits"]),
        scripts=script_rows(summary.inputs.cases),
    )


def _policy(script: str, style: str) -> str:
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    return (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _machines(summary: Summary) -> list[str]:
    found = (
        f"{case.machine}, {case.threads} threads" if case.threads else case.machine
        for case in summary.inputs.cases
    )
    return list(dict.fromkeys(found))


def _forest(contest: Contest) -> dict[str, Any]:
    """Returns the position of each mean on a logarithmic axis, in percent of its width."""
    means = {
        standing.name: mean
        for standing in contest.standings
        if (mean := standing.mean) and not standing.is_baseline
    }
    ends = [1.0]
    for mean in means.values():
        limits = (mean.estimate, mean.low, mean.high)
        ends += [end for end in limits if 0 < end < math.inf]
    low, high = min(ends) / 1.1, max(ends) * 1.1

    def place(value: float) -> str:
        share = math.log(value / low) / math.log(high / low) if 0 < value < math.inf else value > 0
        return f"{100 * min(1.0, max(0.0, float(share))):.2f}%"

    return {
        "one": place(1.0),
        "places": {
            name: (place(mean.low), place(mean.estimate), place(mean.high), mean.side)
            for name, mean in means.items()
        },
    }
