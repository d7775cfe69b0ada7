"""Loading transformers' models from a checkpoint directory."""

from pathlib import Path
from typing import Any

import transformers

from openxla.benchmark.models.pt.tensors import TORCH_DTYPES


def load(model_class: Any, checkpoint: Path, data_type: str, **options: Any) -> Any:
    """Returns a transformers model with the checkpoint's weights, cast to `data_type`.

    Quiet about weights that the model has no use for (a pooler, a head): checkpoints are shared by
    models that use different parts. Missing weights raise: random ones would pass unnoticed.

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
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ValueError(f"{checkpoint.name} lacks weights: {report}")
    return model
