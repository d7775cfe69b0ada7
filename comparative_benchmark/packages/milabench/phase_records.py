"""What is asked of a phase of a benchmark, and how it came out."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from comparative_benchmark.packages.milabench.command_lines import Ended
from comparative_benchmark.packages.milabench.execution import Listener
from comparative_benchmark.results.record import Status

INSTALL, PREPARE, RUN, PIN = "install", "prepare", "run", "pin"


@attrs.define(kw_only=True)
class PhaseOutcome:
    """How a phase came out.

    Attributes:
      ended: the commands that it ran, in order.
      status, reason: `ok` and None, or what went wrong.
    """

    status: Status = Status.OK
    reason: str | None = None
    traceback: str | None = None
    ended: list[Ended] = attrs.field(factory=list)

    def fail(self, status: Status, reason: str, traceback: str | None = None) -> None:
        """Notes the first thing that went wrong."""
        if self.status is Status.OK:
            self.status, self.reason, self.traceback = status, reason, traceback


@attrs.frozen(kw_only=True)
class Wishes:
    """What a command line asks for, besides which benchmarks.

    Attributes:
      variant: `--variant`; None for what the configuration says.
      arguments: of `pin`.
      say: shows a line to the user.
      listen: hears of events.
      echo: whether the output of commands is shown.
      disk_reserve_bytes: what must stay free on the disk; None for the usual.
      protect: files that scripts cannot change.
      alone: whether one process of the plan runs, on the CPUs that it has beside the others.
    """

    variant: str | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    say: Callable[[str], None] = print
    listen: Listener = lambda _, __: None
    echo: bool = False
    disk_reserve_bytes: int | None = None
    protect: tuple[str, ...] = ()
    alone: bool = False
