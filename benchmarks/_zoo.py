"""The models of the tables: one of each architecture, at a size that takes tens of milliseconds.

Models that are small enough have their real size. Gemma, Llama and Stable Diffusion's denoiser and
decoder have a smaller configuration, only for these benchmarks: fewer and narrower layers in the
same proportions.
"""

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models import architectures

# Names of the architecture, the new configuration and the base configuration; then the changes.
_SIZES: Sequence[tuple[str, str, str, Mapping[str, Any]]] = (
    (
        "gemma",
        "gemma-bench",
        "google/gemma-2b-it",
        {
            "hidden_size": 1024,
            "intermediate_size": 8192,
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "vocab_size": 16384,
        },
    ),
    (
        "llama",
        "llama-bench",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        {
            "hidden_size": 1024,
            "intermediate_size": 2816,
            "num_attention_heads": 16,
            "num_hidden_layers": 6,
            "num_key_value_heads": 2,
            "vocab_size": 16384,
        },
    ),
    (
        "sd_unet",
        "sd-unet-bench",
        "sd-unet",
        {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 1, "sample_size": 32},
    ),
    (
        "sd_vae",
        "sd-vae-bench",
        "sd-vae",
        {"block_out_channels": [64, 128, 256, 256], "sample_size": 128},
    ),
    # Tiny configurations that KerasHub's models support: encoder and decoder have the same depth,
    # group norms have 32 groups, the first stage is 64 wide, and EfficientNet has all its blocks.
    ("efficientnet", "efficientnet-quick", "google/efficientnet-b0", {"image_size": 64}),
    ("resnet", "resnet-quick", "resnet-tiny", {"embedding_size": 64, "hidden_sizes": [256, 512]}),
    (
        "sd_vae",
        "sd-vae-quick",
        "sd-vae-tiny",
        {"block_out_channels": [32, 64], "norm_num_groups": 32},
    ),
    (
        "t5",
        "t5-quick",
        "t5-small",
        {
            "d_ff": 512,
            "d_model": 128,
            "num_decoder_layers": 2,
            "num_heads": 2,
            "num_layers": 2,
            "vocab_size": 1024,
        },
    ),
)


@attrs.frozen
class Entry:
    """A model of the tables.

    Attributes:
      name: architecture.
      parameters: arguments of `create_model`.
      quick: arguments with `--quick`.
    """

    name: str
    parameters: Parameters
    quick: Parameters

    def model(self, framework: str, *, quick: bool) -> Any:
        """Returns our model in that framework, float32, batch 1; its checkpoint is made if needed.

        Args:
          framework: `jax` or `tf`.
          quick: use the tiny size.
        """
        path = f"openxla.benchmark.models.{framework}.{self.name}"
        return importlib.import_module(path).create_model(
            batch_size=1, data_type="fp32", **(self.quick if quick else self.parameters)
        )


ENTRIES: Mapping[str, Entry] = {
    name: Entry(name, {"model_name": model, **more}, {"model_name": quick, **quick_more})
    for name, model, more, quick, quick_more in (
        ("bert", "bert-base-uncased", {"seq_len": 128}, "bert-tiny", {"seq_len": 32}),
        ("resnet", "microsoft/resnet-50", {}, "resnet-quick", {}),
        ("t5", "t5-small", {"seq_len": 128}, "t5-quick", {"seq_len": 32}),
        ("gpt2", "gpt2", {"seq_len": 64}, "gpt2-tiny", {"seq_len": 32}),
        ("vit", "google/vit-base-patch16-224", {}, "vit-tiny", {}),
        ("efficientnet", "google/efficientnet-b0", {}, "efficientnet-quick", {}),
        ("gemma", "gemma-bench", {"seq_len": 64}, "gemma-tiny", {"seq_len": 32}),
        ("llama", "llama-bench", {"seq_len": 64}, "llama-tiny", {"seq_len": 32}),
        ("sd_clip", "sd-clip", {"seq_len": 77}, "sd-clip-tiny", {"seq_len": 32}),
        ("sd_unet", "sd-unet-bench", {}, "sd-unet-tiny", {}),
        ("sd_vae", "sd-vae-bench", {}, "sd-vae-quick", {}),
        ("whisper", "openai/whisper-tiny", {"seq_len": 64}, "whisper-tiny-test", {"seq_len": 16}),
    )
}


def add_sizes() -> None:
    """Adds the configurations of the benchmarks to their architectures."""
    for architecture, name, base, changes in _SIZES:
        kind = type(architectures.get(architecture))
        kind.configs = {**kind.configs, name: {**kind.configs[base], **changes}}


def options(description: str, *, script: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of all tables."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--rounds", type=int, default=15, help="number of blocks per program (default: 15)")
    add(
        "--only",
        type=_names,
        default=tuple(ENTRIES),
        help="architectures, e.g. bert,resnet (default: all)",
    )
    add("--quick", action="store_true", help="try the script with tiny models, without recording")
    add("--root-dir", type=Path, help="directory for checkpoints, as in `cbs run`")
    add(
        "--output",
        type=Path,
        default=Path(__file__).parent / "recorded" / f"{script}.jsonl",
        help="file with one line per table, in which to replace old lines (default: %(default)s)",
    )
    return parser


def prepared(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the options, and configures this process."""
    chosen = parser.parse_args()
    if chosen.root_dir:
        os.environ[ROOT_DIR_VARIABLE] = str(chosen.root_dir.absolute())
    add_sizes()
    return chosen


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in ENTRIES]:
        text = f"unknown architecture {unknown[0]!r}; choices are {', '.join(ENTRIES)}"
        raise argparse.ArgumentTypeError(text)
    return names
