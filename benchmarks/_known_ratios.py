"""Imports competitors with a known ratio from `scripts/gpu_check`, which is not a package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))

from gpu_check.races import prepare, renamed, slowed, trial_of

__all__ = ["prepare", "renamed", "slowed", "trial_of"]
