"""Text and audio transformers of KerasHub with the weights of our checkpoints."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from _keras_port import KerasProgram, assign, hub, port
from _weights import arrays, config_of

from openxla.benchmark.models.shared_model import ArchitectureModel


def bert(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    ids, mask = inputs
    return KerasProgram(
        hub().BertBackbone.from_preset(str(model.checkpoint)),
        {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask},
        lambda outputs: outputs["sequence_output"],
    )


def causal_lm(family: str) -> Callable[[ArchitectureModel, Sequence[Any]], KerasProgram]:
    def build(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
        models = hub()
        backbone = getattr(models, f"{family}Backbone").from_preset(str(model.checkpoint))
        (ids,) = inputs
        return KerasProgram(
            getattr(models, f"{family}CausalLM")(backbone=backbone, preprocessor=None),
            {"token_ids": ids, "padding_mask": np.ones_like(ids)},
        )

    return build


def t5(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config, weights = config_of(model), arrays(model)
    backbone = hub().T5Backbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_layers"],
        num_heads=config["num_heads"],
        hidden_dim=config["d_model"],
        intermediate_dim=config["d_ff"],
        key_value_dim=config["d_kv"],
        dropout=0.0,
        activation="relu",
        use_gated_activation=False,
        layer_norm_epsilon=config["layer_norm_epsilon"],
        tie_embedding_weights=True,
    )
    # Weights are matched by order: the names of encoder and decoder are the same, and norms are
    # numbered through both.
    for variable, name in zip(backbone.weights, _t5_order(config), strict=True):
        assign(variable, weights[name])
    ids, decoder_ids = inputs
    given = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": np.ones_like(ids),
        "decoder_token_ids": decoder_ids,
        "decoder_padding_mask": np.ones_like(decoder_ids),
    }
    return KerasProgram(backbone, given, lambda outputs: outputs["decoder_sequence_output"])


def _t5_order(config: Mapping[str, Any]) -> Iterator[str]:
    yield "shared.weight"
    for stack, attentions in (
        ("encoder", ("SelfAttention",)),
        ("decoder", ("SelfAttention", "EncDecAttention")),
    ):
        yield f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for index in range(config["num_layers"]):
            block = f"{stack}.block.{index}.layer"
            for number, attention in enumerate(attentions):
                yield from (f"{block}.{number}.{attention}.{part}.weight" for part in "qkvo")
                yield f"{block}.{number}.layer_norm.weight"
            last = f"{block}.{len(attentions)}"
            yield from (f"{last}.DenseReluDense.{part}.weight" for part in ("wi", "wo"))
            yield f"{last}.layer_norm.weight"
        yield f"{stack}.final_layer_norm.weight"


def sd_clip(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    encoder = hub().CLIPTextEncoder(
        vocabulary_size=config["vocab_size"],
        embedding_dim=config["hidden_size"],
        hidden_dim=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
    )
    renaming = (
        (r"^embedding/(token|position)_embedding/", r"embeddings.\1_embedding/"),
        (r"^encoder_block_(\d+)/", r"encoder.layers.\1."),
        (r"attention/attention_output/", "self_attn.out_proj/"),
        (r"attention/([qkv])\w+/", r"self_attn.\1_proj/"),
        (r"\.layer_norm_(\d)/", r".layer_norm\1/"),
        (r"^layer_norm/", "final_layer_norm/"),
        (r"dense_(\d)/", r"mlp.fc\1/"),
    )
    port(encoder, arrays(model), renaming)
    return KerasProgram(encoder, {"token_ids": inputs[0]})


def whisper(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    backbone = hub().WhisperBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["encoder_layers"],
        num_heads=config["encoder_attention_heads"],
        hidden_dim=config["d_model"],
        intermediate_dim=config["encoder_ffn_dim"],
        num_mels=config["num_mel_bins"],
        max_encoder_sequence_length=2 * config["max_source_positions"],
        max_decoder_sequence_length=config["max_target_positions"],
    )
    renaming = (
        (r"^encoder_token_embedding_conv_layer_(\d)/", r"model.encoder.conv\1/"),
        (r"^encoder_position_embedding/", "model.encoder.embed_positions/"),
        (r"^decoder_token_and_position_embedding/(\w+)_embedding/", r"model.decoder.embed_\1s/"),
        (r"^transformer_(en|de)coder_layer_(\d+)/", r"model.\1coder.layers.\2."),
        (r"^(en|de)coder_layer_norm/", r"model.\1coder.layer_norm/"),
        (r"self_attention_layer_norm/", "self_attn_layer_norm/"),
        (r"cross_attention_layer_norm/", "encoder_attn_layer_norm/"),
        (r"self_attention(_layer)?/", "self_attn."),
        (r"cross_attention/", "encoder_attn."),
        (r"attn\.attention_output/", "attn.out_proj/"),
        (r"attn\.([qkv])\w+/", r"attn.\1_proj/"),
        (r"feedforward_layer_norm/", "final_layer_norm/"),
        (r"feedforward_intermediate_dense/", "fc1/"),
        (r"feedforward_output_dense/", "fc2/"),
    )
    port(backbone, arrays(model), renaming)
    keras: Any = importlib.import_module("keras")
    decoded = backbone.output["decoder_sequence_output"]
    # The backbone ends before the logits, which its embedding table computes.
    logits = backbone.token_embedding(decoded, reverse=True)
    features, ids = inputs
    given = {
        "encoder_features": features.transpose(0, 2, 1),
        "decoder_token_ids": ids,
        "decoder_padding_mask": np.ones_like(ids),
    }
    return KerasProgram(keras.Model(inputs=backbone.input, outputs=logits), given)
