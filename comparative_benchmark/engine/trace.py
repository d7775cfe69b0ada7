"""The timeline of a race as a Chrome trace: open it at https://ui.perfetto.dev.

The session of a worker reports events to the worker's `ProcessTrack`: commands and answers,
announced phases, pauses. All times are the parent's CLOCK_MONOTONIC, which all processes of a
machine share, so the competitors of a race share a timeline at no cost to the workers. A phase
lasts until the next announcement or the answer: time between two phases is attributed to the first
one here, and to neither in the results file.

Format: "Trace Event Format", Google 2016 (JSON object form; complete and metadata events).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.files import write_atomically

COMMAND, PHASE, PAUSE = "command", "phase", "pause"


@attrs.frozen(kw_only=True)
class Span:
    """An activity of a process from `start_ns` to `end_ns` (CLOCK_MONOTONIC)."""

    process_label: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any] = attrs.field(factory=dict)


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
                f"{name} of {process_label} ends {start_ns - end_ns} ns before it begins"
            )
        self.spans.append(
            Span(
                process_label=process_label,
                name=name,
                category=category,
                start_ns=start_ns,
                end_ns=end_ns,
                args=args,
            )
        )

    def process(
        self, label: str, clock: Callable[[], int] = time.monotonic_ns, *, shown: str = ""
    ) -> "ProcessTrack":
        """Returns a recorder for the spans of one process; `shown` is the label in messages."""
        return ProcessTrack(self, label, clock, shown=shown)

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


class ProcessTrack:
    """Converts events of a session into spans: commands, with their phases inside."""

    def __init__(
        self,
        timeline: Timeline,
        label: str,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        shown: str = "",
    ) -> None:
        self.shown = shown or label
        self._timeline = timeline
        self._label = label
        self._clock = clock
        self._notes: dict[str, Any] = {}
        self._command: tuple[str, int, dict[str, Any]] | None = None
        self._phase: tuple[str, int] | None = None
        self._paused_ns: int | None = None

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
