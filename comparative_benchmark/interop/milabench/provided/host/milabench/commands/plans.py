"""Concurrent copies of a command, by `plan` of the configuration."""

from typing import Any

from .base import Command, ListCommand


class NJobs(ListCommand):
    """A command several times at once."""

    def __init__(
        self, executor: Command, n: int, gpus: "list[Any] | None" = None, **kwargs: Any
    ) -> None:
        self.n = n
        devices = [gpu["device"] for gpu in gpus or []]
        super().__init__(
            *(executor.cloned(str(i), devices, {"job-number": i}) for i in range(n)), **kwargs
        )


class PerGPU(ListCommand):
    """A command once for each GPU; once on the CPU if no GPU is present."""

    def __init__(self, executor: Command, gpus: "list[Any] | None" = None, **kwargs: Any) -> None:
        clones = [
            executor.cloned(
                f"D{gpu['device']}",
                [gpu["device"]],
                {
                    "device": gpu["device"],
                    "env": {gpu["selection_variable"]: str(gpu["device"])},
                },
            )
            for gpu in gpus or []
        ]
        super().__init__(*(clones or [executor.cloned("D0", [], {"device": 0})]), **kwargs)
