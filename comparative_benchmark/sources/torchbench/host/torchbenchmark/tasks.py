"""Domains and tasks by which folders classify their models.

A later TorchBench's task that a domain lacks maps to its first one: nothing depends on it.
"""

from enum import Enum, EnumMeta
from typing import Any


class _AnyTask(EnumMeta):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or not name.isupper():
            raise AttributeError(name)
        return next(iter(cls))


class COMPUTER_VISION(Enum, metaclass=_AnyTask):  # noqa: N801  # names of these classes are those in folders
    """Pictures and videos."""

    SEGMENTATION = "segmentation"
    CLASSIFICATION = "classification"
    DETECTION = "detection"
    GENERATION = "generation"
    PATTERN_RECOGNITION = "pattern recognition"
    VIDEO_INTERPOLATION = "video interpolation"
    OTHER_COMPUTER_VISION = "other computer vision"


class NLP(Enum, metaclass=_AnyTask):
    """Texts."""

    TRANSLATION = "translation"
    LANGUAGE_MODELING = "language modeling"
    GENERATION = "generation"
    OTHER_NLP = "other nlp"


class SPEECH(Enum, metaclass=_AnyTask):
    """Sounds."""

    SYNTHESIS = "synthesis"
    RECOGNITION = "recognition"


class RECOMMENDATION(Enum, metaclass=_AnyTask):
    """Choices."""

    RECOMMENDATION = "recommendation"


class REINFORCEMENT_LEARNING(Enum, metaclass=_AnyTask):  # noqa: N801
    """Agents."""

    OTHER_RL = "other rl"


class GNN(Enum, metaclass=_AnyTask):
    """Graphs."""

    CLASSIFICATION = "classification"


class OTHER(Enum, metaclass=_AnyTask):
    """All else."""

    OTHER_TASKS = "other tasks"
    MICROBENCH = "microbench"
