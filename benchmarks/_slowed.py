"""XLA slowed by a known share; for workers, since it imports JAX."""

import os
from typing import Any

from _delay import SHARE_VARIABLE, prolonged

from comparative_benchmark.backend_api import BackendContext
from comparative_benchmark.jax_xla.backend import JaxXla


class SlowedJaxXla(JaxXla):
    """JAX and XLA, each iteration prolonged by the share that the environment says."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._share = float(os.environ[SHARE_VARIABLE])

    def dispatch(self) -> Any:
        """Runs to completion, and then spins."""
        return prolonged(self._run, self._share)

    def _run(self) -> Any:
        outputs = super().dispatch()
        self.synchronize(outputs)
        return outputs
