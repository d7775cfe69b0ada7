"""Messages of workers, decoded, and the timeline of a race.

Workers run code of models and plug-ins, so any message may be malformed, which fails only its own
trial. Code that receives decoded messages need not check types.

The timeline is a Chrome trace: open it at https://ui.perfetto.dev. The session of a worker reports
events to the worker's `ProcessTrack`: commands and answers, announced phases, pauses. All times are
the parent's CLOCK_MONOTONIC, which all processes of a machine share, so the competitors of a race
share a timeline at no cost to the workers. A phase lasts until the next announcement or the answer:
time between two phases is attributed to the first one here, and to neither in the results file.
Format: "Trace Event Format", Google 2016 (JSON object form; complete and metadata events).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import attrs
import msgspec
from msgspec import Meta, Struct

from comparative_benchmark.analysis.machine.worker_settings import EffectiveSettings
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
from openxla.benchmark.files import write_atomically

COMMAND, PHASE, PAUSE = "command", "phase", "pause"


@attrs.frozen
class Span:
    """An activity of a process from `start_ns` to `end_ns` (CLOCK_MONOTONIC)."""

    process_label: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Timeline:
    """Spans of any number of processes; `write` saves them as a trace."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def span(
        self, process_label: str, name: str, category: str, start_ns: int, end_ns: int, **args: Any
    ) -> None:
        """Adds a span; spans of one process must nest.

        Args:
          process_label: the process; spans with the same label share a track.
          name: displayed name of the span.
          category: category for filtering.
          start_ns: start time, from `time.monotonic_ns`.
          end_ns: end time.
          args: JSON values, shown when the span is selected.

        Raises:
          ValueError: the span ends before it starts.
        """
        if end_ns < start_ns:
            raise ValueError(
                f"{process_label}: {name} ends {start_ns - end_ns} ns before it begins"
            )
        self.spans.append(Span(process_label, name, category, start_ns, end_ns, args))

    def process(
        self, label: str, clock: Callable[[], int] = time.monotonic_ns, *, shown: str = ""
    ) -> "ProcessTrack":
        """Returns a recorder for the spans of one process; `shown` is the label in messages."""
        return ProcessTrack(self, label, clock, shown or label)

    def events(self) -> list[dict[str, Any]]:
        """Returns the trace events; processes are numbered in order of appearance."""
        first = sorted(self.spans, key=lambda span: span.start_ns)
        labels = list(dict.fromkeys(span.process_label for span in first))
        pids = {label: number for number, label in enumerate(labels, start=1)}
        events: list[dict[str, Any]] = []
        for label, pid in pids.items():
            names = {"process_name": {"name": label}, "process_sort_index": {"sort_index": pid}}
            events += [
                {"name": name, "ph": "M", "pid": pid, "tid": 1, "args": args}
                for name, args in {**names, "thread_name": {"name": "phases"}}.items()
            ]
        # If two spans start together, viewers expect the longer, enclosing one first.
        for span in sorted(self.spans, key=lambda span: (span.start_ns, -span.end_ns)):
            events.append(
                {
                    "name": span.name,
                    "cat": span.category,
                    "ph": "X",
                    "ts": span.start_ns / 1e3,
                    "dur": (span.end_ns - span.start_ns) / 1e3,
                    "pid": pids[span.process_label],
                    "tid": 1,
                    "args": span.args,
                }
            )
        return events

    def write(self, path: Path) -> None:
        """Writes the trace atomically.

        Raises:
          OSError: the file cannot be written.
          ValueError: an argument of a span is not a JSON value.
        """
        document = {
            "traceEvents": self.events(),
            "displayTimeUnit": "ms",
            "otherData": {"clock": "CLOCK_MONOTONIC"},
        }
        write_atomically(path, json.dumps(document, allow_nan=False))


@attrs.define(eq=False)
class ProcessTrack:
    """Converts events of a session into spans: commands, with their phases inside."""

    _timeline: Timeline
    _label: str
    _clock: Callable[[], int]
    shown: str
    _notes: dict[str, Any] = attrs.field(factory=dict, init=False)
    _command: tuple[str, int, dict[str, Any]] | None = attrs.field(default=None, init=False)
    _phase: tuple[str, int] | None = attrs.field(default=None, init=False)
    _paused_ns: int | None = attrs.field(default=None, init=False)

    def note(self, **args: Any) -> None:
        """Adds arguments, such as the round, to the spans of the next command."""
        self._notes = args

    def command(self, name: str, **args: Any) -> None:
        """Records that a command was sent; ends an unanswered command."""
        now_ns = self._clock()
        self._end_command(now_ns)
        self._command = (name, now_ns, {**args, **self._notes})
        self._notes = {}

    def phase(self, name: str) -> None:
        """Records that the worker announced a phase; ends the previous one."""
        now_ns = self._clock()
        self._end_phase(now_ns)
        self._phase = (name, now_ns)

    def answered(self) -> None:
        """Records the answer or the end of the worker; may be called repeatedly."""
        self._end_command(self._clock())

    def paused(self) -> None:
        """Records that the worker was stopped."""
        self._paused_ns = self._clock()

    def resumed(self) -> None:
        """Records that the worker resumed or ended; may be called repeatedly."""
        if self._paused_ns is not None:
            self._timeline.span(self._label, "stopped", PAUSE, self._paused_ns, self._clock())
            self._paused_ns = None

    def _end_command(self, now_ns: int) -> None:
        self._end_phase(now_ns)
        if self._command is not None:
            name, start_ns, args = self._command
            self._timeline.span(self._label, name, COMMAND, start_ns, now_ns, **args)
            self._command = None

    def _end_phase(self, now_ns: int) -> None:
        if self._phase is not None:
            name, start_ns = self._phase
            args = self._command[2] if self._command is not None else {}
            self._timeline.span(self._label, name, PHASE, start_ns, now_ns, **args)
            self._phase = None


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
    without_float64: _Reason | None


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
    """Outputs on replaced inputs, and the time to compute and fetch them.

    Both are None if the backend cannot replace its inputs.
    """

    files: tuple[SavedArray, ...] | None
    run_ms: NonNegative | None


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
