"""The document on planted faults names those that are planted, and no others."""

import re
from pathlib import Path

from cbs_test_plugin import (
    adversaries,
    adversaries_compiled,
    adversaries_generating,
    adversaries_steps,
    adversaries_training,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "adversaries.md"


def test_every_planted_fault_is_in_the_table():
    table = re.findall(r"^\| `([\w-]+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    coarser = {fault for faults in adversaries.COARSER.values() for fault in faults}
    planted = {
        *adversaries.FUNCTIONS,
        *adversaries.OF_THE_MODEL,
        *adversaries_compiled.FAULTS,
        *coarser,
        *adversaries_generating.FAULTS,
        *adversaries_training.GRADIENTS,
        *adversaries_steps.PLANTED,
    }
    assert sorted(table) == sorted(planted)
