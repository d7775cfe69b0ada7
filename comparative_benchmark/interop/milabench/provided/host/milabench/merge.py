"""Recursive merge of mappings."""

from collections.abc import Mapping
from typing import Any


def merge(base: Any, update: Any) -> Any:
    """Returns `update` over `base`, mapping by mapping."""
    if not isinstance(base, Mapping) or not isinstance(update, Mapping):
        return update
    merged = dict(base)
    for key, value in update.items():
        merged[key] = merge(base[key], value) if key in base else value
    return merged
