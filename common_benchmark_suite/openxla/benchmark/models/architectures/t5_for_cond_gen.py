"""Generation with T5: prompts in, new tokens and their logits out."""

from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Arrays
from openxla.benchmark.models.architectures.t5 import T5


class T5ForCondGen(T5):
    """Inputs: input_ids and attention_mask, i32[batch, seq].

    Outputs: see `model_interfaces.GenerationModel.generate`. Weights as in `T5`.
    """

    name = "t5_for_cond_gen"
    version = 2

    # The value of the OpenXLA suite's large cases, whose definitions omit it.
    defaults = {**T5.defaults, "max_new_tokens": 128}
    example = {**T5.example, "max_new_tokens": 8}

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The generated tokens, i32[batch, new], and their logits, f32[batch, new, vocab]."""
        return self.generated_specs(parameters, self.new_tokens(parameters) or 0)

    def label(self, parameters: Parameters) -> str:
        """Adds the number of generated tokens to the usual label."""
        return f"{super().label(parameters)}-{self.new_tokens(parameters)}new"

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Cuts the text into padded token windows, a different one for each row of the batch.

        Padding costs as much time as tokens, and a model that attends to it is wrong.

        Raises:
          DefinitionError: the sequence is too short to be padded.
        """
        seq_len = self.token_spec(parameters).shape[1]
        if seq_len < 4:
            raise DefinitionError(f"parameter 'seq_len' must be at least 4, got {seq_len}")
        return self.padded_windows(raw_input, parameters, checkpoint)


ARCHITECTURE = T5ForCondGen()
