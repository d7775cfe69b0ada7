"""Keyword-only forward with an optional mask and a string switch.

RIGHT: measured, or "example_inputs() gives a dict: give a tuple"; not a TypeError about an ndarray.
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(100, 8)

    def forward(self, *, input_ids, attention_mask=None, reduction: str = "mean"):
        h = self.e(input_ids)
        if attention_mask is not None:
            h = h * attention_mask[..., None]
        return h.mean(1) if reduction == "mean" else h.sum(1)


def example_inputs():
    return {"input_ids": torch.randint(0, 100, (2, 16)), "attention_mask": torch.ones(2, 16)}
