"""T5 that generates: prompts in, new tokens and the logits that they were chosen by out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models import generation
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.architectures.t5 import T5

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_DEFAULT_MAX_NEW_TOKENS = 128  # that of the seed's large cases, whose definitions leave it out


class T5ForCondGen(T5):
    """Inputs: input_ids and attention_mask, i32[batch, seq].

    Outputs: see `generation.GenerationModel.generate`. Weights are those of `T5`.
    """

    name = "t5_for_cond_gen"
    version = 1

    def generates(self, parameters: Parameters) -> bool:
        """Always."""
        return True

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The generated tokens, i32[batch, new], and their logits, f32[batch, new, vocab]."""
        element_type(parameters.get("data_type"))  # refuses what no model is offered in
        batch = self.input_specs(parameters)[0].shape[0]
        new = max_new_tokens(parameters)
        vocabulary = self.config(str(parameters["model_name"]))["vocab_size"]
        return (
            TensorSpec(shape=(batch, new), dtype="i32"),
            TensorSpec(shape=(batch, new, vocabulary), dtype="f32"),
        )

    def label(self, parameters: Parameters) -> str:
        """Adds the number of generated tokens to the usual label."""
        return f"{super().label(parameters)}-{max_new_tokens(parameters)}new"

    def preprocess(
        self, raw_input: Any, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Cuts the text into token windows, a different one for each row of the batch.

        A quarter of each is padding: it takes the time that tokens take, and a model that attends
        to it is wrong.

        Raises:
          DefinitionError: the sequence is too short to be padded.
        """
        import numpy as np

        from openxla.benchmark.models import preprocessing

        batch, seq_len = self.input_specs(parameters)[0].shape
        if seq_len < 4:
            raise DefinitionError(f"parameter 'seq_len' is {seq_len}, less than 4")
        padding = seq_len // 4
        ids, mask = preprocessing.token_batch(
            raw_input,
            checkpoint / "tokenizer.json",
            batch_size=batch,
            seq_len=seq_len - padding,
        )
        pad = self.config(str(parameters["model_name"]))["pad_token_id"]
        width = ((0, 0), (0, padding))
        return (np.pad(ids, width, constant_values=pad), np.pad(mask, width))


def max_new_tokens(parameters: Parameters) -> int:
    """Returns how many tokens the model generates.

    Raises:
      DefinitionError: the parameter is not a positive integer.
    """
    return generation.max_new_tokens(parameters) or _DEFAULT_MAX_NEW_TOKENS


ARCHITECTURE = T5ForCondGen()
