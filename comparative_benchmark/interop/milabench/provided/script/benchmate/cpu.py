"""Functions that torchcompat offers on every device, and `torch.cpu` lacks."""

import sys
from typing import Any


def complete() -> None:
    """Adds it, where there is torch and no other device."""
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_available():
        return
    known: dict[str, Any] = {
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "empty_cache": lambda: None,
    }
    # torchcompat takes what is there when it is imported.
    for module in filter(None, (torch.cpu, sys.modules.get("torchcompat.core"))):
        for name, value in known.items():
            if not hasattr(module, name):
                setattr(module, name, value)
