"""A picture as the input of a Hugging Face directory, as its image processor would prepare it.

The processor's file is followed with Pillow and numpy alone: transformers' own would need a
framework in the process that plans.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.brought.real_inputs import cases_on
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import BenchmarkCase, Model
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.architectures.base import element_type, integer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image

_PROCESSOR_FILE = "preprocessor_config.json"
_BILINEAR = 2  # Pillow's number, which the file has
_CHANNELS = 3
_WHOLE_FROM = 384  # pictures of ConvNeXT that are not cropped


def on_image(
    cases: Sequence[BenchmarkCase], directory: Path, config: Mapping[str, Any], file: Path
) -> list[BenchmarkCase]:
    """Returns the cases of a directory on a picture, shifted a little further for each row.

    Raises:
      BroughtError: there is no image processor or no picture, or the model takes none.
    """
    if "vocab_size" in config or config.get("num_channels", _CHANNELS) != _CHANNELS:
        raise BroughtError(f"--image: {directory.name} does not accept RGB images")
    processor = directory / _PROCESSOR_FILE
    if not processor.is_file():
        raise BroughtError(
            f"--image: {directory} has no {_PROCESSOR_FILE}; save the model's image processor "
            "there with save_pretrained()"
        )
    height, width = _pair(config.get("image_size") or 224)
    picture = _opened(file)
    try:
        pixels = _prepared(picture, json.loads(processor.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BroughtError(f"--image: {processor} is not supported: {error}") from error
    if pixels.shape[1:] != (height, width):
        made = "x".join(map(str, pixels.shape[1:]))
        raise BroughtError(
            f"--image: {processor} produces {made} images, but the model takes {height}x{width}; "
            "save the model's own image processor there"
        )

    def arrays(model: Model) -> Sequence[Any]:
        from openxla.benchmark.models.preprocessing import numpy_dtype, shifted_rows

        parameters = model.model_parameters
        dtype = numpy_dtype(element_type(parameters["data_type"]))
        return [shifted_rows(pixels, integer(parameters, "batch_size")).astype(dtype)]

    return cases_on(cases, [sha256_of(file), sha256_of(processor), f"{height}x{width}"], arrays)


def _opened(file: Path) -> "Image":
    """Returns a picture in red, green and blue.

    Raises:
      BroughtError: the file cannot be read, is no picture, or would be of enormous size.
    """
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BroughtError(f"--image {file} cannot be read as an image: {error}") from error


def _prepared(picture: "Image", says: Mapping[str, Any]) -> "npt.NDArray[np.float32]":
    """Returns float32[3, height, width]: resized, cropped, scaled and normalised, as is said.

    A step that is left out is as transformers' processors have it, which write their defaults: done
    but for the crop. `crop_pct` is ConvNeXT's and ResNet's, `include_top` EfficientNet's.
    """
    import numpy as np
    from PIL import Image

    size, crop = says["size"], says.get("do_center_crop", False) and says["crop_size"]
    if says.get("rescale_offset", False):
        raise ValueError("rescale_offset is not implemented")
    if "crop_pct" in says:
        edge = int(size["shortest_edge"])
        whole = edge >= _WHOLE_FROM
        size = edge if whole else {"shortest_edge": int(edge / says["crop_pct"])}
        crop = not whole and edge
    if says.get("do_resize", True):
        resample = Image.Resampling(says.get("resample", _BILINEAR))
        picture = picture.resize(_resized(picture.size, size), resample)
    if crop:
        height, width = _pair(crop)
        left, top = (picture.width - width) // 2, (picture.height - height) // 2
        picture = picture.crop((left, top, left + width, top + height))
    pixels = np.asarray(picture, np.float32)
    if says.get("do_rescale", True):
        pixels = pixels * np.float32(says.get("rescale_factor", 1 / 255))
    if says.get("do_normalize", True):
        mean, stddev = (np.array(says[key], np.float32) for key in ("image_mean", "image_std"))
        pixels = (pixels - mean) / stddev
        if says.get("include_top", False):
            pixels = pixels / stddev  # as the network was trained
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)


def _resized(size: tuple[int, int], wanted: Any) -> tuple[int, int]:
    """Returns width and height to resize to: those named, or such that the shorter side is."""
    if isinstance(wanted, Mapping) and "shortest_edge" in wanted:
        width, height = size
        factor = int(wanted["shortest_edge"]) / min(size)
        return max(1, int(width * factor)), max(1, int(height * factor))
    height, width = _pair(wanted)
    return width, height


def _pair(size: Any) -> tuple[int, int]:
    """Returns height and width of what a configuration calls a size."""
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    if isinstance(size, Sequence):
        height, width = size
        return int(height), int(width)
    return int(size), int(size)
