"""The page: one file that needs no network, and lets nothing from a results file run.

Jinja escapes every text; the data are JSON without a `<`; the scripts make elements, never HTML.
Only the scripts and styles of this package may run: their digests are in the security policy.
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
# How many of a list stand on the first screen; the matrix has the rest.
MOST_LISTED = 5
# Parameters of the address, as in `static/2-state.js`, and what a person calls them.
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
      summary: what to show.
      title: heading of the page.
      made: time to be shown as that of the report.
      path: where the page will be, for links to profiles; None makes none.
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
        # Ours, and digested; or JSON that has no `<`.
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
    """Returns where on a logarithmic axis, in percent of its width, each mean stands."""
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
