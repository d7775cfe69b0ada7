"""Scripts that set up a backend of the suite."""

from openxla.benchmark.root import checkout


def setup_script(backend: str) -> str | None:
    """Returns the command that creates a backend's environment; None outside a checkout."""
    return None if checkout() is None else f"./comparative_benchmark/{backend}/setup_venv.sh"
