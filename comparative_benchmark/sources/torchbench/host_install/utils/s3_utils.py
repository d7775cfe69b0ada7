"""TorchBench's store of data sets, which is not accessed; existing data is used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import REPO_ROOT

S3_BUCKET = "ossci-datasets"


def checkout_s3_data(data_type: str, name: str, decompress: bool = True) -> None:
    """Leaves existing data unchanged, as TorchBench does; otherwise names its path.

    Raises:
      RuntimeError: the data is missing.
    """
    if data_type == "MODEL_PKLS":
        place = Path.cwd().parent / name  # install.py runs in its folder
    else:
        data = REPO_ROOT / "torchbenchmark" / "data" / ".data"
        place = data / (name.removesuffix(".tar.gz") if decompress else name)
    if not place.exists():
        raise RuntimeError(
            f"ConnectionError: {name} is in TorchBench's S3 store, which cbs does not access; copy "
            f"it to {place}"
        )


def __getattr__(name: str) -> Callable[..., Any]:
    """Replaces all other functions of TorchBench's module: they would fetch, so each refuses."""
    if name.startswith("__"):
        raise AttributeError(name)

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("ConnectionError: cbs does not access TorchBench's S3 store")

    return refused
