"""GPT-2 as a pipeline that continues a prompt of a few words, as users of local runtimes run it.

The network, its checkpoint and the generator are those of `gpt2`; what is different is what a
definition may leave out.
"""

from typing import TYPE_CHECKING

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.gpt2 import Gpt2

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import numpy as np
    import numpy.typing as npt


class Gpt2Pipeline(Gpt2):
    """Input: input_ids i32[batch, seq].

    Outputs: see `generation.GenerationModel.generate`. Weights are those of `Gpt2`.
    """

    name = "gpt2_pipeline"
    version = 1
    # The seed's definition names the prompt's length in the model's name only; the number of new
    # tokens is in its source.
    defaults = {"seq_len": 4, "max_new_tokens": 200}

    def generates(self, parameters: Parameters) -> bool:
        """Always: it is what the pipeline is for."""
        return True

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Token ids, i32[batch, seq]."""
        return super().input_specs(self.complete(parameters))

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The generated tokens, i32[batch, new], and their logits, f32[batch, new, vocab]."""
        return super().output_specs(self.complete(parameters))

    def label(self, parameters: Parameters) -> str:
        """Tells it from a case of `gpt2` that generates."""
        return f"pipeline-{super().label(self.complete(parameters))}"

    def preprocess(
        self, raw_input: "Any", parameters: Parameters, checkpoint: "Path"
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Cuts the text into prompts, a different one for each row of the batch."""
        return super().preprocess(raw_input, self.complete(parameters), checkpoint)


ARCHITECTURE = Gpt2Pipeline()
