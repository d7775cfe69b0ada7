"""Data sets that wrap others."""

import os
from collections import defaultdict
from typing import Any

from torch.utils.data.distributed import DistributedSampler


def no_transform(args: Any) -> Any:
    """Returns what it is given."""
    return args


def transform_images(transform_x: Any, transform_y: Any = no_transform) -> Any:
    """Returns what transforms pictures and labels."""
    return lambda args: (transform_x(args[0]), transform_y(args[1]))


def transform_celebA(transform_x: Any) -> Any:  # noqa: N802  # milabench's name
    """Returns what transforms the pictures of CelebA."""
    return lambda args: transform_x(args["image"])


class TransformedDataset:
    """Another data set, transformed."""

    def __init__(self, dataset: Any, transforms: Any = no_transform) -> None:
        self.dataset, self.transforms = dataset, transforms

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: int) -> Any:
        return self.transforms(self.dataset[item])


class RepeatDataset:
    """Another data set, several times."""

    def __init__(self, dataset: Any, repeat: int = 1) -> None:
        self.dataset, self.repeat = dataset, repeat

    def __len__(self) -> int:
        return len(self.dataset) * self.repeat

    def __getitem__(self, item: int) -> Any:
        return self.dataset[item % len(self.dataset)]


class ImageNetAsFrames:
    """The names of the pictures in each folder, as if they were a clip."""

    def __init__(self, folder: Any) -> None:
        self.clip: dict[str, list[str]] = defaultdict(list)
        for root, _, files in os.walk(folder):
            self.clip[os.path.basename(root)] += files  # noqa: PTH119

    def __len__(self) -> int:
        return len(self.clip)

    def __getitem__(self, item: Any) -> "list[str]":
        return self.clip[item]


class ExclusiveSetSampler(DistributedSampler):
    """One of several parts of a data set."""

    def __init__(self, dataset: Any, num_sets: int, set_id: int, **kwargs: Any) -> None:
        super().__init__(dataset, num_replicas=num_sets, rank=set_id, **kwargs)
