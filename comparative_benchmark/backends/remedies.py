"""What to type where something is not installed."""

from openxla.benchmark.root import checkout


def install(backend: str, extra: str = "all") -> str:
    """Returns how a backend of the suite is installed: in a checkout, or beside the package.

    Args:
      backend: its name.
      extra: that holds it. With hyphens: pip before 23.3 knows no extra by underscores, and says so
        in a warning only.
    """
    if checkout() is None:
        return f"pip install 'common-benchmark-suite[{extra}]'"
    return f"./comparative_benchmark/{backend}/setup_venv.sh, or pip install -e '.[{extra}]'"
