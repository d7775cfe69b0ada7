"""Wrappers by which a voirfile replaces a script's loader, loss and optimizer."""

import os
import sys
from collections.abc import Callable
from typing import Any

from voir.helpers import current_overseer

from .metrics import ManualTimedIterator, TimedIterator
from .pushers import LazyLossPusher, give_push, sumggle_push


def _complete_cpu() -> None:
    """Adds functions that scripts call through torchcompat on every device to `torch.cpu`."""
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_available():
        return
    known: dict[str, Any] = {
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "empty_cache": lambda: None,
    }
    # torchcompat copies the existing functions when it is imported.
    for module in filter(None, (torch.cpu, sys.modules.get("torchcompat.core"))):
        for name, value in known.items():
            if not hasattr(module, name):
                setattr(module, name, value)


_complete_cpu()


class BenchObserver:
    """Times a loader's loop, and keeps losses."""

    def __init__(
        self,
        *args: Any,
        backward_callback: "Callable[[], Any] | None" = None,
        step_callback: "Callable[[], Any] | None" = None,
        stdout: bool = False,
        rank: "int | None" = None,
        **kwargs: Any,
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.backward_callback = backward_callback
        self.optimizer_step_callback = step_callback
        self.stdout = stdout
        self.task = "train"
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.losses = LazyLossPusher(self.task)
        self.instance: TimedIterator | None = None
        self.pusher = sumggle_push() if stdout else give_push()

    def on_iterator_stop_iterator(self) -> None:
        """Reports the losses, outside of timed code."""
        self.losses.push(self.pusher)

    def record_loss(self, loss: Any) -> Any:
        """Keeps a loss and returns it."""
        if not self.rank:
            self.losses.record(loss)
        return loss

    def override_return_value(self, function: Any, override: Any) -> None:
        """Has voir call a function with the return values of another."""
        import ptera

        overseer = current_overseer.get()
        if overseer is None:
            raise RuntimeError("this script was not started by voir")
        probe = overseer.probe(f"{ptera.refstring(function)}() as retval", overridable=True)
        probe["retval"].override(override)

    def iterate(self, iterator: Any, custom_step: bool = False) -> Any:
        """Returns a loader that is timed."""
        return self.loader(iterator, custom_step=custom_step)

    def step(self) -> None:
        """Ends a step, if the script reports the ends of steps."""
        if isinstance(self.instance, ManualTimedIterator):
            self.instance.step()

    def original_dataloader(self) -> Any:
        """Returns the loader that is timed."""
        return self.instance

    def loader(self, loader: Any, custom_step: bool = False) -> Any:
        """Returns a loader that is timed, step by step or batch by batch; the same each time."""
        if self.instance is None:
            options = {**self.kwargs, "rank": self.rank, "push": self.pusher}
            timed = ManualTimedIterator if custom_step else TimedIterator
            self.instance = timed(loader, *self.args, **options)
            self.instance.task = self.task
            self.instance.on_iterator_stop_iterator = (  # type: ignore[method-assign]
                self.on_iterator_stop_iterator
            )
        return self.instance

    def criterion(self, criterion: Any) -> Any:
        """Returns a loss function whose values are recorded."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            loss = criterion(*args, **kwargs)
            callback = self.backward_callback
            if callback is not None:
                original = loss.backward

                def backward(*args: Any, **kwargs: Any) -> None:
                    original(*args, **kwargs)
                    callback()

                loss.backward = backward
            return self.record_loss(loss)

        return wrapped

    def optimizer(self, optimizer: Any) -> Any:
        """Returns an optimizer whose steps are followed by a callback."""
        callback = self.optimizer_step_callback
        if callback is not None:
            original = optimizer.step

            def step(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                callback()
                return result

            # Schedulers of torch look for the wrapped method.
            step.__self__ = original.__self__  # type: ignore[attr-defined]
            step.__func__ = original.__func__  # type: ignore[attr-defined]
            optimizer.step = step
        return optimizer
