"""Domains and tasks that a folder says its model is for."""

from enum import Enum


class COMPUTER_VISION(Enum):  # noqa: N801  # names of these classes are those in folders
    """Pictures and videos."""

    SEGMENTATION = "segmentation"
    CLASSIFICATION = "classification"
    DETECTION = "detection"
    GENERATION = "generation"
    PATTERN_RECOGNITION = "pattern recognition"
    VIDEO_INTERPOLATION = "video interpolation"
    OTHER_COMPUTER_VISION = "other computer vision"


class NLP(Enum):
    """Texts."""

    TRANSLATION = "translation"
    LANGUAGE_MODELING = "language modeling"
    GENERATION = "generation"
    OTHER_NLP = "other nlp"


class SPEECH(Enum):
    """Sounds."""

    SYNTHESIS = "synthesis"
    RECOGNITION = "recognition"


class RECOMMENDATION(Enum):
    """Choices."""

    RECOMMENDATION = "recommendation"


class REINFORCEMENT_LEARNING(Enum):  # noqa: N801
    """Agents."""

    OTHER_RL = "other rl"


class GNN(Enum):
    """Graphs."""

    CLASSIFICATION = "classification"


class OTHER(Enum):
    """All else."""

    OTHER_TASKS = "other tasks"
