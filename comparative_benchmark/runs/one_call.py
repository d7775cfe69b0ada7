"""One question to a worker that ends with its answer: of a folder or model that is looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.runs.settings import RunSettings
from openxla.benchmark.temporary import temporary_folder


def call_once(settings: RunSettings, function: str, arguments: Mapping[str, Any]) -> Any:
    """Returns what a function returns in a worker of PyTorch, as JSON carries it.

    Args:
      settings: of the worker.
      function: as `module:function`.
      arguments: of the function, by name; what JSON can carry.

    Raises:
      SessionEnded: the worker did not answer; says why.
    """
    with temporary_folder("call") as scratch:
        place = Path(scratch)
        session = settings.open_session(
            get_backend("pt_inductor"),
            None,
            work_dir=place,
            cache_dir=place / "cache",
            log_file=place / "log",
        )
        with session:
            return session.call("call", function=function, arguments=dict(arguments))["value"]
