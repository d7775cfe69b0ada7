"""T5 in PyTorch: transformers' `T5Model` on the shared checkpoint."""

from typing import Any, ClassVar

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture, t5
from openxla.benchmark.models.pt import hugging_face, tensors
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor


class T5Model(hugging_face.HuggingFaceModel):
    """Inputs: input_ids and decoder_input_ids, int32[batch, seq]; output: [batch, seq, d_model]."""

    architecture: Architecture = t5.ARCHITECTURE
    model_class: ClassVar[Any] = transformers.T5Model

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        # In float16 models, transformers keeps the last matrix of each feed-forward layer in
        # float32, because pretrained models overflow; no other framework does.
        self.model = self.model.to(TORCH_DTYPES[str(parameters["data_type"])])
        for stack in (self.model.encoder, self.model.decoder):
            _replace_norms(stack)
        self.requires_grad_(False)

    def forward(self, input_ids: Any, decoder_input_ids: Any) -> Any:
        """Returns the last hidden state of the decoder."""
        output = self.model(
            input_ids=as_tensor(input_ids),
            decoder_input_ids=as_tensor(decoder_input_ids),
            use_cache=False,
        )
        return output.last_hidden_state


def _replace_norms(stack: Any) -> None:
    """Makes the norms of encoder or decoder support float64."""

    def norm(theirs: Any) -> torch.nn.Module:
        return tensors.RmsNorm(theirs.weight, theirs.variance_epsilon, around_one=False)

    stack.final_layer_norm = norm(stack.final_layer_norm)
    for block in stack.block:
        for part in block.layer:
            part.layer_norm = norm(part.layer_norm)


create_model = shared_model.creator(t5.ARCHITECTURE, T5Model)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5.ARCHITECTURE.example)
