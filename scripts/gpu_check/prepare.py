"""Makes checkpoints, inputs and truths of models before a race needs them.

`python -m gpu_check.prepare --device D --backend B -name REGEX`: what the
race would do at its start, beside work that no clock watches. Each workload is kept as soon as it
is made, so that what a time limit cuts off costs one workload.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.runs import runner
from comparative_benchmark.runs.preparation import Preparation
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import parse_competitors
from comparative_benchmark.terminal.options import find_device
from openxla.benchmark.comparative_suite import catalog

SUITE = "gpu_check.suite"


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all; returns 1 if something could not be made."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True, type=find_device)
    parser.add_argument("--backend", required=True)
    parser.add_argument("-name", required=True)
    options = parser.parse_args(arguments)
    cases = catalog.select(catalog.all_benchmarks([SUITE]), name=options.name)
    competitors = parse_competitors(options.backend, options.device.accelerator_type)
    trials = runner.plan(cases, competitors, options.device).trials
    with tempfile.TemporaryDirectory(prefix="cbs-prepare-logs-") as folder:
        settings = RunSettings(device=options.device, log_dir=Path(folder))
        preparation = Preparation(settings, lambda what: print(f"preparing {what}", flush=True))
        preparation.run(trials)
    for case, failure in preparation.failures.items():
        print(f"{case}: {failure}")
    return 1 if preparation.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
