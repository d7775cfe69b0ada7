"""Profiles of XLA's own profiler."""

from pathlib import Path

import jax

from comparative_benchmark.backends import operator_profile
from comparative_benchmark.backends.api import Backend


def profile(backend: Backend, directory: Path, iterations: int, hlo: str) -> list[Path]:
    """Profiles iterations; returns a trace for Perfetto, XLA's own file, and the operators.

    Args:
      backend: the backend whose program runs.
      hlo: the optimised program.
      directory: directory for the files.
      iterations: number of executions; each is a step `iteration`.

    Raises:
      RuntimeError: JAX wrote no profile.
    """
    options = jax.profiler.ProfileOptions()
    # Spans of Python calls would slow the host and hide those of the runtime.
    options.python_tracer_level = 0
    scratch = backend.context.work_dir / "jax-profile"
    with jax.profiler.trace(scratch, create_perfetto_trace=True, profiler_options=options):
        for index in range(iterations):
            with jax.profiler.StepTraceAnnotation("iteration", step_num=index):
                backend.synchronize(backend.dispatch())
    stack = f"JAX {jax.__version__}"
    files = operator_profile.take_files(
        scratch,
        directory,
        {"perfetto_trace.json.gz": "trace.json.gz", "*.xplane.pb": "xla.xplane.pb"},
        stack=stack,
    )
    events = operator_profile.read_trace(files[0])
    found = operator_profile.profile_of(events, hlo, stack=stack, iterations=iterations)
    return [*files, operator_profile.write(found, directory)]
