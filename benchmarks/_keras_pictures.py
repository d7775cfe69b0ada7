"""Image models of KerasHub and Keras Applications with the weights of our checkpoints."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from _keras_port import KerasProgram, channels_last, hub, port
from _weights import arrays, config_of

from openxla.benchmark.models.shared_model import ArchitectureModel


def vit(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    size = config["image_size"]
    models = hub()
    backbone = models.ViTBackbone(
        image_shape=(size, size, 3),
        patch_size=config["patch_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        mlp_dim=config["intermediate_size"],
        layer_norm_epsilon=config["layer_norm_eps"],
    )
    classifier = models.ViTImageClassifier(backbone=backbone, num_classes=len(config["id2label"]))
    renaming = (
        (r"^.*patch_embedding/", "vit.embeddings.patch_embeddings.projection/"),
        (r"^.*class_token$", "vit.embeddings.cls_token"),
        (r"^.*position_embedding/embeddings$", "vit.embeddings.position_embeddings"),
        (r"^.*transformer_block_(\d+)/", lambda found: f"vit.layers.{int(found[1]) - 1}."),
        (r"ln_1/", "layernorm_before/"),
        (r"ln_2/", "layernorm_after/"),
        (r"mha/attention_output/", "attention.o_proj/"),
        (r"mha/([qkv])\w+/", r"attention.\1_proj/"),
        (r"mlp/dense_(\d)/", r"mlp.fc\1/"),
        (r"^vit_encoder/ln/", "vit.layernorm/"),
        (r"^predictions/", "classifier/"),
    )
    port(classifier, arrays(model), renaming)
    return KerasProgram(classifier, channels_last(inputs[0]))


def resnet(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    models = hub()
    backbone = models.ResNetBackbone(
        input_conv_filters=[config["embedding_size"]],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[width // 4 for width in config["hidden_sizes"]],
        stackwise_num_blocks=config["depths"],
        stackwise_num_strides=[1, *[2] * (len(config["depths"]) - 1)],
        block_type="bottleneck_block",
        image_shape=(config["image_size"], config["image_size"], 3),
    )
    classifier = models.ImageClassifier(backbone, num_classes=len(config["id2label"]))
    renaming = (
        (r"^conv1_", "resnet.embedder.embedder_"),
        (r"^stack(\d+)_block(\d+)_", r"resnet.encoder.stages.\1.layers.\2_"),
        (r"(layers\.\d+)_0_", r"\1.shortcut_"),
        (r"(layers\.\d+)_([123])_", lambda found: f"{found[1]}.layer.{int(found[2]) - 1}_"),
        (r"_conv/", ".convolution/"),
        (r"_bn/", ".normalization/"),
        (r"^predictions/", "classifier.1/"),
    )
    port(classifier, arrays(model), renaming)
    return KerasProgram(classifier, channels_last(inputs[0]))


def efficientnet(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    keras: Any = importlib.import_module("keras")
    size = config["image_size"]
    network = keras.applications.EfficientNetB0(
        weights=None, input_shape=(size, size, 3), classifier_activation=None
    )
    stages = (
        f"{stage + 1}{chr(ord('a') + repeat)}"
        for stage, repeats in enumerate(config["num_block_repeats"])
        for repeat in range(repeats)
    )
    numbers = {stage: number for number, stage in enumerate(stages)}
    renaming = (
        (r"^stem_conv/", "efficientnet.embeddings.convolution/"),
        (r"^stem_bn/", "efficientnet.embeddings.batchnorm/"),
        (r"^block(\d[a-z])_", lambda found: f"efficientnet.encoder.blocks.{numbers[found[1]]}."),
        (r"\.expand_", ".expansion.expand_"),
        (r"\.project_", ".projection.project_"),
        (r"\.dwconv/", ".depthwise_conv.depthwise_conv/"),
        (r"\.bn/", ".depthwise_conv.depthwise_norm/"),
        (r"\.se_(\w+)/", r".squeeze_excite.\1/"),
        (r"^top_", "efficientnet.encoder.top_"),
        (r"^predictions/", "classifier/"),
        (r"^normalization.*$", ""),  # Keras' own: by default it changes nothing
    )
    port(network, arrays(model), renaming)
    return KerasProgram(network, channels_last(inputs[0]) * np.float32(255))


def sd_vae(model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram:
    config = config_of(model)
    keras: Any = importlib.import_module("keras")
    layers: Any = importlib.import_module("keras_hub.src.models.vae.vae_layers")
    widths = config["block_out_channels"][::-1]
    latents = channels_last(inputs[0])
    # KerasHub has the decoder of Stable Diffusion 3, which lacks the first convolution of 1.
    network = keras.Sequential(
        [
            keras.Input(latents.shape[1:]),
            keras.layers.Conv2D(config["latent_channels"], 1, name="post_quant_conv"),
            layers.VAEDecoder(widths, len(widths) * [config["layers_per_block"] + 1]),
        ]
    )
    renaming = (
        (r"^sequential\w*/", ""),
        (r"^vae_decoder\w*/", "decoder."),
        (r"\.input_projection/", ".conv_in/"),
        (r"\.mid_block_(\d)/", r".mid_block.resnets.\1."),
        (r"\.mid_attention/", ".mid_block.attentions.0."),
        (r"\.output_conv2d/", ".to_out.0/"),
        (r"\.([qkv])\w+_conv2d/", r".to_\1/"),
        (r"\.block_(\d)_(\d)/", r".up_blocks.\1.resnets.\2."),
        (r"\.upsample_(\d)_conv/", r".up_blocks.\1.upsamplers.0.conv/"),
        (r"\.residual_projection/", ".conv_shortcut/"),
        (r"\.output_norm/", ".conv_norm_out/"),
        (r"\.output_projection/", ".conv_out/"),
    )
    port(network, arrays(model), renaming)
    return KerasProgram(network, latents, lambda pixels: keras.ops.transpose(pixels, (0, 3, 1, 2)))
