"""Profiles of XLA's own profiler."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax


def profile_calls(
    call: Callable[[], Any],
    synchronize: Callable[[Any], None],
    directory: Path,
    iterations: int,
    *,
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations and returns a trace for Perfetto and XLA's own `xla.xplane.pb`.

    The latter holds all that was recorded; XProf and TensorBoard read it from a folder
    `plugins/profile/<any name>/`. Neither is needed to write it.

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
    # JAX's names hold the time and the host's name.
    wanted = {"perfetto_trace.json.gz": "trace.json.gz", "*.xplane.pb": "xla.xplane.pb"}
    files = []
    for pattern, name in wanted.items():
        found = next(scratch.glob(f"plugins/profile/*/{pattern}"), None)
        if found is None:
            raise RuntimeError(f"JAX {jax.__version__} wrote no {pattern} into its profile")
        files.append(Path(shutil.move(found, directory / name)))
    shutil.rmtree(scratch)
    return files
