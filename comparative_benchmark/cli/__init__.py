"""The `cbs` command and the `run_benchmarks.py` of each backend."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `cbs`; returns the exit code."""
    from comparative_benchmark.cli import command

    return command.main(arguments)
