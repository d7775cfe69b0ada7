"""Shared code for this suite's userbenchmarks: runs cases and writes their metrics."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from comparative_benchmark.backends.api import backends
from comparative_benchmark.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_MISSING,
    EXIT_UNFINISHED,
)
from comparative_benchmark.interop.userbenchmarks.authoring import (
    get_default_debug_output_dir,
    get_default_output_json_path,
    pytorch_versions,
    write_output,
)
from comparative_benchmark.reporting.formats.torchbench import document_of
from comparative_benchmark.reporting.history import results_files
from openxla.benchmark import devices

# Small enough for any machine, and available in every framework.
DEFAULT_CASES = "models/BERT_TINY_FP32_.+_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


def run(name: str, arguments: Sequence[str], *fixed: str) -> int:
    """Runs `cbs run` with the arguments, and writes the measured metrics.

    Args:
      name: name of the userbenchmark.
      arguments: the user's arguments for `cbs run`, without `-o`; `-name`, `--backend` and
        `-device` have defaults.
      fixed: additional arguments that the userbenchmark sets.

    Returns:
      2 if an output was wrong, 3 if a case failed or could not be measured. In both cases, the
      metrics are written, with a status instead of each missing value. 1 without results.
    """
    chosen, rest = _options(name).parse_known_args(list(arguments))
    folders = [f"--torchbench={path}" for path in chosen.torchbench or ()]
    # For TorchBench folders, `cbs run` selects the backends and all cases.
    backend = chosen.backend or ("" if folders else ",".join(_installed()))
    if not (backend or folders):
        print("no backend is installed; to install one, see `cbs backends`", file=sys.stderr)
        return EXIT_FAILED
    cases = chosen.name or (None if folders else DEFAULT_CASES)
    selected = [
        *folders,
        *(("-name", cases) if cases else ()),
        *(("--backend", backend) if backend else ()),
        *("-device", chosen.device),
    ]
    return _measured(name, ["run", *selected, *fixed, *rest], os.environ)


def run_scripts(name: str, arguments: Sequence[str]) -> int:
    """Runs `cbs bench run` with the arguments, and writes the metrics reported by the scripts.

    With `--use-current-env`, scripts run in the environment of this process. A bisection of one of
    its packages therefore measures that package.
    """
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    environment.pop("CONDA_PREFIX", None)
    return _measured(name, ["bench", "run", *arguments], environment)


def _measured(name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    metrics = Path(get_default_output_json_path(name))
    # Use a new file, because an existing one would contain earlier results.
    results = get_default_debug_output_dir(str(metrics)) / "results.json"
    code = subprocess.run(
        [sys.executable, "-P", "-m", "comparative_benchmark", *command, "-o", str(results)],
        check=False,
        env=environment,
    ).returncode
    if code == EXIT_INTERRUPTED or code < 0 or not results.exists():
        return EXIT_FAILED
    stored = results_files.read(results)
    for sentence in stored.refused:
        print(f"skipped: {sentence}", file=sys.stderr)
    if code in (EXIT_FAILED, EXIT_UNFINISHED):
        if not stored.results:
            return EXIT_FAILED
        # Metrics contain the status of each failed case.
        code = EXIT_MISSING
    document = document_of(stored.results, name)
    version, git_version = pytorch_versions()
    # `cbs run` may have used another environment, and therefore another version of PyTorch.
    if document["environ"]["pytorch_version"] == version:
        document["environ"]["pytorch_git_version"] = git_version
    write_output(metrics, document)
    return code


def _options(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"cbs userbenchmark run {name}",
        allow_abbrev=False,
        epilog="All other arguments are passed to `cbs run`.",
    )
    names = f"cases or TorchBench folders to run, as in `cbs run` (default: {DEFAULT_CASES})"
    parser.add_argument("-name", help=names)
    parser.add_argument(
        "--torchbench", action="append", help="TorchBench model folder, as in `cbs run`"
    )
    parser.add_argument("--backend", help="backends, as in `cbs run` (default: all installed)")
    parser.add_argument(
        "-device", default=devices.HOST_CPU.name, help="device to run on (default: %(default)s)"
    )
    return parser


def _installed() -> list[str]:
    return [
        backend.name
        for backend in backends().values()
        if any(not backend.missing_modules(framework) for framework in backend.modules)
    ]
