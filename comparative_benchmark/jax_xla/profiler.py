"""Profiles of XLA's own profiler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from comparative_benchmark.backends import profiles


def profile_calls(
    call: Callable[[], Any],
    synchronize: Callable[[Any], None],
    directory: Path,
    iterations: int,
    *,
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations and returns a trace for Perfetto and XLA's own `xla.xplane.pb`.

    Args:
      call: starts one execution and returns its outputs.
      synchronize: waits for outputs.
      directory: where the files go.
      iterations: how many executions; each is a step `iteration`.
      work_dir: where JAX may make its folders.

    Raises:
      RuntimeError: JAX wrote no profile.
    """
    options = jax.profiler.ProfileOptions()
    # Spans of every Python call would slow the host and hide those of the runtime.
    options.python_tracer_level = 0
    scratch = work_dir / "jax-profile"
    with jax.profiler.trace(scratch, create_perfetto_trace=True, profiler_options=options):
        for index in range(iterations):
            with jax.profiler.StepTraceAnnotation("iteration", step_num=index):
                synchronize(call())
    return profiles.take_files(
        scratch,
        directory,
        {"perfetto_trace.json.gz": "trace.json.gz", "*.xplane.pb": "xla.xplane.pb"},
        stack=f"JAX {jax.__version__}",
    )
