"""The kinds of pairs that `aa_calibration` measures, and which verdicts on them are right."""

import attrs

from comparative_benchmark.analysis.stats.analysis import Verdict

FALSE_GOAL = 0.02
POWER_GOAL = 0.90
# A share of fewer pairs per section is not meaningful.
DUE_PAIRS = 60


@attrs.frozen(kw_only=True)
class Section:
    """Pairs of one kind.

    Attributes:
      slow_down: added time per iteration of the candidate, as a share of the iteration.
      busy: number of other processes that use the CPUs all the time.
    """

    slow_down: float
    busy: int = 0

    @property
    def name(self) -> str:
        """Name in the tables."""
        what = f"{self.slow_down:.0%} slower" if self.slow_down else "A/A"
        return f"{what}, {f'{self.busy} busy processes' if self.busy else 'quiet'}"

    def is_false(self, verdict: str) -> bool:
        """Returns whether a verdict is wrong; a missing verdict is not wrong."""
        if self.slow_down:
            return verdict == Verdict.FASTER.value
        return verdict in (Verdict.FASTER.value, Verdict.SLOWER.value)

    def is_found(self, verdict: str) -> bool:
        """Returns whether a slow-down was found."""
        return bool(self.slow_down) and verdict == Verdict.SLOWER.value


SECTIONS = (Section(slow_down=0.0), Section(slow_down=0.03), Section(slow_down=0.0, busy=2))
