"""GPT-2 as a pipeline that continues a short prompt, as in local runtimes.

Network, checkpoint and generator come from `gpt2`; only the default parameters differ.
"""

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.gpt2 import Gpt2


class Gpt2Pipeline(Gpt2):
    """Input: input_ids i32[batch, seq].

    Outputs: see `model_interfaces.GenerationModel.generate`. Weights as in `Gpt2`.
    """

    name = "gpt2_pipeline"
    version = 1
    # In the OpenXLA suite, the prompt's length is part of the model's name; the number of new
    # tokens is in its source.
    defaults = {"seq_len": 4, "max_new_tokens": 200}

    standard = {"model_name": "gpt2"}
    example = {"model_name": "gpt2-tiny", "max_new_tokens": 8}

    def label(self, parameters: Parameters) -> str:
        """Adds a prefix that distinguishes the case from a generating case of `gpt2`."""
        return f"pipeline-{super().label(parameters)}"


ARCHITECTURE = Gpt2Pipeline()
