"""Cases on inputs made from a real text or picture."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.array_files import save_all
from openxla.benchmark.def_types import BenchmarkCase, Model
from openxla.benchmark.files import new_directory, sha256_of
from openxla.benchmark.installation import root_dir
from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures.base import digest_of, element_type, integer
from openxla.benchmark.models.architectures.directories import TOKENIZER_FILE
from openxla.benchmark.user_models.model_options import UserModelError

_WHOLE = "input_0.npy"

_PROCESSOR_FILE = "preprocessor_config.json"
_BILINEAR = 2  # Pillow's constant, which configuration files contain
_CHANNELS = 3
_WHOLE_FROM = 384  # from this size on, ConvNeXT does not crop pictures


def cases_on(
    cases: Sequence[BenchmarkCase], made_of: Sequence[str], arrays: Callable[[Model], Sequence[Any]]
) -> list[BenchmarkCase]:
    """Returns cases on the arrays, which are made once and stored below the artifact root.

    Args:
      cases: cases of one model.
      made_of: what determines the arrays, other than architecture, type, batch and length.
      arrays: makes the arrays of a model.
    """
    on_real = []
    for case in cases:
        parameters = case.model.model_parameters
        kind = [
            case.model.model_impl.architecture,
            *(parameters.get(key) for key in ("data_type", "batch_size", "seq_len")),
        ]
        target = root_dir() / "inputs" / digest_of([*made_of, *map(str, kind)])[:32]
        if not (target / _WHOLE).is_file():
            with new_directory(target, whole_with=_WHOLE) as directory:
                save_all(directory, "input", arrays(case.model))
        given = array_files.read_user_inputs(target)
        if case.model.model_impl.architecture is None:
            on_real.append(BenchmarkCase.build(model=case.model, input_data=given.data))
        else:
            on_real += array_files.cases_with([case], given)
    return on_real


def on_text(
    cases: Sequence[BenchmarkCase], directory: Path, config: Mapping[str, Any], file: Path
) -> list[BenchmarkCase]:
    """Returns the cases of a directory on windows of a text, a different one for each row.

    Raises:
      UserModelError: the tokenizer or the text is missing, or the model does not take text.
    """
    tokenizer = directory / TOKENIZER_FILE
    if not tokenizer.is_file():
        raise UserModelError(
            f"--text: {directory} has no {TOKENIZER_FILE}; save the model's tokenizer there with "
            "save_pretrained()"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserModelError(f"--text {file} cannot be read as UTF-8 text: {error}") from error
    return cases_on(
        cases,
        # The configuration has the vocabulary, which is checked once, and the special tokens.
        [text, sha256_of(tokenizer), digest_of(config)],
        lambda model: _arrays(text, model, directory, config),
    )


def _arrays(text: str, model: Model, directory: Path, config: Mapping[str, Any]) -> Sequence[Any]:
    from openxla.benchmark.models import preprocessing

    parameters = model.model_parameters
    try:
        if name := model.model_impl.architecture:
            arrays = _of_architecture(text, name, parameters, directory)
        elif (
            config.get("is_encoder_decoder")
            and "pipeline" not in parameters
            and not str(parameters.get("model_class")).endswith("EncoderModel")
        ):
            raise UserModelError(
                f"--text: {directory.name} has an encoder and a decoder, which need separate "
                "texts; pass --inputs"
            )
        else:
            arrays = preprocessing.token_batch(
                text,
                directory / TOKENIZER_FILE,
                batch_size=integer(parameters, "batch_size"),
                seq_len=integer(parameters, "seq_len"),
            )
    except UserModelError:
        raise
    except Exception as error:  # tokenizers raises Rust's errors as plain `Exception`
        raise UserModelError(f"--text: {directory / TOKENIZER_FILE}: {error}") from error
    highest, vocabulary = int(arrays[0].max()), int(config["vocab_size"])
    if highest >= vocabulary:
        raise UserModelError(
            f"--text: {directory / TOKENIZER_FILE} produced token {highest}, but the model's "
            f"tokens are below {vocabulary}; save the model's own tokenizer there"
        )
    return arrays


def _of_architecture(
    text: str, name: str, parameters: Mapping[str, Any], directory: Path
) -> Sequence[Any]:
    architecture = architectures.get(name)
    complete = architecture.complete(parameters)
    if not isinstance(architecture.default_inputs(complete), str):
        raise UserModelError(f"--text: {directory.name} does not accept text")
    return architecture.preprocess(text, complete, directory)


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image


def on_image(
    cases: Sequence[BenchmarkCase], directory: Path, config: Mapping[str, Any], file: Path
) -> list[BenchmarkCase]:
    """Returns the cases of a directory on a picture, shifted further for each row.

    Raises:
      UserModelError: the image processor or picture is missing, or the model takes no pictures.
    """
    if "vocab_size" in config or config.get("num_channels", _CHANNELS) != _CHANNELS:
        raise UserModelError(f"--image: {directory.name} does not accept RGB images")
    processor = directory / _PROCESSOR_FILE
    if not processor.is_file():
        raise UserModelError(
            f"--image: {directory} has no {_PROCESSOR_FILE}; save the model's image processor "
            "there with save_pretrained()"
        )
    height, width = _pair(config.get("image_size") or 224)
    picture = _opened(file)
    try:
        pixels = _prepared(picture, json.loads(processor.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserModelError(f"--image: {processor} is not supported: {error}") from error
    if pixels.shape[1:] != (height, width):
        made = "x".join(map(str, pixels.shape[1:]))
        raise UserModelError(
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
    """Returns a picture in RGB.

    Raises:
      UserModelError: the file cannot be read, is not a picture, or would be extremely large.
    """
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserModelError(f"--image {file} cannot be read as an image: {error}") from error


def _prepared(picture: "Image", says: Mapping[str, Any]) -> "npt.NDArray[np.float32]":
    """Returns float32[3, height, width]: resized, cropped, scaled and normalised as configured.

    Steps without a key follow transformers' processors: all but the crop are done.
    `crop_pct` is a key of ConvNeXT and ResNet, `include_top` of EfficientNet.
    """
    import numpy as np
    from PIL import Image

    size, crop = says["size"], says.get("do_center_crop", False) and says["crop_size"]
    kind = str(says.get("image_processor_type", says.get("feature_extractor_type")))
    if isinstance(size, int) and ("crop_pct" in says or kind.startswith("CLIP")):
        size = {"shortest_edge": size}  # in old files
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
            pixels = pixels / stddev  # as in the network's training
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)


def _resized(size: tuple[int, int], wanted: Any) -> tuple[int, int]:
    """Returns the width and height to resize to: as named, or by the length of the shorter side."""
    if isinstance(wanted, Mapping) and "shortest_edge" in wanted:
        edge, (short, long) = int(wanted["shortest_edge"]), sorted(size)
        longer = int(edge * long / short)  # as in transformers
        return (edge, longer) if size[0] == short else (longer, edge)
    height, width = _pair(wanted)
    return width, height


def _pair(size: Any) -> tuple[int, int]:
    """Returns height and width from a configuration's size."""
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    if isinstance(size, Sequence):
        height, width = size
        return int(height), int(width)
    return int(size), int(size)
