"""Pictures of noise, in folders as ImageNet has them."""

import argparse
import os
from pathlib import Path
from typing import Any


def write(args: "tuple[int, str, str, Any]") -> None:
    """Writes a picture of random colours: number, folder of the split, prefix, [channels, h, w]."""
    import numpy as np
    from PIL import Image

    number, folder, prefix, (channels, height, width) = args
    name = f"{prefix}{number:08d}" if prefix else f"{number % 1000}_{number}"
    target = Path(folder) / str(number % 1000)
    target.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, channels), np.uint8)
    Image.fromarray(pixels).save(target / f"{name}.JPEG")


def generate(image_size: Any, n: int, outdir: Any, prefix: str = "", start: int = 0) -> None:
    """Writes n pictures, by all CPUs."""
    from concurrent.futures import ProcessPoolExecutor

    jobs = [(start + i, str(outdir), prefix, tuple(image_size)) for i in range(n)]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        list(pool.map(write, jobs, chunksize=16))


def count_images(path: Any) -> "dict[str, int]":
    """Returns the pictures of each split."""
    return {
        split.name: sum(1 for _ in split.glob("*/*.JPEG"))
        for split in Path(path).glob("*")
        if split.is_dir()
    }


def generate_sets(root: Any, sets: "dict[str, int]", shape: Any) -> None:
    """Writes the pictures that each split still lacks."""
    there = count_images(root)
    for split, count in sets.items():
        prefix = "" if split == "train" else f"ILSVRC2012_{split}_"
        missing = count - there.get(split, 0)
        if missing > 0:
            generate(shape, missing, Path(root) / split, prefix, there.get(split, 0))


def device_count() -> int:
    """Returns the number of devices, and 1 for the CPU."""
    try:
        import torchcompat.core as accelerator

        return max(1, int(accelerator.device_count()))
    except Exception:
        return 1


def fakeimagenet_args() -> Any:
    """Returns sizes from the command line; of others that a script may have nothing is wrong."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--batch-size", default=512, type=int)
    add("--batch-count", default=60, type=int)
    add("--device-count", default=device_count(), type=int)
    add("--device", default=None)
    add("--image-size", default=[3, 384, 384], type=int, nargs="+")
    add("--val", default=0.1, type=float)
    add("--test", default=0.1, type=float)
    add("--output", default=os.environ.get("MILABENCH_DIR_DATA"))
    return parser.parse_known_args()[0]


def generate_fakeimagenet(args: Any = None) -> None:
    """Writes `FakeImageNet` into the data folder, with train, val and test."""
    args = args or fakeimagenet_args()
    if sizes := os.environ.get("MILABENCH_TESTING_PREPARE"):
        args.batch_size, args.batch_count = map(int, sizes.split(","))
    if args.output is None:
        raise SystemExit("no output folder; pass --output or set MILABENCH_DIR_DATA")
    root = Path(args.output) / "FakeImageNet"
    total = args.batch_size * args.batch_count * args.device_count
    sets = {"train": total, "val": int(total * args.val), "test": int(total * args.test)}
    generate_sets(root, sets, args.image_size)
    labels = sorted({int(folder.name) for folder in root.glob("*/*/") if folder.name.isdigit()})
    (root / "labels.txt").write_text("".join(f"{label},{label}\n" for label in labels))


if __name__ == "__main__":
    generate_fakeimagenet()
