"""Downloads from Hugging Face's hub, for preparation; milabench misspells the name."""

from typing import Any

_LEFT_OUT = ["*.git*", "*.md", "*.txt", "*.onnx"]


def download_hf_model(
    model_id: str,
    token: "str | None" = None,
    cache_dir: Any = None,
    ignore_patterns: "list[str] | None" = None,
) -> None:
    """Fetches a model into the cache."""
    from huggingface_hub import snapshot_download

    ignored = _LEFT_OUT if ignore_patterns is None else ignore_patterns
    path = snapshot_download(model_id, token=token, cache_dir=cache_dir, ignore_patterns=ignored)
    print(f"{model_id} is in {path}")


def download_hf_dataset(
    dataset_name: str,
    split: "str | None" = None,
    name: "str | None" = None,
    token: "str | None" = None,
) -> bool:
    """Fetches a data set into the cache."""
    from datasets import load_dataset

    load_dataset(dataset_name, name=name, split=split, token=token)
    print(f"{dataset_name} is in the cache")
    return True
