"""Accuracy in words: what a program changed at its model's task, and what changed since."""

from collections.abc import Iterable, Sequence

import attrs

from comparative_benchmark.judge.accuracy import LEVEL, Accuracy
from comparative_benchmark.results.case import Case

# A ratio of perplexities no further from 1 is that of another order of sums.
_NOTHING = 1e-4


def change_text(found: Accuracy) -> str:
    """Returns what differs from the float64 model, in `-` and `+` right classes, or as a ratio.

    Empty where a result does not tell, or has no value.
    """
    if found.lost is not None:
        changed = "" if found.changed is None else f"{found.changed} "
        return f"{changed}(-{found.lost} +{found.gained})"
    if found.ratio is None:
        return ""
    return f"x{found.ratio:.4f} ({found.ratio_low:.4f}-{found.ratio_high:.4f})"


def remarks_on(cases: Sequence[Case]) -> list[str]:
    """Returns how sure accuracies are, and which programs differ from the float64 model.

    Differing are those that say another class of some example, or whose perplexity is another for
    sure. Who loses more than its task allows is named as such.
    """
    about: dict[str, str] = {}
    lines = []
    for case in cases:
        found = case.metrics.accuracy
        if not found:
            continue
        if found.low is not None:
            about.setdefault(found.task, _about(found))
        if found.loses_too_much or _differs(found):
            who = f"{case.label} from {case.framework} on {case.competitor}"
            lines.append(f"accuracy of {who}: {_verdict(found)}")
    return [*about.values(), *lines]


def changes(pairs: Iterable[tuple[Case, Case]]) -> list[str]:
    """Returns a line for each pair of results whose accuracy is another than before."""
    lines = []
    for old, new in pairs:
        before, after = old.metrics.accuracy, new.metrics.accuracy
        if not before or not after or str(before) == str(after):
            continue
        lines.append(
            f"accuracy of {new.label} on {new.competitor}: {before} before, {after} now"
            + (f", {_too_much(after)}" if after.loses_too_much else "")
        )
    return lines


def _about(found: Accuracy) -> str:
    """Says what an accuracy is of, and how wide an interval so many examples give."""
    ends = [str(attrs.evolve(found, value=value)) for value in (found.low, found.high)]
    count = f"{found.examples} {'examples' if found.metric == 'top-1' else 'tokens'}"
    return (
        f"accuracy: {found.metric} on {found.task}, {count}: {found}, "
        f"{LEVEL:.0%} interval {' to '.join(ends)}"
    )


def _differs(found: Accuracy) -> bool:
    if found.changed is not None:
        return found.changed > 0
    if found.ratio_low is None or found.ratio_high is None:
        return found.value is None
    return found.ratio_low > 1 + _NOTHING or found.ratio_high < 1 - _NOTHING


def _verdict(found: Accuracy) -> str:
    text = f"{found}, {attrs.evolve(found, value=found.reference)} in float64"
    if change := change_text(found):
        text += f", {'changed ' if found.metric == 'top-1' else 'ratio '}{change}"
    return f"{text}: {_too_much(found)}" if found.loses_too_much else text


def _too_much(found: Accuracy) -> str:
    bound = 100 * (found.most_lost or 0.0)
    unit = "points" if found.metric == "top-1" else "%"
    return f"loses more than its task allows ({bound:g} {unit})"
