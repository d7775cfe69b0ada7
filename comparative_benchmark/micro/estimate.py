"""How long a sweep will take, and how much memory, before it starts."""

import math
from collections.abc import Sequence

import attrs

from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Trial
from comparative_benchmark.stats.sampling_rule import FixedCounts, SamplingRule
from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.operators.architecture import (
    OperatorArchitecture,
    flops_of,
    operator_of,
    shape_of,
)
from openxla.benchmark.operators.definition import Layer

# Of a thread: what no operator falls far below on a CPU of the last ten years. An estimate that is
# too long does no harm.
_FLOPS, _BYTES = 10e9, 3e9
# Loading, compiling, verifying and the second input, and the floor of a warm-up: measured on two
# cores over the operators at 64 x 128 x 96, where they are all that there is.
_EACH_PROCESS_S = 2.5
_FEWEST_ITERATIONS = 20 + 10 * 2
_SIZES = {"f32": 4, "i32": 4, "i8": 1}


@attrs.frozen(kw_only=True)
class Estimate:
    """Of a whole sweep.

    Attributes:
      trials: how many.
      seconds: that it takes.
      bytes: that its largest workload takes.
    """

    trials: int
    seconds: float
    bytes: int

    def __str__(self) -> str:
        minutes = math.ceil(self.seconds / 60)
        long = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
        return (
            f"{self.trials} trials: about {long}, and {self.bytes / 2**30:.1f} GiB for the largest"
        )


def estimate(trials: Sequence[Trial], settings: RunSettings) -> Estimate:
    """Returns what trials of operators take; sampling stops earlier where a budget says so."""
    rule = settings.sampling
    tried = [trial for trial in trials if trial.refused is None]
    seconds = sum(_seconds(trial, settings) for trial in tried)
    if isinstance(rule, SamplingRule) and rule.run_budget_s is not None:
        seconds = min(seconds, max(rule.run_budget_s, len(tried) * 3 * _EACH_PROCESS_S))
    return Estimate(
        trials=len(tried),
        seconds=seconds,
        bytes=max(map(needed_bytes, tried), default=0),
    )


def _seconds(trial: Trial, settings: RunSettings) -> float:
    parameters = trial.case.model.model_parameters
    flops = 0
    if isinstance(_architecture(trial), OperatorArchitecture):
        flops = flops_of(parameters)
    iteration_s = max(flops / _FLOPS, size_bytes(trial) / _BYTES) / settings.threads
    rule = settings.sampling
    if isinstance(rule, FixedCounts):
        return _EACH_PROCESS_S + (rule.warmup_iterations + rule.iterations) * iteration_s
    return 3 * (_EACH_PROCESS_S + _FEWEST_ITERATIONS * iteration_s)


def size_bytes(trial: Trial) -> int:
    """Returns what inputs, outputs and weights take, each once; 0 where nobody can tell."""
    return sum(math.prod(spec.shape) * _size(spec) for spec in _specs(trial))


def needed_bytes(trial: Trial) -> int:
    """Returns what it takes to prove a trial: all in its own type twice, and in float64."""
    return sum(math.prod(spec.shape) * (2 * _size(spec) + 8) for spec in _specs(trial))


def why_too_large(trial: Trial, settings: RunSettings) -> str | None:
    """Returns why a trial does not fit into memory, before anything is allocated; None if it does.

    Args:
      trial: of an operator or layer.
      settings: of the run; the limit is that of a worker.
    """
    needed, limit = needed_bytes(trial), settings.limits.memory_bytes
    if needed <= limit:
        return None
    return (
        f"it needs some {needed / 2**30:.1f} GiB of memory with its float64 truth, of "
        f"{limit / 2**30:.1f} GiB: --max-power bounds a sweep"
    )


def _specs(trial: Trial) -> list[TensorSpec]:
    architecture = _architecture(trial)
    if architecture is None:
        return []
    parameters = architecture.complete(trial.case.model.model_parameters)
    specs = [*architecture.input_specs(parameters), *architecture.output_specs(parameters)]
    if isinstance(architecture, OperatorArchitecture):
        operator = operator_of(parameters)
        if isinstance(operator, Layer):
            weights = operator.weights(*shape_of(parameters))
            specs += [TensorSpec(shape=init.shape, dtype=specs[0].dtype) for init in weights]
    return specs


def _architecture(trial: Trial) -> Architecture | None:
    name = trial.case.model.model_impl.architecture
    return None if name is None else architectures.get(name)


def _size(spec: TensorSpec) -> int:
    return _SIZES.get(spec.dtype, 2)
