"""T5 in PyTorch: transformers' `T5Model` on the shared checkpoint."""

from typing import Any

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture, t5
from openxla.benchmark.models.pt import float64, hugging_face
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor


class T5Model(torch.nn.Module, shared_model.ArchitectureModel):
    """Inputs: input_ids and decoder_input_ids, int32[batch, seq]; output: [batch, seq, d_model]."""

    model_class: Any = transformers.T5Model
    own_architecture: Architecture = t5.ARCHITECTURE

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(self.own_architecture, parameters)
        data_type = str(parameters["data_type"])
        # transformers keeps the last matrix of each feed-forward layer in float32 where the rest is
        # float16, for pretrained models that overflow; no other framework does.
        self.model = hugging_face.load(self.model_class, self.checkpoint, data_type).to(
            TORCH_DTYPES[data_type]
        )
        for stack in (self.model.encoder, self.model.decoder):
            _replace_norms(stack)
        self.eval().requires_grad_(False)

    def forward(self, input_ids: Any, decoder_input_ids: Any) -> Any:
        """Returns the last hidden state of the decoder."""
        output = self.model(
            input_ids=as_tensor(input_ids),
            decoder_input_ids=as_tensor(decoder_input_ids),
            use_cache=False,
        )
        return output.last_hidden_state


def _replace_norms(stack: Any) -> None:
    """Has the norms of encoder or decoder follow a float64 model."""

    def norm(theirs: Any) -> torch.nn.Module:
        return float64.RmsNorm(theirs.weight, theirs.variance_epsilon, around_one=False)

    stack.final_layer_norm = norm(stack.final_layer_norm)
    for block in stack.block:
        for part in block.layer:
            part.layer_norm = norm(part.layer_norm)


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 512,
    model_name: str = "t5-large",
    **parameters: Any,
) -> T5Model:
    """Returns T5 on the checkpoint of `model_name`.

    Further parameters: `checkpoint` (`seeded` or `pretrained`) and `seed`.
    """
    return T5Model(
        {
            "batch_size": batch_size,
            "data_type": data_type,
            "seq_len": seq_len,
            "model_name": model_name,
            **parameters,
        }
    )


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="t5-tiny"
    )
