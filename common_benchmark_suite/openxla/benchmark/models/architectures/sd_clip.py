"""The text encoder of Stable Diffusion 1: CLIP's (Radford et al. 2021, arXiv:2103.00020)."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, tensor
from openxla.benchmark.models.architectures.text import TextArchitecture


def _config(hidden: int, depth: int, heads: int, vocabulary: int) -> Mapping[str, Any]:
    return {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "quick_gelu",
        "hidden_size": hidden,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 4 * hidden,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 77,
        "num_attention_heads": heads,
        "num_hidden_layers": depth,
        "pad_token_id": 1,
        "projection_dim": hidden,
        "vocab_size": vocabulary,
    }


class SdClip(TextArchitecture):
    """Input: input_ids i32[batch, seq]; output: last hidden state [batch, seq, hidden]."""

    name = "sd_clip"
    version = 1
    configs = {
        "sd-clip-tiny": _config(64, 2, 2, vocabulary=1024),
        "sd-clip": _config(768, 12, 12, vocabulary=49408),
    }

    standard = {"model_name": "sd-clip", "seq_len": 77}
    example = {"model_name": "sd-clip-tiny", "seq_len": 32}
    module_names = (
        (r"^embeddings\.token_embedding\b", "words"),
        (r"^embeddings\.position_embedding\b", "positions"),
        (r"^encoder\.layers\b", "layers"),
        (r"\blayer_norm1\b", "attention_norm"),
        (r"\bself_attn\b", "attention"),
        *layers.PROJECTIONS,
        (r"\blayer_norm2\b", "mlp_norm"),
        (r"\bmlp\.fc1\b", "up"),
        (r"\bmlp\.fc2\b", "down"),
        (r"^final_layer_norm\b", "norm"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in transformers' `CLIPTextModel`."""
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        for table, rows, stddev in (
            ("token_embedding", config["vocab_size"], 1.0),
            ("position_embedding", config["max_position_embeddings"], 0.5),
        ):
            yield TensorInit(name=f"embeddings.{table}.weight", shape=(rows, hidden), stddev=stddev)
        # Keeps the sum over all branches of order one for any number of layers.
        last = layers.AFTER_ACTIVATION_GAIN / math.sqrt(2 * config["num_hidden_layers"])
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layers.{index}"
            yield from layers.norm(f"{layer}.layer_norm1", hidden)
            for part, gain in (
                ("q_proj", layers.ATTENTION_GAIN),
                ("k_proj", layers.ATTENTION_GAIN),
                ("v_proj", 1.0),
                ("out_proj", last),
            ):
                yield from layers.linear(f"{layer}.self_attn.{part}", hidden, hidden, gain=gain)
            yield from layers.norm(f"{layer}.layer_norm2", hidden)
            yield from layers.linear(f"{layer}.mlp.fc1", hidden, intermediate)
            yield from layers.linear(f"{layer}.mlp.fc2", intermediate, hidden, gain=last)
        yield from layers.norm("final_layer_norm", hidden)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The last hidden state after its norm, [batch, seq, hidden]."""
        shape = self.token_spec(parameters).shape
        return (tensor(parameters, *shape, self.config_of(parameters)["hidden_size"]),)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Cuts the text into token windows, a different one for each row of the batch.

        As in the pipeline of Stable Diffusion, padding is not masked, but treated as text.
        """
        ids, _ = self.token_windows(raw_input, parameters, checkpoint)
        return (ids,)


ARCHITECTURE = SdClip()
