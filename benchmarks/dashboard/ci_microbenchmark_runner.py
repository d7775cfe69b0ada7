"""Command of torchao's benchmarking guide: runs `cbs micro run --config F` and writes its JSON.

python benchmarks/dashboard/ci_microbenchmark_runner.py --config F --output benchmark_results.json
"""

import argparse
import shutil
import sys
from pathlib import Path

from comparative_benchmark.cli.command import main


def run() -> int:
    """Runs the file. Database records go to `--output`, other files to the same folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True, help="YAML file from torchao's guide")
    parser.add_argument("--output", type=Path, default=Path("benchmark_results.json"))
    options, others = parser.parse_known_args()
    results = options.output.with_suffix(".results.json")
    code = main(["micro", "run", "--config", str(options.config), "-o", str(results), *others])
    records = results.with_suffix(".oss.json")
    if records.is_file():
        shutil.copyfile(records, options.output)
    return code


if __name__ == "__main__":
    sys.exit(run())
