"""The base class of the OpenXLA suite's JAX models."""

from typing import Any

from openxla.benchmark.models.model_interfaces import InferenceModel


class JaxInferenceModel(InferenceModel):
    """A model whose parameters can be had apart from it."""

    def apply(self, *preprocessed_inputs: Any) -> Any:
        """Runs it on parameters that are the first argument; returns one array or a tuple."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")
