"""Are the outputs of what was read back right?"""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import numpy as np

from comparative_benchmark.artifacts.exporters.kinds import Kind
from comparative_benchmark.artifacts.exporters.outcomes import Subject
from comparative_benchmark.judge import quantized_verification
from comparative_benchmark.judge.generation_verification import (
    verify_forced_run,
    verify_free_run,
)
from comparative_benchmark.judge.verification import Verification, failed, open_array, verify
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.models.generation import TOKENS
from openxla.benchmark.workloads import generated_tokens

# Computes what a run is judged by that takes the tokens in a file.
Along = Callable[[Path], Due]


def judge(kind: Kind, subject: Subject, outputs: Sequence[Path], along: Along) -> Verification:
    """Returns the verdict on the outputs of a consumer, by what its kind is judged by.

    A file runs on its own inputs alone and cannot be fed with the truth's tokens. So where it
    leaves these at a near-tie, truth and reference are fed with its tokens, and judge every step.
    """
    artifacts = subject.artifacts
    if kind.judged_by == "itself":
        return Verification(passed=True)
    if kind.judged_by in ("inputs", "truth"):
        due = artifacts.inputs if kind.judged_by == "inputs" else artifacts.truth
        return _judge_identity(outputs, due)
    parameters = quantized_verification.parameters_for(
        kind.precision, subject.workload.data_type, subject.case.verify_parameters
    )
    due_outputs = (artifacts.truth, artifacts.reference, parameters)
    if generated_tokens(subject.case) is None:
        return verify(outputs, *due_outputs)
    data_type = subject.workload.data_type
    verdict = verify_free_run(outputs, *due_outputs, data_type=data_type)
    if not verdict.passed or not verdict.divergences:
        return verdict
    own = along(outputs[TOKENS])
    whole = verify_forced_run(outputs, own.truth, own.reference, parameters, data_type=data_type)
    if not whole.passed:
        return attrs.evolve(whole, reason=f"judged on its own tokens: {whole.reason}")
    return attrs.evolve(whole, divergences=verdict.divergences)


def _judge_identity(found: Sequence[Path], due: Sequence[Path]) -> Verification:
    if len(found) != len(due):
        return failed(f"{len(found)} arrays, expected {len(due)}")
    for index, (one, other) in enumerate(zip(map(open_array, found), map(open_array, due))):
        same = one.dtype == other.dtype and one.shape == other.shape
        if not same or np.ascontiguousarray(one).tobytes() != np.ascontiguousarray(other).tobytes():
            return failed(f"array {index} differs")
    return Verification(passed=True)
