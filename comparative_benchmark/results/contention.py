"""What others took of CPUs and GPU while a trial was measured, over all of its blocks together.

A single block is too short for the ticks of the kernel: unless others took very much, they can not
say. Blocks that are plainly disturbed are the only ones to be judged then, and counting those alone
would call each run disturbed; so a trial is judged by the sums over its blocks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import cattrs

from comparative_benchmark.machine import conditions

_STRUCTURED = cattrs.Converter(prefer_attrib_converters=True)


def contention_of(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a record keeps: verdicts on single blocks, and the one on all of them.

    `contended` is None where even together they are too short to tell, or where the system does not
    say what others did; `reasons` then say why.
    """
    verdicts = [block["conditions"]["contended"] for block in blocks]
    return {
        "contended_blocks": sum(verdict is True for verdict in verdicts),
        "clean_blocks": sum(verdict is False for verdict in verdicts),
        "not_judged_blocks": sum(verdict is None for verdict in verdicts),
        **_together([block["conditions"] for block in blocks]),
    }


def contention_warning(contentions: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns a warning if others disturbed trials of a run; None if not.

    Args:
      contentions: of each trial, as `contention_of` gives it; of older results with no verdict.
    """
    disturbed = [found for found in contentions if found.get("contended")]
    if not disturbed:
        return None
    worst = max(disturbed, key=lambda found: found.get("foreign_cpu_share") or 0.0)
    return (
        f"others disturbed {len(disturbed)} of {len(contentions)} trials "
        f"({worst['reasons'][0]}): run `cbs doctor`, and again on a quiet machine"
    )


def _together(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not all("totals" in block for block in blocks):  # of a source that counts nothing
        return {"contended": None, "reasons": []}
    every = conditions.together(
        _STRUCTURED.structure(block, conditions.Conditions) for block in blocks
    )
    if every is None:
        return {"contended": None, "reasons": []}
    kept = ("contended", "reasons", "foreign_cpu_share", "steal_share")
    found = attrs.asdict(every, filter=lambda field, _: field.name in kept)
    return {**found, "reasons": list(found["reasons"])}
