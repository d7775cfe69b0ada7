"""transformers' models on the shared checkpoint; language models score or generate.

Masks are ours, not transformers': under `torch.compile` it would build a mask where `is_causal`
suffices, and its caches attend to every position of the cache even while the prompt is read.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.model_interfaces import max_new_tokens
from openxla.benchmark.models.pt import tensors
from openxla.benchmark.models.pt.greedy import GreedyModel, KeysValues, StaticCache
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor

# transformers makes no masks for an attention with an unknown name; without a mask, its own
# function is causal.
_ATTENTION = "sdpa_causal"


def load(
    model_class: Any,
    checkpoint: Path,
    data_type: str,
    *,
    spared: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Returns a transformers model with the checkpoint's weights, cast to `data_type`.

    Unused weights (a pooler, a head) are ignored silently, because models with different parts
    share checkpoints. Missing weights raise, because random ones would go unnoticed.

    Args:
      model_class: class of transformers.
      checkpoint: its directory.
      data_type: type of the weights in memory.
      spared: prefixes of weights that may be missing because they are unused.
      options: options of `from_pretrained`.

    Raises:
      ValueError: the checkpoint lacks weights.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, report = model_class.from_pretrained(
        checkpoint,
        dtype=TORCH_DTYPES[data_type],
        local_files_only=True,
        output_loading_info=True,
        **options,
    )
    missing = [name for name in report["missing_keys"] if not name.startswith(spared)]
    mismatched = [item for item in report["mismatched_keys"] if not item[0].startswith(spared)]
    if missing or mismatched:
        raise ValueError(f"{checkpoint.name} lacks weights: {report}")
    return model


class HuggingFaceModel(torch.nn.Module, shared_model.ArchitectureModel):
    """A transformers model; subclasses set its class, and define `forward`.

    Attributes:
      architecture: architecture of the checkpoint and parameters.
      model_class: transformers' class of the model.
      options: options of `from_pretrained`.
      model: transformers' model.
    """

    architecture: Architecture
    model_class: ClassVar[Any]
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.load(self.architecture, self.model_class, parameters)

    def load(self, architecture: Architecture, model_class: Any, parameters: Parameters) -> None:
        """Loads transformers' model; called by constructors."""
        self.set_architecture(architecture, parameters)
        data_type = str(parameters["data_type"])
        self.model = load(model_class, self.checkpoint, data_type, **self.options)
        self.eval().requires_grad_(False)


class ImageClassifierModel(HuggingFaceModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, labels]."""

    def forward(self, pixel_values: Any) -> Any:
        """Returns the logits."""
        return self.model(pixel_values=as_tensor(pixel_values)).logits


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> Any:
    """Returns transformers' attention; a single masked query never repeats keys and values.

    transformers avoids this in eager mode only. The heads that share a key become rows of one
    product, as in our JAX and TensorFlow models.
    """
    if attention_mask is None or query.shape[2] > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    batch, heads, _, size = query.shape
    rows = query.reshape(batch, key.shape[1], heads // key.shape[1], size)
    y = torch.nn.functional.scaled_dot_product_attention(
        rows, key, value, attn_mask=attention_mask, scale=options.get("scaling")
    )
    return y.reshape(batch, 1, heads, size), None


transformers.AttentionInterface.register(_ATTENTION, _attend)


class _Collect:
    """Replaces transformers' cache: returns new keys and values unchanged, and keeps them."""

    def __init__(self) -> None:
        self.layers: KeysValues = []

    def get_seq_length(self, *_: Any) -> int:
        return 0

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, _: int, *__: Any, **___: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layers.append((keys, values))
        return keys, values


class CausalLM(HuggingFaceModel):
    """Input: input_ids i32[batch, seq]; output: logits [batch, seq, vocab]."""

    options = MappingProxyType({"attn_implementation": _ATTENTION})

    def __init__(
        self, model_class: Any, architecture: Architecture, parameters: Parameters
    ) -> None:
        # Skips the parent's constructor, because one class serves several architectures.
        torch.nn.Module.__init__(self)
        self.load(architecture, model_class, parameters)

    def forward(self, input_ids: Any) -> Any:
        """Returns the logits of the token after each."""
        return self.model(input_ids=as_tensor(input_ids), use_cache=False).logits


