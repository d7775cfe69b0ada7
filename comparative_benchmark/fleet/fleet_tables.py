"""Verdicts on classes as a table and as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.analysis.stats.slow_nodes import SlowNodes
from comparative_benchmark.fleet.judging import ClassVerdict
from comparative_benchmark.terminal.compare_views import speedup_text
from comparative_benchmark.terminal.screen import Column, Screen, fitted

_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.UNCLEAR: "yellow"}
_LEAST_REASON = 24


def print_verdicts(verdicts: Sequence[ClassVerdict], screen: Screen) -> None:
    """Prints one row for each workload, competitor and class."""
    if not verdicts:
        screen.print("no verdicts: no results can be compared")
        return
    columns = [
        Column(heading="class", cells=[Text(item.machine_class) for item in verdicts]),
        Column(heading="backend", cells=[Text(item.competitor) for item in verdicts]),
        Column(heading="from", cells=[Text(item.framework) for item in verdicts], rank=3),
        Column(
            heading="speed-up (98 %)",
            cells=[speedup_text(item.ratio.interval) for item in verdicts],
            right=True,
        ),
        Column(
            heading="verdict",
            cells=[
                Text(item.verdict.value, style=_STYLES.get(item.verdict, "")) for item in verdicts
            ],
            right=True,
        ),
        Column(
            heading="nodes",
            cells=[str(len(item.ratio.by_node)) for item in verdicts],
            rank=1,
            right=True,
        ),
        Column(
            heading="between nodes", cells=[_spread(item) for item in verdicts], rank=4, right=True
        ),
        Column(
            heading="why",
            cells=[Text(item.reason) for item in verdicts],
            rank=2,
            least=_LEAST_REASON,
        ),
    ]
    devices = {item.device for item in verdicts}
    labels = [item.label + f" on {item.device}" * (len(devices) > 1) for item in verdicts]
    table = fitted(columns, screen.width, groups=labels, group_heading="workload")
    screen.print(table.table)
    if table.dropped:
        screen.print(f"not shown: {', '.join(table.dropped)}")


def slow_node_lines(by_class: Mapping[str, SlowNodes]) -> Iterator[str]:
    """Yields a line for each slow node, and for each class whose nodes cannot be compared."""
    for machine_class, nodes in by_class.items():
        for slow in nodes.named:
            percent = 100 * (slow.slowdown - 1)
            change = "became" if slow.is_change else "is"
            yield (
                f"slow node: {slow.node} ({machine_class}) {change} {percent:.1f} % slower in "
                f"{slow.canary} than the other {slow.others} nodes"
            )
        reasons = list(dict.fromkeys(nodes.not_compared.values()))
        for reason in reasons[:1]:
            yield f"slow nodes in {machine_class} cannot be identified: {reason}"


def as_json(verdicts: Sequence[ClassVerdict], slow: Mapping[str, SlowNodes]) -> dict[str, Any]:
    """Returns verdicts and slow nodes as JSON values; ratios are of latencies."""
    return {
        "verdicts": [
            {
                "class": item.machine_class,
                "workload": item.label,
                "device": item.device,
                "competitor": item.competitor,
                "framework": item.framework,
                "verdict": item.verdict.value,
                "reason": item.reason,
                "ratio": _interval(item.ratio.interval),
                "nodes": {name: _interval(one) for name, one in item.ratio.by_node.items()},
                "node_variance": item.ratio.node_variance,
                "one_node": item.one_node.node if item.one_node else None,
            }
            for item in verdicts
        ],
        "slow_nodes": [
            {
                "class": name,
                "node": one.node,
                "canary": one.canary,
                "slowdown": one.slowdown,
                "others": one.others,
                "is_change": one.is_change,
            }
            for name, nodes in slow.items()
            for one in nodes.named
        ],
    }


def _spread(item: ClassVerdict) -> str:
    """Returns the standard deviation between nodes, in percent of the ratio."""
    variance = item.ratio.node_variance
    return "-" if variance is None else f"{100 * math.sqrt(variance):.1f} %"


def _interval(interval: Any) -> dict[str, float] | None:
    if interval is None or not all(map(math.isfinite, (interval.low, interval.high))):
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
