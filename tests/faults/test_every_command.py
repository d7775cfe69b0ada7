"""The environment of a command fails: every command ends with one line and an exit code.

Each line of `_SOUND` runs as a process under each fault. A new command must have a
line there, or a reason in `_TESTED_ELSEWHERE`.
"""

import shlex
import subprocess
import sys

import pytest
from results_support import write

from comparative_benchmark.cli.command import COMMANDS

CBS = shlex.join([sys.executable, "-P", "-m", "comparative_benchmark"])
# Prints the path of its output on stderr.
_QUIET = "export good.json --format csv -o out.csv"
# Commands that read and print, with arguments in a folder with `good.json` and `h.sqlite`.
_SOUND = {
    "list": ["list -name models/BERT_TINY.+", "list --json"],
    "backends": ["backends"],
    "micro": ["micro list"],
    "show": ["show good.json"],
    "compare": ["compare good.json good.json", "compare good.json good.json --markdown"],
    "report": ["report good.json --markdown -", "report good.json -o page.html"],
    "export": [_QUIET],
    "history": ["history ls --db h.sqlite", "history query --db h.sqlite"],
    "userbenchmark": ["userbenchmark list"],
    "completion": ["completion bash", "completion words tags"],
}
_TESTED_ELSEWHERE = {
    "run": "starts workers: below, test_cli_streams, test_cli_bad_input",
    "bench": "starts processes: the faults of packages",
    "fleet": "starts processes: unit/fleet/test_fleet_command",
    "doctor": "measures this machine: test_doctor_*",
    "parity": "starts workers: test_parity_*",
    "new-model": "writes into a checkout: test_new_model_*",
    **dict.fromkeys(
        ("new-backend", "new-recipe", "new-operator"), "write packages: test_new_package"
    ),
    "ci-template": "writes into a checkout: test_ci_template",
    "check-model": "starts workers: test_check_model_*",
    "import": "writes into a history only: test_formats_*",
    "bisect": "starts processes: test_bisect_*",
    "explain": "starts processes: test_explain*",
    "repro": "starts processes: test_repro_*",
    "artifacts": "test_fetch_faults, test_cli_streams",
}
_LINES = [line for lines in _SOUND.values() for line in lines]
# Name -> how the shell starts a command, and its variables; None removes a variable.
_FAULTS = {
    "full-stdout": ("{} > /dev/full", {}),
    "full-stderr": ("{} 2> /dev/full", {}),
    "dead-reader": ("{} | true; exit ${{PIPESTATUS[0]}}", {}),
    "no-stdin": ("{} <&-", {}),
    "no-stdout": ("{} >&-", {}),
    "no-streams": ("{} <&- >&- 2>&-", {}),
    "ascii": ("{}", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "POSIX"}),
    "latin-1": ("{}", {"PYTHONIOENCODING": "latin-1"}),
    "no-home": ("{}", {"HOME": None, "XDG_CACHE_HOME": None}),
    "narrow": ("{}", {"COLUMNS": "4"}),
    "odd-width": ("{}", {"COLUMNS": "wide"}),
    "shadowed": ("{}", {}),
}
_LONG = "n" * 300
_TOO_LONG = [
    *(f"show {_LONG}", f"compare good.json {_LONG}", f"report {_LONG} -o page.html"),
    *(f"report good.json -o {_LONG}", f"export good.json --format csv -o {_LONG}"),
    *(f"history ls --db {_LONG}", f"history import good.json --db {_LONG}", f"run {_LONG}"),
    *(f"run -name models/BERT_TINY_FP32_PT.+ -o {_LONG}", f"run --torchbench {_LONG}"),
    *(f"micro run --op matmul --config {_LONG}", f"micro run --op matmul --shapes {_LONG}"),
    *(f"userbenchmark run {_LONG}", f"userbenchmark list --dir {_LONG}", f"repro {_LONG}"),
    *(f"check-model {_LONG}", f"artifacts lock {_LONG} -o lock.json", f"list --suite {_LONG}"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory, environment):
    """Runs a line of the shell in a folder with results, a history, and modules that raise."""
    folder = tmp_path_factory.mktemp("world")
    for name in ("good.json", "first.json"):
        write(folder / name)
    for name in ("csv", "numpy", "attrs", "rich", "json"):
        (folder / f"{name}.py").write_text("raise SystemError('the wrong module')\n")

    def run(line, **changes):
        variables = {**environment, **changes}
        return subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env={name: value for name, value in variables.items() if value is not None},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=False,
        )

    made = run(f"{CBS} history import good.json --db h.sqlite")
    assert made.returncode == 0, made.stderr
    return run


