"""A backend slowed by a known share; for workers, since it imports the backend's framework.

`Slowed` is a subclass of the backend class that the environment names, so that the same slow-down
can be planted into any of them.
"""

import os
from typing import Any

from comparative_benchmark.backends.api import BackendContext, load_object
from gpu_check import delay

_Base: Any = load_object(os.environ[delay.BASE_VARIABLE])


class Slowed(_Base):  # type: ignore[misc]  # which class it is the environment says
    """The named backend, each iteration prolonged by the share that the environment says."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._share = float(os.environ[delay.SHARE_VARIABLE])

    def dispatch(self) -> Any:
        """Runs to completion, and then spins."""
        return delay.prolonged(self._complete, self._share)

    def _complete(self) -> Any:
        outputs = super().dispatch()
        self.synchronize(outputs)
        return outputs
