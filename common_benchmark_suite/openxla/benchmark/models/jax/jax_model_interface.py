"""The base class of the OpenXLA suite's JAX models."""

from typing import Any

from openxla.benchmark.models.model_interfaces import InferenceModel


class JaxInferenceModel(InferenceModel):
    """A model whose `forward` is compiled, with its parameters as constants."""

    def apply(self, *preprocessed_inputs: Any) -> Any:
        """Runs the model as a pure function of its inputs; returns one array or a tuple."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")
