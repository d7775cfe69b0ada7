"""Loops over many steps of a model, for PyTorch."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def not_unrolled(function: Function) -> Function:
    """Decorates a loop that calls the same parts of a model again and again.

    `torch.compile` would unroll hundreds of steps into one program. So it skips this frame,
    compiles the functions that are called in it, and runs these again and again. An exporter needs
    all of it in one program, and refuses a function that is to be skipped: it gets the loop as it
    is.
    """
    skipped = torch.compiler.disable(function, recursive=False)

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        chosen = function if torch.compiler.is_exporting() else skipped
        return chosen(*arguments, **options)

    return cast("Function", run)
