"""What is to be known beside a comparison of two files: noise floor, verdicts withheld, drift."""

from collections.abc import Iterable, Sequence

import attrs

from comparative_benchmark.results.accuracies import changes
from comparative_benchmark.results.case import UNKNOWN, Case, cases_of, latest, matched
from comparative_benchmark.results.compare_samples import is_positive, mean_mhz
from comparative_benchmark.results.comparison import Comparison
from comparative_benchmark.results.mixtures import mixture_remarks
from comparative_benchmark.results.noise_floor import (
    NoiseFloor,
    NoiseFloorError,
    floor_text,
    load_noise_floor,
    noise_floor,
)
from comparative_benchmark.results.record import Document
from comparative_benchmark.results.settings import setting_differences

# Runs that began within an hour of each other saw about the same machine.
_APART_S = 3600.0
_CONDITIONS = (
    *("hostname", "system", "governor", "usable_cpus", "pinned_cpus", "memory_bytes"),
    "python",
)
# Half a CPU that was busy before the run, and clocks 2 % apart, can be seen in latencies.
_LOAD_APART, _CLOCK_APART = 0.5, 0.02


@attrs.frozen(kw_only=True)
class Remarks:
    """What is to be known beside the comparisons.

    Attributes:
      noise_floor: of the programs that both files hold unchanged; None without such.
      saved_noise_floor: what `cbs doctor --noise-floor` kept of that machine; None if nothing.
      withheld: how many verdicts are `unclear` because the machine may have made the difference.
      drift: why the machine may not have been the same for both files; None if nothing says so.
      mixtures: what the compared programs hold, or were asked, differently.
      accuracies: which programs do their task better or worse than before.
    """

    noise_floor: NoiseFloor | None
    saved_noise_floor: NoiseFloor | None
    withheld: int
    drift: str | None
    mixtures: Sequence[str] = ()
    accuracies: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        """Sentences for a person, drift last."""
        found = []
        for floor, name in (
            (self.noise_floor, "noise floor"),
            (self.saved_noise_floor, "saved noise floor"),
        ):
            if floor is not None and floor.pooled is not None:
                found.append(f"{name}: {floor_text(floor.pooled)}")
        if self.withheld:
            found.append(
                f"verdicts withheld because the machine may have caused the difference: "
                f"{self.withheld}; --count-unchanged shows them"
            )
        return [*found, *self.mixtures, *self.accuracies, *([self.drift] if self.drift else [])]


def remarks(baseline: Document, candidate: Document, comparisons: Sequence[Comparison]) -> Remarks:
    """Returns what is to be known beside the comparisons of two documents."""
    before, after = (latest(cases_of(document)) for document in (baseline, candidate))
    pairs = [(old, new) for old, new in matched(before, after) if old and new]
    try:
        floor = noise_floor([baseline, candidate])
    except NoiseFloorError:
        floor = None
    machines = {case.machine for case in (*before, *after)} - {UNKNOWN}
    return Remarks(
        noise_floor=floor if floor and floor.pooled else None,
        saved_noise_floor=load_noise_floor(next(iter(machines))) if len(machines) == 1 else None,
        withheld=sum(item.withheld is not None for item in comparisons),
        drift=_drift(pairs),
        mixtures=mixture_remarks(case for pair in pairs for case in pair),
        accuracies=changes(pairs),
    )


def _drift(pairs: Sequence[tuple[Case, Case]]) -> str | None:
    """Says what of time and conditions differs between the runs of compared cases."""
    gaps = [
        abs((new.started - old.started).total_seconds())
        for old, new in pairs
        if old.started and new.started
    ]
    found = [f"measured {_duration(max(gaps))} apart"] if max(gaps, default=0) > _APART_S else []
    told = {text: None for old, new in pairs for text in _conditions(old, new)}
    found += [*told, *_clocks(pairs)]
    if not found:
        return None
    return (
        f"the machine may have changed between the files ({'; '.join(found)}), which intervals do "
        "not cover; if it matters, race both in one `cbs run`"
    )


def _conditions(old: Case, new: Case) -> Iterable[str]:
    if old.host is None or new.host is None:
        return
    for name in _CONDITIONS:
        values = [getattr(case.host, name) for case in (old, new)]
        if values[0] != values[1]:
            yield f"{name} {values[0]} vs {values[1]}"
    yield from setting_differences(old.metrics, new.metrics)
    before, after = old.host.load_average[0], new.host.load_average[0]
    if abs(before - after) > _LOAD_APART:
        yield f"load {before:.1f} vs {after:.1f}"


def _clocks(pairs: Sequence[tuple[Case, Case]]) -> Iterable[str]:
    both = [(mean_mhz(old.metrics), mean_mhz(new.metrics)) for old, new in pairs]
    known = [(old, new) for old, new in both if is_positive(old) and is_positive(new)]
    if known:
        before, after = (sum(side) / len(known) for side in zip(*known, strict=True))
        if abs(after / before - 1) > _CLOCK_APART:
            yield f"clocks {before:.0f} MHz vs {after:.0f} MHz"


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.0f} days"
