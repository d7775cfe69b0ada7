"""Verification of generated text, step by step along the truth's tokens.

Rounding alone may reverse a choice between two nearly equal logits, after which the text differs.
So three decidable questions are asked:

1. `verify_free_run`: a run that continues with its own tokens has the truth's logits as long as it
   has the truth's tokens, and only leaves these at a near-tie.
2. `verify_forced_run`, if it has left them: fed with the truth's tokens (teacher forcing), the
   model has the truth's logits at every step.
3. `verify_same_run`, also in that case: fed with the free run's own tokens, it has the free run's
   logits, so that the result of 2 for the fed program also holds for the free one after its
   near-tie.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.error_limits import (
    MIN_SQNR,
    ErrorLimits,
    error_limits,
    factor_of,
    largest_error,
)
from comparative_benchmark.analysis.verification.verification import (
    MAX_REFERENCE_ERROR,
    MIN_RELATIVE_SPREAD,
    Divergence,
    Verification,
    failed,
    finite_problem,
    form_problem,
    open_array,
    undecided,
)
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.models.model_interfaces import LOGITS, TOKENS

Array = npt.NDArray[Any]
# Maximum error of a step relative to all steps together: all its logits come from one vector, so
# its error scatters like the error of one number. In right runs in fp32, fp16 and bf16 with 4 to 32
# steps, the worst step is 1.04 to 1.92 times as far off as all steps (`benchmarks/step_errors.py`).
MAX_STEP_FACTOR = 2.0
_NO_PARAMETERS: Mapping[str, float] = MappingProxyType({})


@attrs.frozen(kw_only=True, eq=False)
class Limits:
    """Limits of the errors of logits, in their own unit.

    Attributes:
      scale: root mean square of the truth's logits.
      reference_rmse: error of the reference over all steps.
      rmse: allowed over all steps.
      step_rmse: allowed at a step, float64[batch, steps]: twice the limit over all steps, more if
        the reference itself is further off. A margin up to twice this is a near-tie, because it is
        the difference of two logits.
      element: allowed for a single logit.
      bias: allowed for the mean error over all steps.
      absolute, relative: further tolerances, together as in `numpy.allclose`; None if not given.
    """

    scale: float
    reference_rmse: float
    rmse: float
    step_rmse: npt.NDArray[np.float64]
    element: float
    bias: float
    absolute: float | None = None
    relative: float | None = None

    def doubled(self) -> "Limits":
        """Returns limits for the difference of two runs if each is within these limits."""
        names = ("rmse", "step_rmse", "element", "bias", "absolute", "relative")
        given = {name: getattr(self, name) for name in names}
        return attrs.evolve(
            self, **{n: 2 * value for n, value in given.items() if value is not None}
        )


def verify_generation(
    outputs: Sequence[Path],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = _NO_PARAMETERS,
    *,
    data_type: str | None,
    is_fed: bool,
) -> Verification:
    """Verifies tokens and logits of a generating run.

    Args:
      outputs: `.npy` files of the run: tokens i32[batch, steps], logits [batch, steps, vocab].
      truth: the same files of the float64 run.
      reference: the same files of an op-by-op run in the model's own type that was fed with the
        truth's tokens, so that its error is known at every step.
      parameters: as for `verification.verify`; with `min_sqnr_db` the program is a quantised one,
        whose near-ties are as wide as its noise.
      data_type: the model's type, e.g. `bf16`, which determines the spacing of its numbers: logits
        are float32 whatever the model computes in.
      is_fed: whether the run was fed with the truth's tokens; otherwise it continued with its own.

    Returns:
      The verdict; if it has `divergences` and has passed, later steps have not been verified.
    """
    if len(outputs) != 2:
        return failed(f"expected 2 outputs (tokens and logits), got {len(outputs)}")
    own, expected, same_type = [
        [open_array(path) for path in paths] for paths in (outputs, truth, reference)
    ]
    if problem := _form_problem(own, expected, same_type):
        return problem
    limits = limits_of(expected[LOGITS], same_type[LOGITS], parameters, data_type)
    if isinstance(limits, str):
        return undecided(limits)
    return _judge(own, expected, limits, is_fed=is_fed, whose="the truth")


verify_free_run = functools.partial(verify_generation, is_fed=False)
verify_forced_run = functools.partial(verify_generation, is_fed=True)


def verify_same_run(
    outputs: Sequence[Path],
    repeated: Sequence[Path],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = _NO_PARAMETERS,
    *,
    data_type: str | None,
) -> Verification:
    """Verifies every step of a free run by another that was fed with its tokens.

    Each may differ from the right result by the limits, so they may differ by twice the limits.

    Args:
      outputs: files of the free run.
      repeated: files of the run that was fed with the tokens among these.
      truth: see `verify_generation`.
      reference: see `verify_generation`.
      parameters: see `verify_generation`.
      data_type: see `verify_generation`.
    """
    own, fed, expected, same_type = [
        [open_array(path) for path in paths] for paths in (outputs, repeated, truth, reference)
    ]
    limits = limits_of(expected[LOGITS], same_type[LOGITS], parameters, data_type)
    if isinstance(limits, str):
        return undecided(limits)
    for run in (fed, own):
        if problem := _form_problem(run, expected, same_type):
            return problem
    verdict = _judge(own, fed, limits.doubled(), is_fed=True, whose="a run fed these tokens")
    return attrs.evolve(verdict, tokens_fed="own")


def _form_problem(
    own: Sequence[Array], expected: Sequence[Array], same_type: Sequence[Array]
) -> Verification | None:
    for name, place in (("tokens", TOKENS), ("logits", LOGITS)):
        if problem := form_problem(name, own[place], expected[place], same_type[place]):
            return failed(problem)
        if infinities := finite_problem(name, own[place], expected[place], same_type[place]):
            return infinities
    tokens, vocabulary = own[TOKENS], own[LOGITS].shape[-1]
    outside = (tokens < 0) | (tokens >= vocabulary)
    if outside.any():
        sequence, step = (int(index[0]) for index in np.nonzero(outside))
        token = int(tokens[sequence, step])
        return failed(
            f"{_place(sequence, step)}: token {token} is outside the vocabulary of {vocabulary}"
        )
    return None


def limits_of(
    truth: Array, reference: Array, parameters: Mapping[str, float], data_type: str | None
) -> Limits | str:
    """Returns the limits derived from the reference's error, or why nothing can be judged.

    The rule of `verification.verify` applies to all steps together and to each step; for a
    quantised program, whose noise is far above the reference's error, the minimum SQNR applies.
    """
    batch, steps, vocabulary = truth.shape
    squared = np.zeros((batch, steps))
    squared_truth = total_truth = largest = 0.0
    for place in np.ndindex(batch, steps):
        expected = truth[place].astype(np.float64)
        error = reference[place].astype(np.float64) - expected
        squared[place] = np.dot(error, error)
        squared_truth += float(np.dot(expected, expected))
        total_truth += float(expected.sum())
        largest = max(largest, float(np.abs(error).max()))
    mean_square, mean = squared_truth / truth.size, total_truth / truth.size
    scale = float(np.sqrt(mean_square))
    spread = float(np.sqrt(max(mean_square - mean * mean, 0.0)))
    if scale == 0 or spread <= MIN_RELATIVE_SPREAD * scale:
        return "the expected logits are constant, so nothing can be judged"
    rmse = float(np.sqrt(squared.sum() / truth.size))
    if rmse > MAX_REFERENCE_ERROR * spread:
        return (
            "logits: the plain run in the model's data type is off by "
            f"{rmse / spread:.2g} times the spread, so nothing can be judged"
        )
    element_type = DATA_TYPES.get(str(data_type), "f32")
    allowed = error_limits(
        element_type,
        rmse=rmse,
        largest=largest,
        spread=spread,
        size=truth.size,
        parameters=parameters,
    )
    steps_allowed = factor_of(element_type, parameters) * np.sqrt(squared / vocabulary)
    if (least := parameters.get(MIN_SQNR)) is not None:
        noise = max(scale * 10 ** (-least / 20), allowed.rmse)
        element = max(MAX_STEP_FACTOR * largest_error(least, scale), allowed.element)
        allowed = ErrorLimits(rmse=noise, needed=noise, element=element, bias=np.inf)
    return Limits(
        scale=scale,
        reference_rmse=rmse,
        rmse=allowed.rmse,
        step_rmse=np.maximum(MAX_STEP_FACTOR * allowed.rmse, steps_allowed),
        element=allowed.element,
        bias=allowed.bias,
        absolute=parameters.get("absolute_tolerance"),
        relative=parameters.get("relative_tolerance"),
    )


def _judge(
    own: Sequence[Array], reference: Sequence[Array], limits: Limits, *, is_fed: bool, whose: str
) -> Verification:
    """Verifies step after step, all sequences at each, until one is wrong.

    A free run (`is_fed` is False) is verified up to and including the step where it leaves the
    expected tokens: up to there it has read the same ones.
    """
    batch, steps = reference[TOKENS].shape
    judged = _Judged(tokens_fed="truth" if is_fed else "own", limits=limits)
    on_the_way = list(range(batch))
    for step in range(steps):
        for sequence in list(on_the_way):
            place = (sequence, step)
            expected = reference[LOGITS][place].astype(np.float64)
            problem = judged.add(own[LOGITS][place].astype(np.float64), expected, place)
            token, due_token = int(own[TOKENS][place]), int(reference[TOKENS][place])
            if token != due_token:
                divergence = Divergence(
                    sequence=sequence,
                    step=step,
                    token=token,
                    due_token=due_token,
                    margin=float(expected[due_token] - expected[token]),
                    tolerance=2 * float(limits.step_rmse[place]),
                )
                judged.divergences.append(divergence)
                if not is_fed:
                    on_the_way.remove(sequence)
                problem = _token_problem(divergence, whose, problem)
            if problem:
                return judged.verdict(f"{_place(*place)}: {problem}")
    if judged.count == reference[LOGITS].size and judged.rmse > limits.rmse:
        off, allowed = judged.rmse / limits.scale, limits.rmse / limits.scale
        return judged.verdict(f"logits: relative error {off:.2g} exceeds {allowed:.2g}")
    if judged.count == reference[LOGITS].size and abs(judged.bias) > limits.bias:
        return judged.verdict(
            f"logits are off by {judged.bias:.2g} on average; the limit is {limits.bias:.2g}"
        )
    return judged.verdict(None)


@attrs.define(kw_only=True)
class _Judged:
    """The steps verified so far."""

    tokens_fed: Any
    limits: Limits
    squared: float = 0.0
    total: float = 0.0
    count: int = 0
    largest: float = 0.0
    divergences: list[Divergence] = attrs.field(factory=list)

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared / self.count))

    @property
    def bias(self) -> float:
        return self.total / self.count

    def add(
        self,
        logits: npt.NDArray[np.float64],
        expected: npt.NDArray[np.float64],
        place: tuple[int, int],
    ) -> str | None:
        """Counts the logits of a step; returns their problem, None without one."""
        limits = self.limits
        difference = logits - expected
        error = np.abs(difference)
        with np.errstate(over="ignore"):  # infinity exceeds every limit
            squared = float(np.dot(error, error))
            self.total += float(difference.sum())
        largest = float(error.max())
        self.squared, self.count = self.squared + squared, self.count + error.size
        self.largest = max(self.largest, largest)
        rmse, allowed = float(np.sqrt(squared / error.size)), float(limits.step_rmse[place])
        if not rmse <= allowed:
            return (
                f"the logits' relative error {rmse / limits.scale:.2g} exceeds "
                f"{allowed / limits.scale:.2g}"
            )
        if largest > limits.element:
            return f"a logit is off by {largest:.2g}; the limit is {limits.element:.2g}"
        if limits.absolute is None and limits.relative is None:
            return None
        absolute, relative = limits.absolute or 0.0, limits.relative or 0.0
        if np.any(error > absolute + relative * np.abs(expected)):
            return f"exceeds absolute tolerance {absolute:g} and relative tolerance {relative:g}"
        return None

    def verdict(self, reason: str | None) -> Verification:
        limits = self.limits
        figures = (self.rmse / limits.scale, self.largest) if self.count else (0.0, 0.0)
        relative, largest = (value if np.isfinite(value) else None for value in figures)
        return Verification(
            passed=reason is None,
            reason=reason,
            relative_rmse=relative,
            reference_relative_rmse=limits.reference_rmse / limits.scale,
            allowed_relative_rmse=limits.rmse / limits.scale,
            max_abs_error=largest,
            divergences=tuple(self.divergences),
            tokens_fed=self.tokens_fed,
        )


def _token_problem(divergence: Divergence, whose: str, problem: str | None) -> str | None:
    """Returns the problem of a step with another token; None at a near-tie with right logits."""
    if divergence.margin <= divergence.tolerance:
        return problem
    text = (
        f"token {divergence.token}, but {whose} prefers {divergence.due_token} by a margin of "
        f"{divergence.margin:.2g}; only margins up to {divergence.tolerance:.2g} are near-ties"
    )
    return f"{text}; {problem}" if problem else text


def _place(sequence: int, step: int) -> str:
    return f"sequence {sequence}, step {step}"
