"""BERT in PyTorch: transformers' `BertModel` on the shared checkpoint."""

from typing import Any

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class BertModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Inputs: input_ids and attention_mask, int32[batch, seq]; output: [batch, seq, hidden]."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(bert.ARCHITECTURE, parameters)
        self.model = hugging_face.load(
            transformers.BertModel,
            self.checkpoint,
            str(parameters["data_type"]),
            add_pooling_layer=False,
        )
        self.eval().requires_grad_(False)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Returns the last hidden state."""
        output = self.model(
            input_ids=as_tensor(input_ids), attention_mask=as_tensor(attention_mask)
        )
        return output.last_hidden_state


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 384,
    model_name: str = "bert-large-uncased",
    **parameters: Any,
) -> BertModel:
    """Returns BERT on the checkpoint of `model_name`.

    Further parameters: `checkpoint` (`seeded` or `pretrained`) and `seed`; the seed project's
    `import_with_fx` and `import_on_gpu` are accepted and have no meaning here.
    """
    return BertModel(
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
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="bert-tiny"
    )
