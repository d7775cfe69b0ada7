"""From options of the command line to the settings of a run."""

import argparse
from typing import Any

from comparative_benchmark.machine.host import ASKED, Threads, default_threads
from comparative_benchmark.machine.memory import default_limit_bytes
from comparative_benchmark.runs.session import Limits
from comparative_benchmark.runs.settings import RunSettings
from openxla.benchmark.def_types import DeviceSpec


def settings_of(
    options: argparse.Namespace, device: DeviceSpec, *, processes: int = 1, **others: Any
) -> RunSettings:
    """Returns settings with the threads and limits that the options say, or the usual ones.

    Args:
      options: with `--timeout` and `--memory-limit`; `--threads` and `--deadline` if there are any.
      device: where to run.
      processes: that run at a time, and share the memory where the user sets no limit.
      others: fields of `RunSettings`, which go before options.
    """
    limits = Limits(
        deadline_s=options.timeout,
        phase_deadlines_s=dict(getattr(options, "deadline", ())),
        memory_bytes=options.memory_limit or default_limit_bytes() // processes,
    )
    asked = getattr(options, "threads", None)
    threads = Threads(asked, ASKED) if asked else default_threads(others.get("cpus", ()))
    return RunSettings(
        **{
            "device": device,
            "threads": threads.number,
            "threads_from": threads.rule,
            "limits": limits,
            **others,
        }
    )
