"""An example network: `cbs run docs/examples/my_net.py` measures `MyNet()`."""

import torch


class MyNet(torch.nn.Module):
    """Input: [batch, 16]; output: [batch, 4]."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, hidden)
        self.down = torch.nn.Linear(hidden, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        return self.down(torch.nn.functional.gelu(self.up(x)))


def example_inputs() -> torch.Tensor:
    """Returns the inputs that the model runs on: one tensor, or a tuple."""
    return torch.randn(8, 16)
