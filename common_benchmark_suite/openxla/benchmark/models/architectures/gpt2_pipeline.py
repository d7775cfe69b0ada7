"""GPT-2 as a pipeline that continues a prompt of a few words, as users of local runtimes run it.

The network, its checkpoint and the generator are those of `gpt2`; what is different is what a
definition may leave out.
"""

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.gpt2 import Gpt2


class Gpt2Pipeline(Gpt2):
    """Input: input_ids i32[batch, seq].

    Outputs: see `generation.GenerationModel.generate`. Weights are those of `Gpt2`.
    """

    name = "gpt2_pipeline"
    version = 1
    # The OpenXLA suite names the prompt's length in the model's name only; the number of new
    # tokens is in its source.
    defaults = {"seq_len": 4, "max_new_tokens": 200}

    standard = {"model_name": "gpt2"}
    example = {"model_name": "gpt2-tiny", "max_new_tokens": 8}

    def label(self, parameters: Parameters) -> str:
        """Tells it from a case of `gpt2` that generates."""
        return f"pipeline-{super().label(parameters)}"


ARCHITECTURE = Gpt2Pipeline()
