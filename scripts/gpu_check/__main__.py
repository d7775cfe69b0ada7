"""`python -m gpu_check`, as `scripts/gpu_check.sh` starts it."""

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from comparative_benchmark.backends.api import is_installed
from comparative_benchmark.results.store import write_atomically
from gpu_check import gather, summary
from gpu_check.bootstrap import WORK_VARIABLE
from gpu_check.driver import Driver, Ending
from gpu_check.plan import MODULES, Machine, Step, checkout, steps
from openxla.benchmark.root import ROOT_DIR_VARIABLE

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
# Kept for the page and the archive.
_RESERVE_S = 25.0
_LONGEST_LOG_BYTES = 300_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the check.

    Returns:
      0 if every step that ran is ok, 2 if an output was wrong, 1 if something else was not as it
      must be, 130 if interrupted.
    """
    scratch = Path(os.environ[WORK_VARIABLE])
    try:
        return _check(_parser().parse_args(arguments), scratch)
    finally:
        # The packages, checkpoints of gigabytes, and whatever the steps left.
        shutil.rmtree(scratch, ignore_errors=True)


def _check(options: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(ROOT_DIR_VARIABLE, str(scratch / "root"))
    programs = options.wheels / "programs" if options.wheels else None
    machine = Machine(
        device=options.device,
        output=output,
        scratch=scratch,
        modules=frozenset(name for name in MODULES if is_installed(name)),
        programs=programs if programs and programs.is_dir() else None,
    )
    chosen = _chosen(steps(machine), options.steps)
    deadline = started + 60 * options.minutes - _RESERVE_S

    def keep() -> None:
        found = gather.gather(machine, driver.outcomes, started=started)
        write_atomically(output / "checks.json", found.document)
        _write(output / "summary.md", summary.as_markdown(found))
        _archive(scratch, output / "logs.tar.xz")

    driver = Driver(machine, deadline=deadline, keep=keep, say=_say)
    code = EXIT_OK
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        driver.run(chosen)
    except KeyboardInterrupt:
        _say("interrupted; finished results are kept")
        code = EXIT_INTERRUPTED
    _page(output)
    keep()
    found = gather.gather(machine, driver.outcomes, started=started)
    for finding in found.findings:
        _say(f"FINDING: {finding}")
    _say(f"summary: {output / 'summary.md'}")
    return code or _exit_code(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh",
        description="Check the suite on a GPU: correct outputs, plausible times, and faults that "
        "affect only their own trial. Write one folder with a few small files.",
    )
    default = os.environ.get("OUT") or checkout() / "results" / "gpu"
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(default),
        help="folder to write (default: $OUT, or results/gpu)",
    )
    parser.add_argument(
        "--device",
        default="host-gpu",
        choices=["host-gpu", "host-cpu"],
        help="device to check; host-cpu rehearses the same steps with tiny models, without a GPU",
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="minutes for all steps (default: %(default)g)"
    )
    parser.add_argument("--steps", help="run only these steps, e.g. matrix,faults (default: all)")
    parser.add_argument("--wheels", type=Path, help="folder made by gpu_wheels.sh")
    return parser


def _chosen(every: Sequence[Step], names: str | None) -> list[Step]:
    if names is None:
        return list(every)
    asked = [name.strip() for name in names.split(",") if name.strip()]
    known = [step.name for step in every]
    if unknown := [name for name in asked if name not in known]:
        raise SystemExit(
            f"--steps: unknown step {', '.join(unknown)}; choices are {', '.join(known)}"
        )
    return [step for step in every if step.name in asked]


def _exit_code(found: gather.Found) -> int:
    if found.wrong_outputs:
        return EXIT_WRONG
    bad = any(outcome.ending in (Ending.FAILED, Ending.TIMEOUT) for outcome in found.outcomes)
    return EXIT_FAILED if bad or found.findings else EXIT_OK


def _page(output: Path) -> None:
    """Makes the page of what was raced; without it the results are there all the same."""
    if not (output / "races.json").exists():
        return
    command = [sys.executable, "-P", "-m", "comparative_benchmark", "report"]
    command += [str(output / "races.json"), "-o", str(output / "page.html"), "--title", "GPU check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        _say("no report page: it took longer than 60 s")
        return
    if done.returncode:
        _say(f"no report page: {done.stderr.strip() or done.returncode}")


def _archive(scratch: Path, path: Path) -> None:
    """Packs all logs into one file; of a long one the end, which says how it ended."""
    draft = path.with_name(f".{path.name}.tmp")
    with tarfile.open(draft, "w:xz", preset=3) as archive:
        for log in sorted(scratch.rglob("*.log")):
            with log.open("rb") as file:
                file.seek(max(0, log.stat().st_size - _LONGEST_LOG_BYTES))
                content = file.read()
            entry = tarfile.TarInfo(str(log.relative_to(scratch)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    draft.replace(path)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _say(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
