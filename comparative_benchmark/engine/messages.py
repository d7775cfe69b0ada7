"""Messages of workers, one class per kind, and their decoder.

Workers run code of models and plug-ins, so any message may be malformed, which fails only its own
trial. Code that receives decoded messages need not check types.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from comparative_benchmark.analysis.machine.effective import EffectiveSettings
from comparative_benchmark.results.record import (
    Block,
    Count,
    NonNegative,
    Phase,
    Program,
    Samples,
    Status,
    StepTimes,
)
from openxla.benchmark.artifacts.workload_store import TruthCheck, WorkloadCost

# Displayed names, and file names without a folder.
_Name = Annotated[str, Meta(max_length=100, pattern=r"^[\w .:()-]*$")]
_FileName = Annotated[str, Meta(max_length=255, pattern=r"^(?!\.)[^/\x00]+$")]
_Reason = Annotated[str, Meta(max_length=100_000)]


class MessageError(ValueError):
    """A worker sent a malformed or unexpected message."""


class SavedArray(Struct, frozen=True, kw_only=True):
    """Name, shape and element type of an array file saved by a worker."""

    file: _FileName
    shape: tuple[Count, ...]
    dtype: str


class Hello(Struct, frozen=True, kw_only=True, tag="hello", tag_field="type"):
    """The worker has started.

    Attributes:
      truth_not_isolated: why the worker can still see folders that it had to hide; None if it
        cannot.
    """

    truth_not_isolated: _Reason | None


class PhaseEntered(Struct, frozen=True, kw_only=True, tag="phase", tag_field="type"):
    """The worker has entered a phase."""

    phase: _Name


class Report(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Time and memory use of a worker so far; part of most answers.

    Attributes:
      id: number of the answered command; 0 if the session created the report.
      host_memory_base_bytes: resident memory before the model was loaded.
    """

    id: int = 0
    phases: dict[_Name, Phase] | None = None
    host_memory_peak_bytes: Count | None = None
    host_memory_base_bytes: Count | None = None


class Failure(Report, frozen=True, kw_only=True, tag="error"):
    """A command raised an exception.

    Attributes:
      explanation: the message without the exception type; None if the message has no type.
    """

    kind: Literal["unsupported", "out_of_memory", "failed"]
    phase: _Name
    message: _Reason
    explanation: _Reason | None = None
    traceback: _Reason | None = None

    @property
    def status(self) -> Status:
        """Status of the trial that this failure ends."""
        return Status(self.kind)


class PreparedFiles(Struct, frozen=True, kw_only=True):
    """Arrays saved by `prepare`."""

    inputs: tuple[SavedArray, ...]
    truth: tuple[SavedArray, ...]
    reference: tuple[SavedArray, ...]


class Prepared(Report, frozen=True, kw_only=True, tag="prepare"):
    """Inputs, truth and reference are ready; see `engine.worker.preparing.prepare`."""

    files: PreparedFiles
    cost: WorkloadCost
    remark: _Reason | None
    without_second: _Reason | None
    without_neighbours: _Reason | None
    takes_further: bool
    without_float64: _Reason | None
    truth_check: TruthCheck | None
    versions: dict[str, str]


class FurtherPrepared(Report, frozen=True, kw_only=True, tag="prepare_further"):
    """A further input is ready; see `engine.worker.preparing.prepare_further`."""

    without_second: _Reason | None


class QuantisedRun(Report, frozen=True, kw_only=True, tag="quantised_run"):
    """Outputs of a plain run with a recipe's rounding; None if such a run is impossible."""

    files: tuple[SavedArray, ...] | None


class Loaded(Report, frozen=True, kw_only=True, tag="load"):
    """Model, weights and inputs are on the device."""

    versions: dict[str, str]
    timer_ns: NonNegative
    variables: dict[str, str]


class Compiled(Report, frozen=True, kw_only=True, tag="compile"):
    """The program is compiled and has run once."""

    exports: dict[str, list[str]]


class Measured(Report, frozen=True, kw_only=True, tag="measure"):
    """A block of timed iterations."""

    block: Block


class Outputs(Report, frozen=True, kw_only=True, tag="outputs"):
    """Outputs of the last iteration, and facts about the program."""

    files: tuple[SavedArray, ...]
    facts: Program
    effective: EffectiveSettings


class RanOn(Report, frozen=True, kw_only=True, tag="run_on"):
    """Outputs on replaced inputs; None if the backend cannot replace its inputs."""

    files: tuple[SavedArray, ...] | None


class RanWith(Report, frozen=True, kw_only=True, tag="run_with"):
    """Outputs on further inputs."""

    files: tuple[SavedArray, ...]


class FreshRuns(Report, frozen=True, kw_only=True, tag="fresh_runs"):
    """Times of single runs on new inputs; see `Executor`."""

    runs_ms: Samples
    seen_ms: Samples
    without: _Reason | None


class GenerationParts(Struct, frozen=True, kw_only=True):
    """Times of prefill and decode."""

    prefill_ms: list[NonNegative]
    decode_ms: list[NonNegative]


class Generation(Report, frozen=True, kw_only=True, tag="generation"):
    """Separate times of prefill and decode of a generating model."""

    files: tuple[SavedArray, ...]
    times: GenerationParts


class StepParts(Report, frozen=True, kw_only=True, tag="step_parts"):
    """Separate times of the parts of a training step."""

    times: StepTimes


class Updated(Report, frozen=True, kw_only=True, tag="updated"):
    """Weights after a single update of the optimizer."""

    names: tuple[str, ...]
    files: tuple[SavedArray, ...]


class CompiledShares(Report, frozen=True, kw_only=True, tag="compiled_shares"):
    """Fraction of compiled code in an iteration, by name."""

    shares: dict[str, float]


class Profiled(Report, frozen=True, kw_only=True, tag="profile"):
    """Names of the files written by a profiler."""

    files: tuple[_FileName, ...]


class Released(Report, frozen=True, kw_only=True, tag="release"):
    """The worker has released its model."""


class Called(Report, frozen=True, kw_only=True, tag="call"):
    """JSON value returned by a function; `value_of` checks it."""

    value: Any


Answer = (
    Prepared
    | FurtherPrepared
    | QuantisedRun
    | Loaded
    | Compiled
    | Measured
    | Outputs
    | RanOn
    | RanWith
    | FreshRuns
    | Generation
    | StepParts
    | Updated
    | CompiledShares
    | Profiled
    | Released
    | Called
)
Message = Hello | PhaseEntered | Failure | Answer

A = TypeVar("A", bound=Report)
T = TypeVar("T")


def command_of(answer: type[Report]) -> str:
    """Returns the command that an answer class belongs to."""
    return str(answer.__struct_config__.tag)


def decode(plain: Any) -> Message:
    """Decodes a message from a worker's JSON value.

    Raises:
      MessageError: the value is malformed.
    """
    message: Message = converted(plain, Message)
    return message


def converted(plain: Any, kind: Any) -> Any:
    """Converts a JSON value to `kind`.

    Raises:
      MessageError: the value is malformed.
    """
    try:
        return msgspec.convert(plain, kind, strict=False)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        raise MessageError(" ".join(str(error).split())[:300]) from error


def paths_of(files: tuple[SavedArray, ...], directory: Path) -> list[Path]:
    """Returns the paths of arrays that a worker saved to a folder."""
    return [directory / file.file for file in files]
