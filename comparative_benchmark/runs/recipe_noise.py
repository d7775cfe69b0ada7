"""How much noise a recipe makes, measured on a plain run that rounds what the recipe rounds.

The limit of a quantised program follows from it: `MARGIN_DB` less, for what right programs do
otherwise. A constant for each recipe has to fit the model with the most noise, and lets pass in all
others what is smaller: a mask that is dropped, a head that is left out.
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
# Where scales of activations were calibrated on other inputs, which a plain run cannot do. Measured
# at LiteRT's converter: 6 dB (docs/recipes.md).
CALIBRATION_DB = 6.0
# To be raised when what `Rounding` says is rounded in another way.
_VERSION = 1
# JSON has no infinity.
_MOST_DB = 999.0

# Gives the files of the outputs of a plain run on files of inputs that rounds; None where such a
# model cannot be run so.
QuantisedRun = Callable[[Sequence[Path]], Sequence[Path] | None]


class RecipeNoise(Record, frozen=True, kw_only=True):
    """Signal-to-quantisation-noise ratios in dB, by output.

    Attributes:
      first: on the first input.
      second: on the second one; empty if there is none.
      margin_db: by how much less a right program may have.
    """

    first: tuple[float | None, ...]
    second: tuple[float | None, ...] = ()
    margin_db: float = MARGIN_DB

    @classmethod
    def of(cls, artifacts: WorkloadArtifacts, rounding: Rounding, run: QuantisedRun) -> Self | None:
        """Returns the noise of a recipe on a workload, and keeps it beside the truth.

        None if the model cannot be run so.

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

    def least_db(self, *, second: bool) -> list[float | None]:
        """Returns the least ratios that right programs have, by output; None if unknown."""
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
