"""What is not installed, in one line: it would fill a table with rows that hold no number."""

import re
from collections.abc import Mapping, Sequence

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Result, Status

# As `BackendInfo.absence` says it, and `runs.runner` of another environment.
# A backend may be there without what its recipes need.
_RECIPES = re.compile(r"(?P<recipes>recipes of \S+) need (?P<modules>.+), which is not installed;")
_ABSENCE = re.compile(
    r".+? not installed; run (?:.*, or )?(?P<install>.+)"
    r"|(?P<where>.+?) not installed in the environment (?P<environment>.+)",
    re.DOTALL,
)


def is_not_installed(result: Result) -> bool:
    """Tells whether a trial did not run because a package is not installed."""
    return (
        result.status is Status.UNSUPPORTED
        and result.phase == "import"
        and _ABSENCE.fullmatch(result.reason or "") is not None
    )


def split(cases: Sequence[Case]) -> tuple[list[Case], str]:
    """Returns the cases whose packages are installed, and the line for the others.

    The line is empty if there are no others. A backend that ran models of another framework is
    named with the framework that it lacks.
    """
    installed = [case for case in cases if not is_not_installed(case.result)]
    present = {case.result.definition.backend for case in installed}
    reasons: dict[str, str] = {}
    for case in cases:
        if is_not_installed(case.result):
            backend = case.result.definition.backend
            reason = case.result.reason or ""
            name = f"{backend} for {case.framework} models" if backend in present else backend
            if recipes := _RECIPES.match(reason):
                name = f"{recipes['modules']} for {recipes['recipes']}"
            reasons[name] = reason
    return installed, line(reasons)


def line(reasons: Mapping[str, str]) -> str:
    """Returns e.g. `not installed: iree, tflite (pip install -e '.[all]')`; empty for none.

    Args:
      reasons: by the name of what is not installed, as `BackendInfo.absence` says them.
    """
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(_remedy(reason), []).append(name)
    texts = (f"{', '.join(names)} ({remedy})" for remedy, names in groups.items())
    return f"not installed: {', '.join(texts)}" if groups else ""


def _remedy(reason: str) -> str:
    """Returns the shortest command that installs it; in which environment, if it needs one."""
    found = _ABSENCE.fullmatch(reason)
    if found is None:
        return reason
    where = f"{found['where']} in the environment {found['environment']}"
    return found["install"] or where
