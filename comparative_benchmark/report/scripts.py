"""A table of scripts that told their own rates, as milabench's benchmarks do."""

from collections.abc import Iterable

import attrs

from comparative_benchmark.report.inputs import ReportCase
from comparative_benchmark.results.record import Status, Throughput
from comparative_benchmark.terminal.tables import digits, rate_text, script_name, share_text

_ARROW = "\N{RIGHTWARDS ARROW}"


@attrs.frozen(kw_only=True)
class ScriptRow:
    """A script in the table, ready to be shown; a text is `-` where nothing is known.

    Attributes:
      case: its id, for links.
      rate: of all processes that ran at once, with the 95 % interval over replicates.
      processes: how many told it; how many of them failed, if any.
      share: of its rate alone that each process keeps while all run at once.
      loss: of the first process, first and last.
      memory: peak, of the devices or else of the host.
    """

    case: str
    name: str
    status: Status
    rate: str
    processes: str
    share: str
    loss: str
    memory: str
    device_use: str


def script_rows(cases: Iterable[ReportCase]) -> list[ScriptRow]:
    """Returns a row for each case that is a script."""
    return [_row(case, found) for case in cases if (found := case.metrics.throughput)]


def _row(case: ReportCase, found: Throughput) -> ScriptRow:
    processes = found.processes
    failed = sum(process.status is not Status.OK for process in processes)
    losses = next((process.losses for process in processes if process.losses), ())
    uses = [process.device_use for process in processes if process.device_use is not None]
    device_mb, host_mb = case.metrics.device_memory_peak_mb, case.metrics.host_memory_peak_mb
    memory_mb = device_mb or host_mb
    return ScriptRow(
        case=case.id,
        name=script_name(case.result),
        status=case.status,
        rate=f"{rate_text(found)} {found.units}" if found.rate else "-",
        processes=f"{len(processes)}, {failed} failed" if failed else str(len(processes)),
        share=share_text(found),
        loss=f" {_ARROW} ".join(digits(loss) for loss in dict.fromkeys(losses)) or "-",
        memory=f"{digits(memory_mb)} MB {'device' if device_mb else 'host'}" if memory_mb else "-",
        device_use=f"{sum(uses) / len(uses):.0%}" if uses else "-",
    )
