"""Commands that install a backend."""

from openxla.benchmark.extras import install_command
from openxla.benchmark.root import checkout


def install(backend: str, extra: str = "all") -> str:
    """Returns the command that installs a backend of the suite.

    Args:
      backend: its name.
      extra: the extra that contains it, with hyphens: pip before 23.3 ignores an extra with
        underscores, with a warning only.
    """
    command = install_command(extra)
    if checkout() is None:
        return command
    return f"./comparative_benchmark/{backend}/setup_venv.sh, or {command}"
