"""What `aa_calibration` measures: the kinds of pairs, and what a verdict on each is worth."""

import attrs

from comparative_benchmark.analysis.stats.analysis import Verdict

FALSE_GOAL = 0.02
POWER_GOAL = 0.90
# Pairs that each section needs before a share means something.
DUE_PAIRS = 60


@attrs.frozen(kw_only=True)
class Section:
    """Pairs of one kind.

    Attributes:
      slow_down: by which share of its time each iteration of the candidate is prolonged.
      busy: how many other processes use the CPUs all the time.
    """

    slow_down: float
    busy: int = 0

    @property
    def name(self) -> str:
        """What tables call it."""
        what = f"{self.slow_down:.0%} slower" if self.slow_down else "A/A"
        return f"{what}, {f'{self.busy} busy processes' if self.busy else 'quiet'}"

    def is_false(self, verdict: str) -> bool:
        """Tells whether a verdict is wrong; to have none is not."""
        if self.slow_down:
            return verdict == Verdict.FASTER.value
        return verdict in (Verdict.FASTER.value, Verdict.SLOWER.value)

    def is_found(self, verdict: str) -> bool:
        """Tells whether a slow-down was found."""
        return bool(self.slow_down) and verdict == Verdict.SLOWER.value


SECTIONS = (
    Section(slow_down=0.0),
    Section(slow_down=0.03),
    Section(slow_down=0.0, busy=2),
)
