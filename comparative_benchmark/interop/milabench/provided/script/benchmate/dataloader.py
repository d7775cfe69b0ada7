"""Loaders of pictures, real and made up, by the options that scripts share."""

import argparse
import os
from pathlib import Path
from typing import Any

import torch


def generate_tensors(batch_size: int, shapes: Any, device: Any) -> Any:
    """Returns random tensors: a mapping where shapes have names, else a list."""
    if len(shapes[0]) == 2 and isinstance(shapes[0][0], str):
        return {n: torch.randn((batch_size, *shape), device=device) for n, shape in shapes}
    return [torch.randn((batch_size, *shape), device=device) for shape in shapes]


def generate_tensor_classification(model: Any, batch_size: int, in_shape: Any, device: Any) -> Any:
    """Returns a random input and an output of the model's shape."""
    given = torch.randn((batch_size, *in_shape), device=device)
    return given, torch.rand_like(model.to(device=device)(given))


class FakeInMemoryDataset:
    """A data set that is generated in advance."""

    def __init__(self, producer: Any, batch_size: int, batch_count: int) -> None:
        self.data = [producer(i) for i in range(batch_size * batch_count)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: int) -> Any:
        return self.data[item]


class FakeImageClassification(FakeInMemoryDataset):
    """Random pictures with labels."""

    def __init__(self, shape: Any, batch_size: int, batch_count: int) -> None:
        super().__init__(lambda i: (torch.randn(shape), i % 1000), batch_size, batch_count)


class SyntheticData:
    """A batch again and again, or a new one of its shape each time."""

    def __init__(self, tensors: Any, n: int, fixed_batch: bool) -> None:
        self.tensors, self.n, self.fixed_batch = tensors, n, fixed_batch

    def __iter__(self) -> Any:
        for _ in range(self.n):
            yield self.tensors if self.fixed_batch else [torch.rand_like(t) for t in self.tensors]

    def __len__(self) -> int:
        return self.n


def synthetic(model: Any, batch_size: int, fixed_batch: bool) -> SyntheticData:
    """Returns made-up pictures on the device of the model."""
    import torchcompat.core as accelerator

    device = accelerator.fetch_device(0)
    pair = generate_tensor_classification(model, batch_size, (3, 244, 244), device)
    return SyntheticData(pair, 1000, fixed_batch)


def pytorch_fakedataset(_: Any, batch_size: int, num_workers: int) -> Any:
    """Returns a loader of pictures in memory."""
    data = FakeImageClassification((3, 224, 224), batch_size, 60)
    return torch.utils.data.DataLoader(
        data, batch_size=batch_size, num_workers=num_workers, pin_memory=True, shuffle=True
    )


def image_transforms() -> Any:
    """Returns what turns pictures into inputs."""
    from torchvision import transforms

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=mean, std=std),
        ]
    )


def pytorch(
    folder: Any,
    batch_size: int,
    num_workers: int,
    distributed: bool = False,
    epochs: int = 60,
    rank: "int | None" = None,
    world_size: "int | None" = None,
) -> Any:
    """Returns a loader of a folder of pictures."""
    from torchvision import datasets

    data = datasets.ImageFolder(folder, image_transforms())
    sampler = None
    if distributed:
        from torch.utils.data.distributed import DistributedSampler

        sampler = DistributedSampler(data, rank=rank, num_replicas=world_size)
    return torch.utils.data.DataLoader(
        data,
        batch_size=batch_size,
        num_workers=num_workers,
        pin_memory=True,
        shuffle=sampler is None,
        sampler=sampler,
    )


def dataloader_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a loader."""
    add = parser.add_argument
    add("--batch-size", type=int, default=16)
    add(
        "--loader",
        default="pytorch",
        help="pytorch, pytorch_fakedataset, synthetic_fixed or synthetic_random",
    )
    add("--num-workers", type=int, default=8)
    add("--data", default=os.environ.get("MILABENCH_DIR_DATA"))


def data_folder(args: Any) -> Any:
    """Returns the folder of the pictures."""
    if not args.data and (folder := os.environ.get("MILABENCH_DIR_DATA")):
        args.data = str(Path(folder) / "FakeImageNet")
    return args.data


def imagenet_dataloader(args: Any, model: Any, rank: int = 0, world_size: int = 1) -> Any:
    """Returns the loader that the options choose."""
    if args.loader in ("synthetic_random", "synthetic_fixed"):
        return synthetic(model, args.batch_size, fixed_batch=args.loader == "synthetic_fixed")
    if args.loader == "pytorch_fakedataset":
        return pytorch_fakedataset(None, args.batch_size, args.num_workers)
    if args.loader == "dali":
        raise NotImplementedError("loader dali is not supported")
    return pytorch(
        Path(data_folder(args)) / "train",
        args.batch_size,
        args.num_workers,
        distributed=world_size > 1,
        rank=rank,
        world_size=world_size,
    )
