"""Differences between nights of unchanged programs: the noise that a step must exceed."""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping

import numpy as np

from comparative_benchmark.analysis.stats.steps import Array
from comparative_benchmark.reporting.history.queries import Night, Window
from comparative_benchmark.reporting.history.rows import METRICS, OK
from comparative_benchmark.results.comparing.noise_floor import FEWEST_FOR_95

# Limits the number of pairs; nights a year apart say little about noise.
_MOST_NIGHTS = 60


def floors(window: Window) -> dict[tuple[str, Hashable], float]:
    """Returns by metric and place how much unchanged programs differ, as a fraction.

    It pools all pairs of nights of a series whose compiled program and package versions are known
    and equal, on one machine and device, and takes the 95 % quantile of their ratios, or the
    largest of fewer than ten pairs. The causes affect other programs, too: other processes, clocks,
    memory layout, drift. Noise common to all nights is not detected. See
    docs/design/0005-unchanged-programs.md for method and limits.
    """
    pairs: defaultdict[tuple[str, Hashable], list[Array]] = defaultdict(list)
    for series, nights in window.nights.items():
        if not window.dimensions[series]["machine"]:
            continue
        where = place(window.dimensions[series])
        for group in _unchanged(nights, window.version_sets):
            for metric in METRICS:
                values = [getattr(night, metric) for night in group]
                known = [value for value in values if value]
                if len(known) > 1:
                    pairs[metric, where].append(_differences(known))
    return {key: _floor(np.concatenate(found)) for key, found in pairs.items()}


def place(dimensions: Mapping[str, object]) -> Hashable:
    """Returns the key of the noise: machine, device and source of the measurement."""
    return tuple(dimensions[name] for name in ("source", "machine", "device"))


def identified(versions: Mapping[str, str]) -> bool:
    """Returns whether versions identify the packages: a development version may be any build."""
    return bool(versions) and not any("dev" in version for version in versions.values())


def _unchanged(
    nights: list[Night], version_sets: Mapping[int, Mapping[str, str]]
) -> list[list[Night]]:
    groups: defaultdict[tuple[str, int], list[Night]] = defaultdict(list)
    for night in nights:
        if night.program and night.status == OK:
            groups[night.program, night.version_set].append(night)
    return [
        group[-_MOST_NIGHTS:]
        for (_, version_set), group in groups.items()
        if len(group) > 1 and identified(version_sets[version_set])
    ]


def _differences(values: list[float]) -> Array:
    logs = np.log(values)
    first, second = np.triu_indices(len(values), 1)
    found: Array = np.abs(logs[first] - logs[second])
    return found


def _floor(differences: Array) -> float:
    share = 0.95 if differences.size >= FEWEST_FOR_95 else 1.0
    return math.expm1(float(np.quantile(differences, share)))
