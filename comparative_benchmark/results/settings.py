"""The settings of a result, and the differences between two results.

Settings are the environment variables of workers that change speed or numbers, and the effective
settings of the processes: threads, denormals, allocator, BLAS, CPUs, handling of outputs.
"""

from collections.abc import Iterator, Mapping

from msgspec import UNSET

from comparative_benchmark.analysis.machine.effective import EffectiveSettings
from comparative_benchmark.results.record import Metrics


def setting_differences(old: Metrics, new: Metrics) -> Iterator[str]:
    """Yields descriptions of differing settings, among those that both results record."""
    for before, after in zip(settings(old), settings(new), strict=True):
        if before is None or after is None:
            continue
        for name in sorted(before.keys() | after.keys()):
            values = [found.get(name, "unset") for found in (before, after)]
            if values[0] != values[1]:
                yield f"{name} {values[0]} vs {values[1]}"


def settings(metrics: Metrics) -> tuple[Mapping[str, str] | None, ...]:
    """Returns environment variables, effective settings and handling of outputs, by name.

    Each is None if the result does not record it.
    """
    outputs = metrics.program.outputs
    return (
        None if metrics.variables is UNSET else metrics.variables,
        _effective(metrics),
        None if outputs is None else {"outputs": outputs},
    )


def _effective(metrics: Metrics) -> Mapping[str, str] | None:
    """Returns the combined settings of all processes; None if no process recorded them."""
    told = [_named(p.effective) for p in metrics.processes or () if p.effective is not None]
    if not told:
        return None
    # Join the values of processes that differ.
    return {name: " or ".join(sorted({one[name] for one in told})) for name in told[0]}


def _named(found: EffectiveSettings) -> dict[str, str]:
    before, after = found.denormals_before, found.denormals_after
    return {
        "effective threads": str(found.threads),
        "effective inter-op threads": str(found.inter_op_threads),
        "denormals": str(before if before == after else f"{before}, then {after}"),
        "allocator": str(found.allocator),
        "BLAS": "; ".join(found.blas) or "unknown",
        "worker CPUs": str(len(found.affinity)),
    }