def test_every_command_is_tried_or_says_where_it_is():
    assert {command.name for command in COMMANDS} == set(_SOUND) | set(_TESTED_ELSEWHERE)


# Each line meets three faults, and each fault four lines; the nightly tier has the whole product.
_PAIRS = [
    pytest.param(line, fault, marks=() if (row + column) % 4 == 0 else pytest.mark.nightly)
    for row, line in enumerate(_LINES)
    for column, fault in enumerate(_FAULTS)
]


@pytest.mark.parametrize(("line", "fault"), _PAIRS)
def test_a_fault_around_a_command_is_told_in_a_line(world, line, fault):
    shell, variables = _FAULTS[fault]
    done = world(shell.format(f"{CBS} {line}"), **variables)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if fault == "full-stdout" and line != _QUIET:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "cbs: No space left on device"
    elif fault == "dead-reader":
        # Short output fits into the pipe before the reader ends.
        assert done.returncode in (0, 141)
    elif fault == "full-stderr":
        assert done.returncode in (0, 1)
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", _TOO_LONG, ids=lambda line: line.replace(_LONG, "LONG"))
def test_a_name_of_300_characters_is_refused_in_a_line(world, line):
    done = world(f"{CBS} {line}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("cbs")


# Each of these writes to a path below `$OUT`, which is not writable.
_WRITING = [
    *("report good.json -o $OUT/page.html", "report good.json --markdown $OUT/page.md"),
    *("report good.json --chart $OUT/c.svg", "export good.json --format csv -o $OUT/x.csv"),
    *("history import good.json --db $OUT/h", "history query --db h.sqlite --format csv -o $OUT/q"),
    "run -name models/BERT_TINY_FP32_PT.+ -o $OUT/r.json",
    "parity -name models/BERT_TINY_FP32_PT.+ --backend pt_inductor:eager -o $OUT/m.json",
    "repro good.json BERT_TINY_FP32_JAX_32XI32_BATCH1 -o $OUT/repro",
    "micro run --op relu --shapes 2x2x2 --backend pt_inductor:eager -o $OUT/r.json",
]
_QUICK = [line for line in _WRITING if line.startswith(("report", "export", "history"))]


@pytest.mark.parametrize("line", _WRITING)
def test_a_read_only_folder_is_told_in_a_line(world, line):
    # For root, every folder is writable, except those below /proc.
    done = world(f"{CBS} {line.replace('$OUT', '/proc/self/attr')}")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(("cbs", "usage: cbs"))


@pytest.mark.parametrize("line", _QUICK)
def test_a_full_disk_leaves_no_half_of_a_file(world, line):
    # A limit on the size of files has the same effect as a full disk.
    full = f"rm -rf full; mkdir full; ulimit -f 1; {CBS} {line.replace('$OUT', 'full')}"
    done = world(f"trap '' XFSZ; {full}")
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    kept = world("find full -type f -size +0 ! -name '*.lock'").stdout
    # Files below the limit are complete; the others do not exist.
    assert (kept == "") == (done.returncode == 1)


def test_nothing_was_lost_and_nothing_is_left(world):
    """Runs last in this file: results and history still exist, and no other files remain."""
    assert world("cmp good.json first.json").returncode == 0
    assert world(f"{CBS} history ls --db h.sqlite").returncode == 0
    assert "nnn" not in world("ls -A").stdout
