"""Rates of scripts that measure themselves, as milabench's benchmarks do."""

from comparative_benchmark.interop.userbenchmarks import suite

BM_NAME = "milabench"


def run(args: list[str]) -> int:
    """Runs scripts, as `cbs bench run` with the same arguments would, and leaves their metrics."""
    return suite.run_scripts(BM_NAME, args)