class CausalGenerator(CausalLM, GreedyModel):
    """Input: input_ids i32[batch, prompt]; outputs: see `GenerationModel.generate`."""

    prompt_inputs = 1

    def __init__(
        self, model_class: Any, architecture: Architecture, parameters: Parameters
    ) -> None:
        super().__init__(model_class, architecture, parameters)
        self.max_new_tokens = max_new_tokens(parameters) or 0

    def prefill(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, KeysValues]:
        """See `GenerationModel.prefill`; the cache is a list of (keys, values)."""
        collected = _Collect()
        output = self.model(
            input_ids=input_ids, past_key_values=collected, use_cache=False, logits_to_keep=1
        )
        room = (0, 0, 0, self.max_new_tokens)
        cache = [
            (torch.nn.functional.pad(keys, room), torch.nn.functional.pad(values, room))
            for keys, values in collected.layers
        ]
        return _at_least_float32(output.logits[:, -1]), cache

    def decode(
        self, token: torch.Tensor, position: torch.Tensor, cache: KeysValues
    ) -> tuple[torch.Tensor, KeysValues]:
        """See `GenerationModel.decode`; position is i64[1], the cache is written into."""
        logits, cache = self.read(token[:, None], position, cache)
        return logits[:, -1], cache

    def read(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: KeysValues
    ) -> tuple[torch.Tensor, KeysValues]:
        """See `GreedyModel.read`; reads all tokens at once."""
        length = cache[0][0].shape[2]
        visible = torch.arange(length, device=positions.device) <= positions[:, None]
        output = self.model(
            input_ids=tokens,
            position_ids=positions[None],
            past_key_values=StaticCache(cache, positions),
            attention_mask=visible[None, None],
            use_cache=False,
        )
        return _at_least_float32(output.logits), cache

    def forward(self, input_ids: Any, forced_tokens: Any = None) -> Any:
        """Generates."""
        given = (input_ids,) if forced_tokens is None else (input_ids, forced_tokens)
        return self.generate(*map(as_tensor, given))


def causal_lm_creator(
    architecture: Architecture,
    model_class: Any,
    adapt: Callable[[Any, Mapping[str, Any]], None] | None = None,
) -> Callable[..., CausalLM]:
    """Returns a `create_model` whose models generate if `max_new_tokens` is given, or score.

    Args:
      architecture: architecture of the models.
      model_class: their transformers class.
      adapt: modifies a transformers decoder without head, given the configuration.
    """

    def model(parameters: Parameters) -> CausalLM:
        kind = CausalLM if max_new_tokens(parameters) is None else CausalGenerator
        made = kind(model_class, architecture, parameters)
        if adapt is not None:
            adapt(made.model.model, architecture.config_of(parameters))
        return made

    return shared_model.creator(architecture, model)


def replace_float32_parts(decoder: Any, config: Mapping[str, Any], *, around_one: bool) -> None:
    """Makes a decoder of Llama's pattern support float64.

    Args:
      decoder: transformers' decoder without the head.
      config: configuration of the model.
      around_one: whether norms scale by 1 + weight.
    """

    def norm(theirs: Any) -> torch.nn.Module:
        return tensors.RmsNorm(theirs.weight, config["rms_norm_eps"], around_one=around_one)

    decoder.rotary_emb = tensors.RotaryEmbedding(rotary_frequencies(config))
    decoder.norm = norm(decoder.norm)
    for layer in decoder.layers:
        layer.input_layernorm = norm(layer.input_layernorm)
        layer.post_attention_layernorm = norm(layer.post_attention_layernorm)


def _at_least_float32(logits: torch.Tensor) -> torch.Tensor:
    return logits.to(tensors.at_least_float32(logits.dtype))
