"""Runs the YAML file of torchao's guide twice on a CPU, with its command, and compares both runs.

The runs include all recipes of the guide's file and both sparsities, up to a power of two. Each row
must be a verified number, unsupported with a reason, or a failure that names the recipe. The JSON
records must be valid, and `cbs compare` of the two runs must exit with 0. `-o DIR` keeps the files,
and the same command resumes an interrupted run.

Each trial has three processes. On two idle cores, a run takes about 25 minutes. Half of it goes to
`max-autotune`, which compiles in each process; `--compile-mode default` takes a third of that.

    PYTHONPATH=.recipes.venv python benchmarks/guide_twice.py [--quick] [--max-power 8] [-o DIR]
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.resources import files
from pathlib import Path

import jsonschema
from _timing import print_goal, print_table

_HERE = Path(__file__).parent
_GUIDE = _HERE / "dashboard/microbenchmark_quantization_config.yml"
_RUNNER = _HERE / "dashboard/ci_microbenchmark_runner.py"
_SCHEMA = "schema/oss-benchmark-v3.schema.json"
_SPARSITIES = 'sparsity_config_recipe_names: ["semi-sparse", "block"]\n'
_MODE = 'torch_compile_mode: "max-autotune"'
# Statuses of rows with numbers or a reason; the goal allows no others.
_SAID = {"ok", "unsupported", "failed"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="measure one shape with two recipes, in eager mode"
    )
    parser.add_argument(
        "--max-power", type=int, default=8, help="exponent of the largest power of two (default: 8)"
    )
    parser.add_argument("--compile-mode", default="max-autotune", help="torch.compile mode")
    parser.add_argument("-o", "--output", type=Path, help="directory to keep all files in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cbs-guide-") as name:
        folder = (options.output or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "guide.yml"
        config.write_text(_config(options), encoding="utf-8")
        codes = [_run(config, folder / f"{run}.json", options) for run in ("first", "second")]
        checks = [_is_complete(folder / f"{run}.json") for run in ("first", "second")]
        good = all(checks)  # after both have printed their tables
        pair = [str(folder / f"{run}.results.json") for run in ("first", "second")]
        compared = subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", "compare", *pair], check=False
        ).returncode
    print(f"exit codes of the runs: {codes}; of cbs compare: {compared}")
    print_goal(
        "the guide's YAML runs on a CPU, every row has numbers or a reason, and a second run "
        "agrees",
        met=good and not any(codes) and compared == 0,
        found=f"rows {'correct' if good else 'incorrect'}, compare {compared}",
    )
    return 0


def _config(options: argparse.Namespace) -> str:
    """Returns the guide's file with both sparsities."""
    text = _SPARSITIES + _GUIDE.read_text(encoding="utf-8")
    text = text.replace(_MODE, f'torch_compile_mode: "{options.compile_mode}"')
    if options.quick:
        text = text.replace("use_torch_compile: true", "use_torch_compile: false")
        text = text.replace('  - "float8dq-tensor"\n  - "float8dq-row"\n  - "float8wo"\n', "")
        text = text.replace("min_power: 10", f"min_power: {options.max_power}")
    return text


def _run(config: Path, output: Path, options: argparse.Namespace) -> int:
    command = [
        *(sys.executable, str(_RUNNER), "--config", str(config), "--output", str(output)),
        *("--max-power", str(options.max_power), "--processes", "3", "--resume"),
        # More than enough. A run with a budget does not measure this machine's ceilings.
        *("--budget", "36000"),
    ]
    started = time.monotonic()
    code = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    print(f"{output.stem} run: exit code {code}, {(time.monotonic() - started) / 60:.1f} min")
    return code


def _is_complete(output: Path) -> bool:
    """Prints the statuses of a run; returns whether each row has numbers or a reason.

    Raises:
      ValidationError: a JSON record is not valid.
    """
    with output.with_suffix(".results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter((row["quantization"], row["sparsity"], row["status"]) for row in rows)
    reasons = {(row["quantization"], row["sparsity"]): row["reason"] for row in rows}
    print_table(
        ["recipe and sparsity", "rows", "status", "because"],
        [
            [f"{recipe} {sparsity}", str(count), status, reasons[recipe, sparsity][:80]]
            for (recipe, sparsity, status), count in counts.items()
        ],
    )
    said = all(
        row["status"] in _SAID
        and (float(row["speedup"] or 0) > 0 if row["status"] == "ok" else row["reason"])
        for row in rows
    )
    records = json.loads(output.read_text(encoding="utf-8"))
    schema = json.loads(
        (files("comparative_benchmark.reporting.formats") / _SCHEMA).read_text("utf-8")
    )
    for record in records:
        # The guide has this key, but in the database the uploader sets it.
        record.pop("runners")
        jsonschema.validate(record, schema)
    by_status = Counter(row["status"] for row in rows)
    print(f"{dict(by_status)}; {len(records)} records, all valid")
    return said and bool(records)


if __name__ == "__main__":
    raise SystemExit(main())
