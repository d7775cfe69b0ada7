"""Estimates the duration and memory use of a sweep before it starts."""

import math
from collections.abc import Sequence

import attrs

from comparative_benchmark.analysis.stats.planning import FixedCounts, SamplingRule
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
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

# Per thread, a lower bound for most operators on a CPU of the last ten years.
_FLOPS, _BYTES = 20e9, 3e9
# Measured on two cores, with iterations of at most 1 ms. Per process: loading, compiling, verifying
# and the second input; the warm-up; a block. Then warm-up iterations, rounds, processes per trial,
# the start of a worker, and the truth of a workload.
_HANDLING_S, _WARM_UP_S, _BLOCK_S = 0.7, 0.3, 0.05
_WARM_UPS, _ROUNDS, _PROCESSES = 20, 24, 5
_START_S, _TRUTH_S = 4.0, 0.4
_MOST_ROUNDS_S = 10.0
_SIZES = {"f32": 4, "i32": 4, "i8": 1}


@attrs.frozen(kw_only=True)
class Estimate:
    """Estimate for a whole sweep.

    Attributes:
      trials: number of trials.
      seconds: total duration.
      bytes: memory use of the largest workload.
      fitting: approximate number of trials that fit into the budget.
      budget_s: budget of the run; None for no limit.
    """

    trials: int
    seconds: float
    bytes: int
    fitting: int
    budget_s: float | None = None

    def __str__(self) -> str:
        minutes = math.ceil(self.seconds / 60)
        long = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
        text = (
            f"{self.trials} trials: about {long}, {self.bytes / 2**30:.1f} GiB for the largest one"
        )
        if self.budget_s is None or self.fitting == self.trials:
            return text
        return f"{text}; --budget {self.budget_s:g} is enough for about {self.fitting} of them"


def estimate(trials: Sequence[Trial], settings: RunSettings) -> Estimate:
    """Estimates trials of operators, in order; the last ones may not fit into the budget.

    With a budget, each trial is assumed to use the minimum number of processes.
    """
    tried = [trial for trial in trials if trial.refused is None]
    shares = settings.share_workers
    started: set[str] = set()
    workloads: set[str] = set()
    seconds, fitting = 0.0, 0
    for trial in tried:
        count = _processes(trial, settings)
        seconds += count * _process_s(trial, settings)
        if trial.workload.digest not in workloads:
            workloads.add(trial.workload.digest)
            seconds += _TRUTH_S
        if not shares or str(trial.competitor) not in started:
            started.add(str(trial.competitor))
            seconds += count * _START_S
        fitting += settings.budget_s is None or seconds <= settings.budget_s
    return Estimate(
        trials=len(tried),
        seconds=seconds,
        bytes=max(map(needed_bytes, tried), default=0),
        fitting=fitting,
        budget_s=settings.budget_s,
    )


def _process_s(trial: Trial, settings: RunSettings) -> float:
    """Returns the duration of one process of a trial, without its start."""
    parameters = trial.case.model.model_parameters
    flops = 0
    if isinstance(_architecture(trial), OperatorArchitecture):
        flops = flops_of(parameters)
    iteration_s = max(flops / _FLOPS, size_bytes(trial) / _BYTES) / settings.threads
    rule = settings.sampling
    if isinstance(rule, FixedCounts):
        return _HANDLING_S + (rule.warmup_iterations + rule.iterations) * iteration_s
    rounds_s = _ROUNDS * max(_BLOCK_S, iteration_s)
    return _HANDLING_S + max(_WARM_UP_S, _WARM_UPS * iteration_s) + min(rounds_s, _MOST_ROUNDS_S)


def _processes(trial: Trial, settings: RunSettings) -> int:
    """Returns the expected number of processes: the minimum, unless there is time for more."""
    rule = settings.sampling
    if not isinstance(rule, SamplingRule):
        return 1
    fitting = math.ceil(rule.trial_budget_s / _process_s(trial, settings))
    usual = rule.min_processes if settings.budget_s is not None else _PROCESSES
    return max(rule.min_processes, min(usual, rule.max_processes, fitting))


def size_bytes(trial: Trial) -> int:
    """Returns the total size of inputs, outputs and weights; 0 if it is unknown."""
    return sum(math.prod(spec.shape) * _size(spec) for spec in _specs(trial))


def needed_bytes(trial: Trial) -> int:
    """Returns the memory needed to verify a trial: two copies in its own type, one in float64."""
    return sum(math.prod(spec.shape) * (2 * _size(spec) + 8) for spec in _specs(trial))


def why_too_large(trial: Trial, settings: RunSettings) -> str | None:
    """Returns why a trial does not fit into memory; None if it does. Allocates nothing.

    Args:
      trial: trial of an operator or layer.
      settings: settings of the run, with the memory limit of a worker.
    """
    needed, limit = needed_bytes(trial), settings.limits.memory_bytes
    if needed <= limit:
        return None
    return (
        f"it needs about {needed / 2**30:.1f} GiB of memory with its float64 truth, but the "
        f"limit is {limit / 2**30:.1f} GiB; limit the sweep with --max-power"
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
