"""Selects the two results that `cbs explain` compares."""

import re
from collections.abc import Sequence

from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.record import Document, Status
from openxla.benchmark.text import did_you_mean

_MOST_SHOWN = 12


def choose(
    document: Document, asked: Sequence[str], *, case: str | None = None, device: str | None = None
) -> tuple[Case, Case]:
    """Returns two results of one workload on one device, the slower one first.

    Args:
      document: content of a results file.
      asked: up to two competitors; missing ones are the fastest, then the slowest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.

    Raises:
      UsageError: there are no two such results; the message lists the choices.
    """
    if len(asked) > 2:
        raise UsageError(f"expected at most two competitors, got {len(asked)}")
    cases = _of_workload(document, case, device)
    measured = [found for found in cases if found.metrics.median_ms is not None]
    chosen = [_named(name, cases) for name in asked]
    measured.sort(key=lambda found: found.metrics.median_ms or 0.0)
    # Add the fastest, then the slowest, until there are two.
    for extreme in (measured[:1] + measured[:0:-1]) if len(chosen) < 2 else ():
        if extreme not in chosen and len(chosen) < 2:
            chosen.append(extreme)
    if len(chosen) < 2 or chosen[0] is chosen[1]:
        told = ", ".join(_label(found) for found in cases)
        raise UsageError(
            f"{cases[0].label}: two competitors with a latency are required; the file has {told}"
        )
    first, second = sorted(chosen, key=lambda found: -(found.metrics.median_ms or 0.0))
    if first.machine != second.machine:
        raise UsageError(
            f"{_label(first)} was measured on {first.machine}, {_label(second)} on "
            f"{second.machine}: results of different machines are not compared"
        )
    return first, second


def _of_workload(document: Document, case: str | None, device: str | None) -> list[Case]:
    """Returns the latest results for the selected workload and device."""
    latest = list({found.result.key: found for found in cases_of(document)}.values())
    if not latest:
        raise UsageError("the results file contains no results")
    if case is not None:
        try:
            pattern = re.compile(case)
        except re.error as error:
            raise UsageError(f"--case {case!r} is not a regular expression: {error}") from error
        latest = [found for found in latest if any(map(pattern.search, _names(found)))]
        if not latest:
            names = [name for found in cases_of(document) for name in _names(found)]
            raise UsageError(f"no case in the file matches {case!r}{did_you_mean(case, names)}")
    for what, option, choices in (
        ("device", "-device", list(dict.fromkeys(found.device for found in latest))),
        ("workload", "--case", list(dict.fromkeys(found.label for found in latest))),
    ):
        if what == "device" and device is not None:
            latest = [found for found in latest if found.device == device]
            if not latest:
                raise UsageError(
                    f"no results for device {device}; choices are {', '.join(choices)}"
                )
        elif len(choices) > 1:
            told = "\n".join(f"  {choice}" for choice in choices[:_MOST_SHOWN])
            raise UsageError(
                f"the file contains {len(choices)} {what}s; choose one with {option}:\n{told}"
            )
    return latest


def _names(found: Case) -> tuple[str, str, str]:
    definition = found.result.definition
    return (definition.benchmark_name, definition.model, found.label)


def _named(asked: str, cases: Sequence[Case]) -> Case:
    """Returns a competitor's result.

    Competitors are `backend` or `backend:compiler`, with or without `/framework`.
    """
    name, _, framework = asked.partition("/")
    found = [case for case in cases if not framework or case.framework == framework]
    exact = [case for case in found if case.competitor == name]
    chosen = exact or [case for case in found if case.competitor.partition(":")[0] == name]
    if len(chosen) != 1:
        what = "more than one competitor" if chosen else "no competitor"
        told = ", ".join(map(_label, chosen or cases))
        raise UsageError(f"{asked!r} matches {what} of {cases[0].label}; choices are {told}")
    [one] = chosen
    if one.metrics.median_ms is None:
        status = one.why if one.status is not Status.OK else "it was only compiled"
        raise UsageError(f"{_label(one)} has no latency to explain: {status}")
    return one


def _label(found: Case) -> str:
    return f"{found.competitor}/{found.framework}"
