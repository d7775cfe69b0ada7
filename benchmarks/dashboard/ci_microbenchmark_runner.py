"""Command of torchao's benchmarking guide: runs `cbs micro run --config F` and writes its JSON.

python benchmarks/dashboard/ci_microbenchmark_runner.py --config F --output benchmark_results.json
"""

import argparse
import sys
from pathlib import Path

from comparative_benchmark.cli.command import main
from openxla.benchmark.files import write_atomically


def run() -> int:
    """Runs the file. Database records go to `--output`, other files to the same folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True, help="YAML file from torchao's guide")
    parser.add_argument("--output", type=Path, default=Path("benchmark_results.json"))
    options, others = parser.parse_known_args()
    results = options.output.with_suffix(".results.json")
    records = results.with_suffix(".oss.json")
    # A refused run, or one with --dry-run, must not publish the tables of an earlier one.
    before = _written_at(records)
    code = main(["micro", "run", "--config", str(options.config), "-o", str(results), *others])
    if _written_at(records) != before:
        write_atomically(options.output, records.read_bytes())
    return code


def _written_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.is_file() else None


if __name__ == "__main__":
    sys.exit(run())
