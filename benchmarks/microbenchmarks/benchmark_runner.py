"""The older command of torchao's benchmarking framework, which writes tables to `output_dir`.

python -m benchmarks.microbenchmarks.benchmark_runner --config F [options of `cbs micro run`]

The CSV is `OUTPUT_DIR/MODE/results_DDMMYYYY_HHMMSS.csv`; results and JSON records are next to it.
"""

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.cli.command import main
from comparative_benchmark.errors import EXIT_FAILED, UsageError
from comparative_benchmark.studies.micro.config import read


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the file with `cbs micro run`; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True, help="YAML file from torchao's guide")
    options, others = parser.parse_known_args(arguments)
    try:
        config = read(options.config)
    except UsageError as error:
        print(f"benchmark_runner: {error}", file=sys.stderr)
        return EXIT_FAILED
    now = datetime.datetime.now(datetime.UTC).astimezone()
    results = Path(config.output_dir, config.mode, f"results_{now:%d%m%Y_%H%M%S}.json")
    command = ["micro", "run", "--config", str(options.config), "-o", str(results), *others]
    # A run prints the command that resumes it, which must contain the results file.
    sys.argv = ["cbs", *command]
    return main(command)


if __name__ == "__main__":
    sys.exit(run())
