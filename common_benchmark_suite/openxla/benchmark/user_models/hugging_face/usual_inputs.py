"""Default inputs of a transformers model, from its `forward`, main input and configuration.

This module imports no framework and names no model. It derives the shape of an argument from keys
of the configuration. If no such key exists, the error message names the argument.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from openxla.benchmark.user_models import model_options
from openxla.benchmark.user_models.model_options import InputSpec, UserModelError

# A specification (see `specs`), or a function that makes the array.
Values = str | Callable[[], npt.NDArray[Any]]

USUAL_SEQ_LEN = 128
_USUAL_SAMPLES = 16_000  # one second of speech
_USUAL_FRAMES = 128
_USUAL_IMAGE = 224
_LONGEST = ("max_position_embeddings", "n_positions", "max_target_positions")
_IMAGE_SIZES = ("image_size", "input_size", "img_size")
_CHANNELS = ("num_channels", "in_channels", "in_chans")
_MOST_BOX = 1000  # page coordinates range from 0 to 1000


@attrs.frozen(kw_only=True)
class Taken:
    """The arguments of a model, and the configuration that determines their shapes.

    Attributes:
      arguments: arguments of `forward`, in order, with whether each is required.
      main: the first input.
      config: a transformers configuration, or an object with the same attributes.
      kind: name of the model's class, for messages.
      batch: rows.
      seq: requested length; None for the model's default.
      reserved: number of positions that tokens cannot use.
    """

    arguments: Mapping[str, bool]
    main: str
    config: Any
    kind: str
    batch: int = 1
    seq: int | None = None
    reserved: int = 0

    def inputs(self, given: Mapping[str, InputSpec]) -> dict[str, Values]:
        """Returns the inputs by name; the user's inputs replace the default ones.

        Raises:
          UserModelError: the model has no such argument, or an argument has no default.
        """
        if unknown := [name for name in given if name not in self.arguments]:
            raise UserModelError(
                f"--input {unknown[0]}: {self.kind} takes no such argument; it takes "
                f"{', '.join(self.arguments)}"
            )
        names = list(dict.fromkeys([*self._names(given), *given]))
        inputs: dict[str, Values] = {}
        missing = []
        for name in names:
            usual = str(given[name]) if name in given else self._default(name)
            if usual is None:
                missing.append(name)
            else:
                inputs[name] = usual
        if missing:
            raise UserModelError(missing_inputs(self.kind, missing))
        return inputs

    def _names(self, given: Mapping[str, InputSpec]) -> Iterator[str]:
        """Yields the names of default inputs."""
        main = self._main()
        takes_ids = "input_ids" in self.arguments and (
            main == "input_ids" or self.arguments["input_ids"] or self._has_extra_text()
        )
        if main:
            yield main
        yield from (name for name, is_needed in self.arguments.items() if is_needed)
        if takes_ids:
            yield from self._accepted("input_ids", "attention_mask")
            # Tokens that the user describes have no placeholders for pictures.
            if self.sees() and ("input_ids" not in given or _placeholder(self.config) is None):
                yield from self._accepted("pixel_values", "image_grid_thw")
                if "image_grid_thw" in self.arguments:
                    yield from self._accepted("mm_token_type_ids")
            if self.part("num_mel_bins", "spec_size") is not None:
                yield from self._accepted("input_features", "is_longer")
            if self.part("max_2d_position_embeddings") or self.part("dim_bbox"):
                yield from self._accepted("bbox")
            if self.part("type_vocab_sizes") is not None:
                yield from self._accepted("token_type_ids")
        if getattr(self.config, "is_encoder_decoder", False) or self._child("decoder"):
            yield from self._accepted("decoder_input_ids")
        if "future_time_features" in self.arguments:
            yield from self._accepted("future_values", "future_time_features")
            for kind in ("categorical", "real"):
                if getattr(self.config, f"num_static_{kind}_features", 0):
                    yield from self._accepted(f"static_{kind}_features")

    def _accepted(self, *names: str) -> Iterator[str]:
        yield from (name for name in names if name in self.arguments)

    def _main(self) -> str | None:
        if self.main in self.arguments and self._default(self.main) is not None:
            return self.main
        # A wrapper's main input can have another name.
        speech = ("input_values", "input_features")
        for name in speech if self.main not in ("input_ids", "pixel_values") else ():
            if name in self.arguments and self._default(name) is not None:
                return name
        return self.main if self.main in self.arguments else None

    def _has_extra_text(self) -> bool:
        """Returns whether the model takes a text in addition to a main input of another kind."""
        return self._child("text_config") is not None and not self.arguments["input_ids"]

    def sees(self) -> bool:
        """Returns whether the model takes a picture together with its text."""
        if "pixel_values" not in self.arguments:
            return False
        own = any(getattr(self.config, key, None) for key in _IMAGE_SIZES)
        parts = ("vision_config", "image_config")
        return own or any(self._child(name) is not None for name in parts)

    def _default(self, name: str) -> Values | None:
        """Returns the default values of an argument; None if no key determines them."""
        form = _FORMS.get(name)
        return form(self) if form else None

    def parts(self) -> list[Any]:
        """Returns the configuration and its nested configurations."""
        inner = [value for value in _values(self.config) if hasattr(value, "model_type")]
        return [self.config, *inner]

    def _child(self, name: str) -> Any:
        value = getattr(self.config, name, None)
        return value if hasattr(value, "model_type") else None

    def part(self, *keys: str) -> Any:
        """Returns the first configuration that has all of the keys."""
        for part in self.parts():
            if all(getattr(part, key, None) is not None for key in keys):
                return part
        return None

    def text(self) -> Any:
        """Returns the configuration of the text model; None without one."""
        first = [self._child(name) for name in ("text_config", "text_encoder", "encoder")]
        return next((part for part in (*first, *self.parts()) if _vocabulary(part)), None)

    def vision(self) -> Any:
        """Returns the configuration of the vision model."""
        for keys in (_IMAGE_SIZES, ("patch_size",), _CHANNELS):
            for part in self.parts():
                if any(getattr(part, key, None) for key in keys):
                    return part
        return self.config

    def length(self, part: Any) -> int:
        """Returns the length of a text: as requested, or the usual one if the model allows it."""
        if self.seq is not None:
            return self.seq
        longest = next((n for key in _LONGEST if isinstance(n := getattr(part, key, None), int)), 0)
        return max(1, min(USUAL_SEQ_LEN, (longest or USUAL_SEQ_LEN) - self.reserved))


def missing_inputs(kind: str, names: Sequence[str]) -> str:
    """Returns the sentence that asks for inputs."""
    first = names[0]
    example = f"{first}=i32[batch,seq]<1000" if first.endswith("ids") else f"{first}=f32[batch,16]"
    return (
        f"the configuration of {kind} does not determine {', '.join(names)}; describe each with "
        f"--input NAME=TYPE[SIZES], e.g. --input '{example}'"
    )


def arrays(inputs: Mapping[str, Values]) -> dict[str, npt.NDArray[Any]]:
    """Returns the arrays of inputs."""
    return {
        name: model_options.parse_spec(values).array(place) if isinstance(values, str) else values()
        for place, (name, values) in enumerate(inputs.items())
    }


def with_places(
    arrays: Mapping[str, npt.NDArray[Any]], config: Any, count: int
) -> dict[str, npt.NDArray[Any]]:
    """Returns inputs whose text has picture placeholders after its first token.

    Args:
      arrays: inputs by name.
      config: names the placeholder token.
      count: placeholders per row.
    """
    ids = arrays["input_ids"]
    token = _placeholder(config)
    rows = len(ids)
    if "image_grid_thw" in arrays:  # positions are computed from both, so their types must agree
        ids = ids.astype(np.int64)
    block = np.full((rows, count), token, ids.dtype)
    ids = np.where(ids == token, 0 if token else 1, ids)
    ids = np.concatenate([ids[:, :1], block, ids[:, 1:]], axis=1)
    changed = {"input_ids": ids}
    if "attention_mask" in arrays:
        changed["attention_mask"] = np.ones_like(ids)
    if "mm_token_type_ids" in arrays:
        changed["mm_token_type_ids"] = (ids == token).astype(ids.dtype)
    return {**arrays, **changed}


def _placeholder(config: Any) -> int | None:
    keys = ("image_token_id", "image_token_index")
    return next((n for key in keys if isinstance(n := getattr(config, key, None), int)), None)


def has_places(config: Any) -> bool:
    """Returns whether pictures have placeholders among the tokens."""
    return _placeholder(config) is not None


def _values(config: Any) -> list[Any]:
    return list(vars(config).values()) if hasattr(config, "__dict__") else []


def _vocabulary(part: Any) -> int:
    size = getattr(part, "vocab_size", None)
    return size if isinstance(size, int) else 0


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    if isinstance(size, Sequence):
        return int(size[0]), int(size[-1])
    return int(size), int(size)


def _first(part: Any, keys: Sequence[str], usual: Any = None) -> Any:
    return next((value for key in keys if (value := getattr(part, key, None))), usual)


def _tokens(taken: Taken) -> Values | None:
    text = taken.text()
    if text is None:
        return None
    written = f"i32[{taken.batch},{taken.length(text)}]<{_vocabulary(text)}"
    eos = getattr(text, "eos_token_id", None)
    eos = eos[0] if isinstance(eos, Sequence) and eos else eos
    pools_at_end = taken.sees() or (
        getattr(taken.config, "is_encoder_decoder", False) and "Classification" in taken.kind
    )
    if not pools_at_end or not isinstance(eos, int) or not 0 <= eos < _vocabulary(text):
        return written
    return lambda: _ending(model_options.parse_spec(written).array(0), eos)


def _ending(ids: npt.NDArray[Any], eos: int) -> npt.NDArray[Any]:
    """Returns rows of tokens that each end with their only end-of-text token."""
    ids = np.where(ids == eos, eos - 1 if eos else 1, ids).astype(ids.dtype)
    ids[:, -1] = eos
    return ids


def _filled(value: int) -> Callable[[Taken], Values | None]:
    def form(taken: Taken) -> Values | None:
        text = taken.text()
        return text and f"i32[{taken.batch},{taken.length(text)}]={value}"

    return form


def _types(taken: Taken) -> Values | None:
    text = taken.text()
    sizes = getattr(text, "type_vocab_sizes", None)
    if text is None or not sizes:
        return None
    return f"i32[{taken.batch},{taken.length(text)},{len(sizes)}]<{min(sizes)}"


def _decoder_tokens(taken: Taken) -> Values | None:
    parts = (getattr(taken.config, "decoder", None), taken.text())
    part = next((part for part in parts if _vocabulary(part)), None)
    if part is None:
        return None
    return f"i32[{taken.batch},{taken.length(part)}]<{_vocabulary(part)}"


def _boxes(taken: Taken) -> Values | None:
    text = taken.text()
    if text is None:
        return None
    limit = min(_MOST_BOX, getattr(text, "max_2d_position_embeddings", None) or _MOST_BOX)
    drawn = model_options.parse_spec(f"i32[{taken.batch},{taken.length(text)},2,2]<{limit}")

    def make() -> npt.NDArray[Any]:
        corners = np.sort(drawn.array(0), axis=2)  # the upper left corner comes first
        boxes = corners.reshape(*corners.shape[:2], 4)
        is_share = getattr(text, "dim_bbox", None) is not None
        return (boxes / limit).astype(np.float32) if is_share else boxes

    return make


def _pixels(taken: Taken) -> Values | None:
    part = taken.vision()
    channels = _first(part, _CHANNELS, 3)
    if "image_grid_thw" in taken.arguments:
        side = _grid(taken)
        patch = _first(part, ("patch_size",))
        if side is None or not isinstance(patch, int):
            return None
        values = channels * _first(part, ("temporal_patch_size",), 1) * patch**2
        return f"f32[{taken.batch * side**2},{values}]"
    height, width = _pair(_first(part, _IMAGE_SIZES, _USUAL_IMAGE))
    frames = getattr(part, "num_frames", None)
    sizes = [taken.batch, *([frames] if frames else []), channels, height, width]
    return f"f32[{','.join(map(str, sizes))}]"


def _grid(taken: Taken) -> int | None:
    """Returns the number of patches along a side of the default picture."""
    part = taken.vision()
    patch, merged = getattr(part, "patch_size", None), getattr(part, "spatial_merge_size", 1)
    if not isinstance(patch, int) or not isinstance(merged, int):
        return None
    return max(1, _USUAL_IMAGE // (patch * merged)) * merged


def _grids(taken: Taken) -> Values | None:
    side = _grid(taken)
    if side is None:
        return None
    return lambda: np.tile(np.array([[1, side, side]], np.int64), (taken.batch, 1))


def _features(taken: Taken) -> Values | None:
    """Returns frames of sound, using the key that gives their width."""
    batch = taken.batch
    if part := taken.part("spec_size", "num_mel_bins"):
        bins = part.num_mel_bins
        return f"f32[{batch},1,{part.spec_size * (part.spec_size // bins)},{bins}]"
    if part := taken.part("num_mel_bins", "max_source_positions"):
        return f"f32[{batch},{part.num_mel_bins},{2 * part.max_source_positions}]"
    if part := taken.part("feature_projection_input_dim"):
        return f"f32[{batch},{_USUAL_FRAMES},{part.feature_projection_input_dim}]"
    if part := taken.part("input_feat_per_channel"):
        width = part.input_feat_per_channel * (getattr(part, "input_channels", None) or 1)
        if getattr(part, "conv_kernel_sizes", None):  # features are channels
            width = part.input_feat_per_channel
        return f"f32[{batch},{4 * _USUAL_FRAMES},{width}]"
    return None


def _waveform(taken: Taken) -> Values | None:
    """Returns samples of sound, or a spectrogram if `input_values` holds spectrograms."""
    batch = taken.batch
    if part := taken.part("num_mel_bins", "max_length", "patch_size"):
        return f"f32[{batch},{part.max_length},{part.num_mel_bins}]"
    if part := taken.part("audio_channels", "sampling_rate"):
        return f"f32[{batch},{part.audio_channels},{taken.seq or part.sampling_rate}]"
    if taken.part("conv_dim", "conv_stride") or taken.main == "input_values":
        is_alone = not getattr(taken.config, "is_encoder_decoder", False)
        return f"f32[{batch},{(taken.seq if is_alone else None) or _USUAL_SAMPLES}]"
    return None


def _series(of: str, width: str = "") -> Callable[[Taken], Values | None]:
    """Returns the shape of a time series argument.

    Args:
      of: `past` or `future`.
      width: the key of the number of values per step; empty for the values themselves.
    """

    def form(taken: Taken) -> Values | None:
        config = taken.config
        ahead = getattr(config, "prediction_length", None)
        steps = ahead if of == "future" else _first(config, ("context_length",), ahead)
        if not isinstance(steps, int):
            return None
        lags = getattr(config, "lags_sequence", None)
        steps += max(lags) if lags and of == "past" else 0
        if width:
            each = [getattr(config, width, 0)]
        elif channels := getattr(config, "num_input_channels", None):
            each = [channels]
        else:
            each = [n for n in [getattr(config, "input_size", 1)] if lags and n > 1]
        sizes = (taken.batch, steps, *each)
        if 0 in sizes:
            return lambda: np.zeros(sizes, np.float32)
        return f"f32[{','.join(map(str, sizes))}]"

    return form


def _observed(taken: Taken) -> Values | None:
    values = _series("past")(taken)
    return f"{values}=1" if isinstance(values, str) else None


def _static_categories(taken: Taken) -> Values | None:
    sizes = getattr(taken.config, "cardinality", None)
    return f"i32[{taken.batch},{len(sizes)}]<{min(sizes)}" if sizes else None


def _static_numbers(taken: Taken) -> Values | None:
    count = getattr(taken.config, "num_static_real_features", 0)
    return f"f32[{taken.batch},{count}]" if count else None


_FORMS: Mapping[str, Callable[[Taken], Values | None]] = {
    "input_ids": _tokens,
    "attention_mask": _filled(1),
    "token_type_ids": _types,
    "decoder_input_ids": _decoder_tokens,
    "bbox": _boxes,
    "pixel_values": _pixels,
    "image_grid_thw": _grids,
    "mm_token_type_ids": _filled(0),
    "input_features": _features,
    "input_values": _waveform,
    "is_longer": lambda taken: f"i1[{taken.batch},1]=0",
    "past_values": _series("past"),
    "past_time_features": _series("past", "num_time_features"),
    "past_observed_mask": _observed,
    "future_values": _series("future"),
    "future_time_features": _series("future", "num_time_features"),
    "static_categorical_features": _static_categories,
    "static_real_features": _static_numbers,
}
