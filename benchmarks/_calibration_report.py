"""Tables for `aa_calibration`: false verdicts, power, and the cost of each pair."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from _binomial import share_interval
from _calibration_sections import DUE_PAIRS, FALSE_GOAL, POWER_GOAL, SECTIONS, Section
from _journal import Entry
from _pairs import RACED
from _timing import print_goal, print_table
from _usual_methods import USUAL_METHODS

METHODS = (RACED, *USUAL_METHODS)

Judge = Callable[[Section, str], bool]


def print_report(entries: Sequence[Entry]) -> None:
    """Prints the tables and whether the goals are met."""
    if not entries:
        print("no pairs yet")
        return
    revisions = sorted({str(entry.get("revision")) for entry in entries})
    known = entries[0]["configuration"]
    print(f"\n{len(entries)} pairs of {known['model']}, revision {' and '.join(revisions)}")
    print(f"{known['cpu_model']}, {known['usable_cpus']} CPUs, {known['system']}")
    print("Shares with the 95 % interval of Clopper and Pearson.\n")
    _print_shares("false verdicts", entries, SECTIONS, Section.is_false)
    slow_downs = [section for section in SECTIONS if section.slow_down]
    _print_shares("slow-downs found", entries, slow_downs, Section.is_found)
    _print_costs(entries)
    for section in SECTIONS:
        if section.slow_down:
            _print_goal(entries, section, Section.is_found, f"{section.name}: >= {POWER_GOAL:.0%}")
        else:
            _print_goal(entries, section, Section.is_false, f"{section.name}: <= {FALSE_GOAL:.0%}")


def found_of(entries: Sequence[Entry], section: Section, method: str) -> list[dict[str, Any]]:
    """Returns the results of a method for the pairs of a section."""
    return [entry["methods"][method] for entry in entries if entry["section"] == section.name]


def counted(found: Sequence[dict[str, Any]], section: Section, judge: Judge) -> tuple[int, int]:
    """Returns the number of verdicts that `judge` accepts, and the number of pairs.

    A pair without a result, e.g. because a worker was never steady, has no verdict.
    """
    return sum(judge(section, item["verdict"]) for item in found), len(found)


def _share(successes: int, trials: int) -> str:
    if not trials:
        return "no pairs"
    low, high = share_interval(successes, trials)
    return f"{successes}/{trials} {successes / trials:.1%} [{low:.1%}, {high:.1%}]"


def _print_shares(
    title: str, entries: Sequence[Entry], sections: Sequence[Section], judge: Judge
) -> None:
    rows = [
        [section.name]
        + [_share(*counted(found_of(entries, section, name), section, judge)) for name in METHODS]
        for section in sections
    ]
    print_table([title, *METHODS], rows)
    print()


def _print_costs(entries: Sequence[Entry]) -> None:
    """Prints medians over pairs, and the standard deviation of the log ratios between pairs."""
    header = ["median of", "s", "processes", "half-width", "announced", "ratio", "sd"]
    header += ["no result", "disturbed", "stopped by"]
    rows = []
    for section in SECTIONS:
        for name in METHODS:
            found = found_of(entries, section, name)
            if not found:
                continue
            ratios = [item["ratio"] for item in found if item["ratio"] is not None]
            widths = [item["half_width"] for item in found if item["half_width"] is not None]
            announced = [item["announced"] for item in found if item.get("announced") is not None]
            reasons = Counter(str(item["stop_reason"]) for item in found)
            processes = [item["processes"] for item in found]
            rows.append(
                [
                    f"{section.name}: {name}",
                    f"{statistics.median(item['wall_s'] for item in found):.0f}",
                    f"{statistics.median(processes):.0f} ({min(processes)}-{max(processes)})",
                    f"{statistics.median(widths):.2%}" if widths else "-",
                    f"{statistics.median(announced):.1%}" if announced else "-",
                    f"{statistics.median(ratios):.4f}" if ratios else "-",
                    f"{statistics.stdev(map(math.log, ratios)):.2%}" if len(ratios) > 1 else "-",
                    str(sum(item["verdict"] == "incomparable" for item in found)),
                    str(sum(item.get("disturbed", False) for item in found)),
                    ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()),
                ]
            )
    print_table(header, rows)
    print()


def _print_goal(entries: Sequence[Entry], section: Section, judge: Judge, goal: str) -> None:
    successes, trials = counted(found_of(entries, section, RACED), section, judge)
    if not trials:
        print(f"goal: {goal}: not measured")
        return
    share = successes / trials
    met = share >= POWER_GOAL if section.slow_down else share <= FALSE_GOAL
    few = f", too few pairs ({DUE_PAIRS} required)" if trials < DUE_PAIRS else ""
    print_goal(goal, met=met, found=f"{_share(successes, trials)}{few}")
