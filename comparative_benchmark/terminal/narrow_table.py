"""The table of results where a terminal is too narrow for all of its columns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import ResultKey, Status
from comparative_benchmark.terminal.tables import (
    latency_cell,
    ratio_cells,
    ruled_table,
    status_text,
)


def narrow_table(
    cases: Sequence[Case],
    *,
    baseline: str | None = None,
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
) -> Table:
    """Returns latencies and verdicts alone, with each workload in a line of its own.

    What did not end well has its status in place of its latency; a backend that ran the models of
    several frameworks is named with each.
    """
    table = ruled_table()
    table.collapse_padding = True
    table.add_column("workload, backend", overflow="fold")
    for heading in ("latency ms", *(("speed-up (98 %)", "verdict") if baseline else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    ratios = ratio_cells(cases, baseline)
    twice = Counter((case.label, case.competitor) for case in cases)
    previous = None
    for case, cells in zip(cases, ratios, strict=True):
        if case.label != previous:
            table.add_section()
            table.add_row(Text(case.label))
        is_ok = case.status is Status.OK and case.result.key not in expected
        result = latency_cell(case) if is_ok else status_text(case.result, expected)
        from_ = f" ({case.framework})" if twice[case.label, case.competitor] > 1 else ""
        table.add_row(Text(f"  {case.competitor}{from_}"), result, *cells)
        previous = case.label
    return table
