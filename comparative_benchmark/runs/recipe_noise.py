"""Noise of recipes, measured with a plain run that rounds the same values.

The limit of a quantised program is `MARGIN_DB` below this ratio, because correct programs differ in
details. A constant for each recipe would have to fit the model with the most noise. In other models
it would accept smaller faults, such as a dropped mask or a missing head.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import attrs

from comparative_benchmark.judge.quantized_verification import sqnr_db
from comparative_benchmark.judge.verification import relative_rmse
from comparative_benchmark.recipes.rounding import Rounding
from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.strict_json import MalformedError, Record
from openxla.benchmark.artifacts.workload_store import QUANTISED, Due, WorkloadArtifacts
from openxla.benchmark.files import write_atomically

MARGIN_DB = 3.0
# For scales of activations that were calibrated on other inputs, which a plain run cannot repeat:
# LiteRT's converter costs 6 dB (docs/concepts/recipes.md).
CALIBRATION_DB = 6.0
# To be raised when the same `Rounding` gives other numbers.
_VERSION = 1
# JSON has no infinity.
_MOST_DB = 999.0

# Runs the model on files of inputs, with rounding; returns files of outputs, or None if this kind
# of model cannot be run in this way.
QuantisedRun = Callable[[Sequence[Path]], Sequence[Path] | None]


class RecipeNoise(Record, frozen=True, kw_only=True):
    """Signal-to-quantisation-noise ratios in dB, by output.

    Attributes:
      first: on the first input.
      second: on the second input; empty without one.
      margin_db: by how much less a right program may have.
    """

    first: tuple[float | None, ...]
    second: tuple[float | None, ...] = ()
    margin_db: float = MARGIN_DB

    @classmethod
    def of(cls, artifacts: WorkloadArtifacts, rounding: Rounding, run: QuantisedRun) -> Self | None:
        """Returns the noise of a recipe on a workload, and stores it next to the truth.

        None if this kind of model cannot be run with rounding.

        Raises:
          SessionEnded: the plain run failed.
        """
        made_of = json.dumps([_VERSION, attrs.asdict(rounding)], sort_keys=True)
        name = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        path = artifacts.directory / QUANTISED / f"{name}.json"
        if path.is_file():
            try:
                return strict_json.read(path, cls)
            except MalformedError:
                path.unlink()  # of another version
        first = _ratios(artifacts.first, run)
        if first is None:
            return None
        found = cls(
            first=first,
            second=(_ratios(artifacts.second, run) if artifacts.second else None) or (),
            margin_db=MARGIN_DB + CALIBRATION_DB * (rounding.outputs is not None),
        )
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, strict_json.to_bytes(found))
        return found

    @property
    def weakest(self) -> float | None:
        """The least ratio on the first input, over outputs."""
        return min((value for value in self.first if value is not None), default=None)

    @property
    def least_of_all_db(self) -> float:
        """The smallest allowed ratio over outputs and inputs; minus infinity if none is known."""
        known = [value for value in (*self.first, *self.second) if value is not None]
        return min(known, default=-math.inf) - self.margin_db

    def least_db(self, *, second: bool) -> list[float | None]:
        """Returns the smallest allowed ratio of each output; None if it is unknown."""
        found = self.second if second else self.first
        return [None if value is None else value - self.margin_db for value in found]


def _ratios(due: Due, run: QuantisedRun) -> tuple[float | None, ...] | None:
    outputs = run(due.inputs)
    if outputs is None:
        return None
    errors = [relative_rmse(*paths) for paths in zip(outputs, due.truth, strict=True)]
    return tuple(
        None if error is None or not math.isfinite(error) else min(sqnr_db(error), _MOST_DB)
        for error in errors
    )
