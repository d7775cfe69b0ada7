"""BERT in PyTorch: transformers' `BertModel` on the shared checkpoint."""

from types import MappingProxyType
from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class BertModel(hugging_face.HuggingFaceModel):
    """Inputs: input_ids and attention_mask, int32[batch, seq]; output: [batch, seq, hidden]."""

    architecture = bert.ARCHITECTURE
    model_class = transformers.BertModel
    options = MappingProxyType({"add_pooling_layer": False})

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Returns the last hidden state."""
        output = self.model(
            input_ids=as_tensor(input_ids), attention_mask=as_tensor(attention_mask)
        )
        return output.last_hidden_state


create_model = shared_model.creator(bert.ARCHITECTURE, BertModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **bert.ARCHITECTURE.example)
